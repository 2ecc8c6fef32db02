"""A newcomer with a secret believes those that have it, and nobody else (B5)."""

from __future__ import annotations

from random import Random

from thyme.live.discovery import DiscoveredWorlds, select_world
from thyme.model.ids import NodeId
from thyme.model.worlds import WorldInfo
from thyme.transport.datagrams import ANONYMOUS, Hello, digest_world, encode
from thyme.transport.encryption import DatagramCipher, derive_world_key

SECRET = "correct horse"
LIFE = b"12345678"
SERVER, LIAR = NodeId(b"server"), NodeId(b"liar")
WORLD = WorldInfo("lisbon", "w1", substrate="es", server=SERVER, closed=True)


def announcement(world_id: str) -> bytes:
    world = WorldInfo("lisbon", world_id)
    return encode(digest_world(world), bytes(8), ANONYMOUS, Hello(world, closed=True))


def proven_hellos(discovered: DiscoveredWorlds) -> None:
    """A member's encrypted hello, and the exchange that shows that it is not recorded."""
    member = DatagramCipher(derive_world_key(SECRET, WORLD), WORLD, Random(1).randbytes)
    hello = encode(digest_world(WORLD), LIFE, SERVER, Hello(WORLD))
    challenge = discovered.on_datagram(member.encrypt(hello))
    assert challenge is not None
    response = member.decrypt(challenge).reply
    assert response is not None
    discovered.on_datagram(response)


def test_b5_plain_text_that_claims_to_be_the_closed_world_is_not_believed() -> None:
    discovered = DiscoveredWorlds("lisbon", SECRET)
    lie = WorldInfo("lisbon", "w1", substrate="es", server=LIAR, closed=True)
    discovered.on_datagram(encode(digest_world(lie), LIFE, LIAR, Hello(lie)))
    assert select_world(discovered.worlds, "lisbon") is None

    discovered.on_datagram(announcement("w1"))
    proven_hellos(discovered)

    assert select_world(discovered.worlds, "lisbon") == WORLD


def test_b5_announcements_of_worlds_that_do_not_exist_keep_nobody_out() -> None:
    discovered = DiscoveredWorlds("lisbon", SECRET)
    for number in range(300):
        discovered.on_datagram(announcement(f"false{number}"))
    discovered.on_datagram(announcement("w1"))
    proven_hellos(discovered)

    assert select_world(discovered.worlds, "lisbon") == WORLD
