"""Peer shares: what each address sends, what of it was useless, and who is shut out for a while.

Entry point: `PeerShares`. Every datagram is charged to its address before anything is done with
it. An address has a rate limit; addresses without a neighbour have a common one besides. Useless
datagrams are offences of different weight; an address with too many is banned, each time for
longer, and the length decays while it behaves. `link` decides what is useless.
Clauses: B5. Decision: docs/decisions/0050-fair-shares.md.
"""

from __future__ import annotations

from typing import Final

from thyme.transport.link_config import SECOND_US, Address, RateLimit
from thyme.transport.rate_limit import TokenBucket

_OFFENCES_PER_SECOND: Final = 100.0
_OFFENCES_BURST: Final = 400.0
"""What an address may do wrong without being banned: networks damage and repeat datagrams."""
_OFFENCES_AFTER_BAN: Final = 25.0
"""What an address may do wrong when a ban has just ended."""
_BAN_US_MIN: Final = SECOND_US
_BAN_US_MAX: Final = 60 * SECOND_US
_FORGET_US: Final = 60 * SECOND_US
"""A ban is as short as the first one again after so much time without another."""
_ADDRESSES_MAX: Final = 4_096
_STRANGERS: Final = RateLimit(
    datagrams_per_second=1_000, datagrams_burst=2_000, bytes_per_second=1e6, bytes_burst=2e6
)
"""Limit of all addresses without a neighbour together: newcomers send a hello per second."""
_STRANGERS_MANY: Final = 2_000
"""So many datagrams of strangers in a second are too many to look at."""
_WEIGHTS: Final = {
    "another world": 0.0,
    "our name": 0.0,
    "other version": 0.05,
    "not introduced": 0.02,
    "too much": 0.05,
    "inbox full": 0.1,
    "too many broadcasts": 0.5,
    "too much routing": 0.5,
    "too many floods": 0.5,
    "reassembly full": 0.05,
    "replayed": 0.2,
    "old life": 0.2,
    "not genuine": 5.0,
}
"""How bad an offence is, by the reason of a drop; all others weigh 1. A neighbour sends until it
learns that a node has restarted ("not introduced") or cannot follow ("inbox full"); of broadcasts
it learns nothing, so nobody sends hundreds that wait."""


class SenderAccount:
    """The account of one address."""

    __slots__ = (
        "ban_us",
        "banned_until_us",
        "bans",
        "bucket",
        "bytes",
        "datagrams",
        "dropped",
        "names",
        "offences_left",
        "refilled_us",
    )

    def __init__(self, limit: RateLimit, now_us: int) -> None:
        self.bucket = TokenBucket(limit, now_us)
        self.datagrams = 0
        self.bytes = 0
        self.dropped = 0
        self.names = 0
        """Number of neighbours at this address."""
        self.offences_left = _OFFENCES_BURST
        self.refilled_us = now_us
        self.banned_until_us = 0
        self.ban_us = 0
        self.bans = 0

    def refill(self, now_us: int) -> None:
        elapsed_s = max(0, now_us - self.refilled_us) / 1e6
        self.refilled_us = now_us
        left = self.offences_left + elapsed_s * _OFFENCES_PER_SECOND
        self.offences_left = min(_OFFENCES_BURST, left)


class PeerShares:
    """The accounts of all addresses from which a link receives."""

    def __init__(self, limit: RateLimit) -> None:
        """`limit` is the rate limit of one address."""
        self._limit = limit
        self._accounts: dict[Address, SenderAccount] = {}
        self._banned: dict[Address, SenderAccount] = {}
        self._strangers: TokenBucket | None = None
        self._strangers_seen = 0
        self._sampled_us = 0
        self.stranger_share = 1.0
        """The share of the datagrams of strangers that should be received at all."""
        self.revision = 0
        """Changes whenever bans or the share of strangers change."""
        self.bans = 0

    def admit(self, address: Address, size: int, now_us: int) -> bool:
        """Charges a datagram to its address; False if it is to be dropped unread."""
        account = self._accounts.get(address)
        if account is None:
            if len(self._accounts) >= _ADDRESSES_MAX:
                self._strangers_seen += 1
                return False
            account = self._accounts[address] = SenderAccount(self._limit, now_us)
        account.datagrams += 1
        account.bytes += size
        if account.banned_until_us > now_us:
            account.dropped += 1
            return False
        if not account.names:
            self._strangers_seen += 1
            if self._strangers is None:
                self._strangers = TokenBucket(_STRANGERS, now_us)
            if not self._strangers.consume(size, now_us):
                account.dropped += 1
                return False
        if not account.bucket.consume(size, now_us):
            self.charge(address, "too much", now_us)
            return False
        return True

    def consume(self, address: Address, now_us: int, count: int) -> bool:
        """Charges the contents of a datagram to its address."""
        account = self._accounts.get(address)
        return account is None or account.bucket.consume(0, now_us, count)

    def charge(self, address: Address, reason: str, now_us: int, count: int = 1) -> None:
        """Counts something useless; bans the address if that is too much."""
        account = self._accounts.get(address)
        if account is None:
            return
        account.dropped += count
        weight = _WEIGHTS.get(reason, 1.0) * count
        if not weight or account.banned_until_us > now_us:
            return
        account.refill(now_us)
        account.offences_left -= weight
        if account.offences_left < 0:
            self._ban(address, account, now_us)

    def _ban(self, address: Address, account: SenderAccount, now_us: int) -> None:
        quiet_us = now_us - account.banned_until_us
        again = account.ban_us and quiet_us < _FORGET_US
        account.ban_us = min(_BAN_US_MAX, 2 * account.ban_us) if again else _BAN_US_MIN
        account.banned_until_us = now_us + account.ban_us
        account.offences_left = _OFFENCES_AFTER_BAN
        self._banned[address] = account
        account.bans += 1
        self.bans += 1
        self.revision += 1

    # Neighbours

    def add_name(self, address: Address, names_max: int) -> bool:
        """Counts a neighbour at an address; False if it has too many."""
        account = self._accounts.get(address)
        if account is None:
            return True
        if account.names >= names_max:
            return False
        account.names += 1
        return True

    def remove_name(self, address: Address) -> None:
        """Counts a neighbour that has left an address."""
        account = self._accounts.get(address)
        if account is not None and account.names:
            account.names -= 1

    # Observation

    def banned(self) -> list[Address]:
        """The addresses that are banned."""
        return list(self._banned)

    def known(self) -> list[Address]:
        """The addresses of neighbours."""
        return [address for address, account in self._accounts.items() if account.names]

    def accounts(self) -> list[tuple[Address, SenderAccount]]:
        """All addresses with their accounts."""
        return list(self._accounts.items())

    def find(self, address: Address) -> SenderAccount | None:
        """The account of an address."""
        return self._accounts.get(address)

    def expire(self, now_us: int) -> None:
        """Ends bans, forgets idle addresses, and measures how many strangers there are."""
        for address, account in list(self._banned.items()):
            if account.banned_until_us <= now_us:
                del self._banned[address]
                self.revision += 1
        for address, account in list(self._accounts.items()):
            since_us = now_us - max(account.refilled_us, account.banned_until_us)
            is_idle = not account.names and account.bucket.is_full(now_us)
            if is_idle and (not account.ban_us or since_us > _FORGET_US):
                del self._accounts[address]
        elapsed_s = (now_us - self._sampled_us) / 1e6
        if elapsed_s >= 0.5:
            self._measure_strangers(elapsed_s)
            self._sampled_us = now_us

    def _measure_strangers(self, elapsed_s: float) -> None:
        rate = self._strangers_seen / elapsed_s / self.stranger_share
        self._strangers_seen = 0
        share = 1.0
        if rate > _STRANGERS_MANY:
            share = _STRANGERS.datagrams_per_second / rate
        if share != 1.0 or self.stranger_share != 1.0:
            self.stranger_share = share
            self.revision += 1
