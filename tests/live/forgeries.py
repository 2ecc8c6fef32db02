"""Attempts of a member to speak in another's name, by the thousand, against a node of each
substrate with real signatures."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from random import Random

from msgspec.structs import replace

from thyme.live.keys.identity import Identity
from thyme.live.keys.pair_keys import X25519PairKeys
from thyme.live.keys.record_signer import Ed25519RecordSigner
from thyme.live.node_factory import make_node, unwrap_node
from thyme.model.ids import Key, ObjectId, SubscriptionId
from thyme.model.metadata import Metadata, make_metadata
from thyme.model.signed_records import (
    DeleteRecord,
    LocationRecord,
    Record,
    UnsubscribeRecord,
    sign_metadata,
    sign_subscription,
)
from thyme.model.subscriptions import SubscriptionKey, SubscriptionRecord
from thyme.model.time_frames import ALWAYS
from thyme.model.worlds import Area, WorldInfo
from thyme.protocol import app_interface as asked
from thyme.protocol.messages import cells as cell_wire
from thyme.protocol.messages import common as wire
from thyme.protocol.messages.cell_records import (
    CellId,
    CellSubscription,
    CellTarget,
    IndexedMetadata,
    Replica,
    SignedInstant,
    SignedLocation,
    TombstoneRecord,
)
from thyme.protocol.node import Action, AppRequested, Emit, Input, Received, SetTimer, Started
from thyme.protocol.node import TimerFired as Fired
from thyme.query.query import Query
from thyme.routing.dsdv.protocol import Dsdv
from thyme.routing.routed_node import RoutedNode
from thyme.storage.store import MemoryStore
from thyme.substrates.dcs.node import DcsNode

ALICE, NODE, MALLORY = (Identity(bytes([number]) * 32) for number in (1, 2, 3))
WORLDS = {
    "es": WorldInfo("lisbon", "w1", substrate="es", server=NODE.node_id),
    "ls": WorldInfo("lisbon", "w1", substrate="ls"),
    "dcs": WorldInfo("lisbon", "w1", Area(40, 40), 40, substrate="dcs"),
}
HERE = CellId(0)
NOW_US = 1_800_000_000_000_000
GOAL = Query("goal").conjunctions
KEPT, DELETED = (Key(ObjectId(name), ALICE.node_id) for name in ("kept", "deleted"))
STANDING, ENDED = (
    SubscriptionKey(SubscriptionId(name), ALICE.node_id) for name in ("standing", "ended")
)
SIGNERS = {identity: Ed25519RecordSigner(identity, "w1") for identity in (ALICE, MALLORY)}


def a_photo(key: Key, by: Identity = ALICE, data: bytes = b"pixels") -> Metadata:
    draft = make_metadata(key, data, ["goal"], NOW_US)
    if by.node_id == key.owner:
        [signed] = sign_metadata([draft], SIGNERS[by])
        return signed
    return replace(draft, digest_and_proof=draft.digest + MALLORY.sign(b"anything"))


def a_subscription(key: SubscriptionKey) -> SubscriptionRecord:
    return sign_subscription(SubscriptionRecord(key, GOAL, ALWAYS), SIGNERS[ALICE])


def a_location(at_us: int, cell: CellId = HERE) -> SignedLocation:
    record = LocationRecord(ALICE.node_id, cell, at_us)
    return SignedLocation(cell, SignedInstant(at_us, SIGNERS[ALICE].sign(record)))


class Forger:
    """A member that knows everything that was ever said, and one node that it tries to deceive."""

    def __init__(self, substrate: str, seed: int) -> None:
        self._rng = Random(seed)
        self._substrate = substrate
        self._now_us = NOW_US
        self._number = 0
        self._timers: dict[object, int] = {}
        self._routes_told_us = 0
        self.told: list[object] = []
        self.tried: Counter[str] = Counter()
        self.node = make_node(
            WORLDS[substrate],
            NODE.node_id,
            MemoryStore(),
            Random(seed),
            (20.0, 20.0),
            signer=Ed25519RecordSigner(NODE, "w1"),
            pair_keys=X25519PairKeys(NODE, "w1"),
        )
        self.kept, self.deleted = a_photo(KEPT), a_photo(DELETED)
        self.standing, self.ended = a_subscription(STANDING), a_subscription(ENDED)
        self._delete = SIGNERS[ALICE].sign(DeleteRecord(DELETED))
        self._stop = SIGNERS[ALICE].sign(UnsubscribeRecord(ENDED))
        self._genuine = [
            self.kept.proof,
            self.deleted.proof,
            self._delete,
            self._stop,
            a_location(NOW_US).since.proof,
        ]
        self._begin()

    def _begin(self) -> None:
        """The node starts, and hears what Alice has to say."""
        self._handle(Started())
        for _ in range(10):
            self._pass_time(1_000_000)
        self._true_routes()
        if self._substrate == "ls":
            self._handle(
                AppRequested(
                    asked.Subscribe(request_id=1, conjunctions=GOAL, frame=ALWAYS, batch=20)
                )
            )
        for metadata in (self.kept, self.deleted):
            self._hear(self._publishing(metadata))
        for subscription in (self.standing, self.ended):
            self._hear(self._subscribing(subscription, a_location(NOW_US)))
        if self._substrate != "ls":
            self._hear(wire.SignedDelete(3, DELETED, self._delete))
        self._hear(wire.SignedStop(4, ENDED, self._stop))
        self.check()

    # What Alice says, and what she does not

    def _publishing(self, metadata: Metadata) -> wire.Message:
        match self._substrate:
            case "es":
                return wire.InsertObject(self._next(), metadata, b"pixels")
            case "ls":
                return wire.ReliableMessage(self._next(), wire.Notify(metadata, self._own_sids()))
        return cell_wire.IndexObject(self._next(), IndexedMetadata(metadata, (Replica(HERE),)))

    def _subscribing(
        self, subscription: SubscriptionRecord, location: SignedLocation
    ) -> wire.Message:
        if self._substrate == "dcs":
            return wire.LocatedSubscription(self._next(), subscription, 20, location)
        return wire.StartSubscription(self._next(), subscription, 20)

    def _proof(self, record: Record) -> bytes:
        """A proof that is not Alice's for this record."""
        rng, genuine = self._rng, self._rng.choice(self._genuine)
        match rng.randrange(6):
            case 0:
                return MALLORY.sign(rng.randbytes(16))
            case 1:
                return ALICE.public_key + MALLORY.make_signature(rng.randbytes(16))
            case 2:
                at = rng.randrange(len(genuine))
                return (
                    genuine[:at] + bytes([genuine[at] ^ 1 << rng.randrange(8)]) + genuine[at + 1 :]
                )
            case 3:
                return genuine  # of another record
            case 4:
                return genuine[:96] + bytes([rng.randrange(2)]) + rng.randbytes(32)
        return b""

    def attempt(self) -> None:
        """One attempt, of a kind drawn at random."""
        kinds: list[Callable[[], wire.Message]] = [
            self._forge_delete,
            self._forge_stop,
            self._forge_publish,
            self._forge_subscription,
            self._revive_object,
            self._revive_subscription,
            self._forge_answer,
        ]
        if self._substrate == "dcs":
            kinds += [self._forge_place, self._forge_state, self._forge_state]
        kind = self._rng.choice(kinds)
        if self._substrate != "dcs" and self._rng.random() < 0.1:
            self._forge_route()
            return
        self.tried[kind.__name__.strip("_")] += 1
        self._hear(kind())
        if self._rng.random() < 0.02:
            self._hear(wire.SignedDelete(self._next(), *self._own_delete()), by=MALLORY)
        self._now_us += 1_000
        if self._rng.random() < 0.01:
            self._pass_time(100_000)

    def _true_routes(self) -> None:
        """What Alice and Mallory say about themselves, every other second."""
        if self._substrate != "dcs":
            for each in (ALICE.node_id, MALLORY.node_id):
                update = wire.RouteUpdate(((each, 2 * (self._now_us // 1_000), 1),))
                self._handle(Received(each, update))
            self._routes_told_us = self._now_us

    def _forge_route(self) -> None:
        """Mallory is the best way to Alice, or Alice is gone."""
        if self._now_us - self._routes_told_us > 2_000_000:
            self._true_routes()
        self.tried["forge_route"] += 1
        now = 2 * (self._now_us // 1_000)
        sequence = self._rng.choice((now, 2**61, 2**62 - 4)) + self._rng.randrange(5)
        sequence += self._rng.choice((0, 2, 1_000, 10**6, 10**9))
        entry = ALICE.node_id, min(sequence, 2**62 - 1), self._rng.choice((1, 2, 255))
        update = wire.RouteUpdate(((MALLORY.node_id, now, 1), entry))
        self._handle(Received(MALLORY.node_id, update))
        self._check_route()

    def _check_route(self) -> None:
        assert isinstance(self.node, RoutedNode)
        assert isinstance(self.node.routing, Dsdv)
        assert self.node.routing.next_hop(ALICE.node_id) == ALICE.node_id

    def _own_delete(self) -> tuple[Key, bytes]:
        key = Key(ObjectId(f"m{self._next()}"), MALLORY.node_id)
        return key, SIGNERS[MALLORY].sign(DeleteRecord(key))

    def _forge_delete(self) -> wire.Message:
        record = DeleteRecord(KEPT)
        if self._rng.random() < 0.1:
            return wire.DeleteObject(self._next(), KEPT)
        return wire.SignedDelete(self._next(), KEPT, self._proof(record))

    def _forge_stop(self) -> wire.Message:
        if self._rng.random() < 0.1:
            return wire.StopSubscription(self._next(), STANDING)
        return wire.SignedStop(self._next(), STANDING, self._proof(UnsubscribeRecord(STANDING)))

    def _forge_publish(self) -> wire.Message:
        key = Key(ObjectId(f"forged{self._rng.randrange(50)}"), ALICE.node_id)
        metadata = self._rng.choice([a_photo(key, MALLORY), replace(self.kept, tags=("save",))])
        if self._rng.random() < 0.5:
            draft = make_metadata(key, b"pixels", ["goal"], NOW_US)
            metadata = replace(draft, digest_and_proof=draft.digest + self._proof(draft))
        return self._publishing(metadata)

    def _forge_subscription(self) -> wire.Message:
        key = SubscriptionKey(SubscriptionId(f"forged{self._rng.randrange(50)}"), ALICE.node_id)
        subscription = replace(self.standing, key=key)
        return self._subscribing(subscription, a_location(NOW_US))

    def _revive_object(self) -> wire.Message:
        return self._publishing(self.deleted)

    def _revive_subscription(self) -> wire.Message:
        return self._subscribing(self.ended, a_location(NOW_US))

    def _forge_answer(self) -> wire.Message:
        request = self._rng.getrandbits(8)
        answers = [wire.Done(request), wire.ReliableAck(request), wire.Refused(request, "gone", "")]
        code = self._rng.randbytes(8)
        content = bytes.fromhex("9210") + bytes([request & 0x7F])
        answers.append(wire.Authenticated(ALICE.public_key, code, content))  # type: ignore[arg-type]
        return self._rng.choice(answers)

    def _forge_place(self) -> wire.Message:
        at_us = self._now_us + self._rng.randrange(1_000)
        since = SignedInstant(at_us, self._proof(LocationRecord(ALICE.node_id, HERE, at_us)))
        location = SignedLocation(HERE, since)
        if self._rng.random() < 0.5:
            return cell_wire.SignedLocationUpdate(self._next(), (STANDING.sid,), (), location)
        return wire.LocatedSubscription(self._next(), self.standing, 20, location)

    def _forge_state(self) -> wire.Message:
        """The state of the cell, with what was deleted and ended, and false tombstones."""
        removed = SignedInstant(self._now_us, self._proof(DeleteRecord(KEPT)))
        key = f"{KEPT}", f"{Key(ObjectId(STANDING.sid), ALICE.node_id)}"
        state = cell_wire.CellState(
            self._next(),
            0,
            1,
            (IndexedMetadata(self.deleted, (Replica(HERE),)),),
            (CellSubscription(self.ended, HERE, (HERE,), a_location(NOW_US).since),),
            (TombstoneRecord(key[0], "deleted", removed),),
            (TombstoneRecord(key[1], "deleted", removed),),
        )
        match self._rng.randrange(4):
            case 0:
                return cell_wire.TransferState(self._next(), HERE, state)
            case 1:
                return cell_wire.BackupState(self._next(), HERE, 2, state)
            case 2:
                return cell_wire.ReindexObjects(self._next(), state.objects)
        return state

    # The node

    def _own_sids(self) -> tuple[SubscriptionId, ...]:
        return tuple(own.sid for own in unwrap_node(self.node).subscriber.active_subscriptions())

    def _hear(self, message: wire.Message, by: Identity = ALICE) -> None:
        """The node receives a message in somebody's name, from Mallory's address or from it."""
        origin, to = by.node_id, NODE.node_id
        packet: wire.Message = wire.Packet(origin, to, 0, message)
        if self._substrate == "ls" and isinstance(
            message, wire.StartSubscription | wire.StopSubscription | wire.DeleteObject
        ):
            packet = wire.Flooded(origin, self._next(), 0, message)
        elif self._substrate == "dcs":
            begun = bool(self.tried)
            personal = isinstance(message, cell_wire.CellState) or self._rng.random() < 0.1 * begun
            target = CellTarget(HERE, to if personal else None)
            packet = wire.CellPacket(origin, HERE, self._next(), 0, (target,), message)
        sender = self._rng.choice([MALLORY, ALICE]).node_id
        self._handle(Received(sender, packet))

    def _next(self) -> int:
        self._number += 1
        return self._number

    def _handle(self, event: Input) -> list[Action]:
        actions: list[Action] = self.node.handle(event, self._now_us)
        for action in actions:
            if isinstance(action, Emit):
                self.told.append(action.event)
            elif isinstance(action, SetTimer):
                self._timers[action.timer] = action.at_us
        return actions

    def _pass_time(self, by_us: int) -> None:
        self._now_us += by_us
        due = [timer for timer, at_us in self._timers.items() if at_us <= self._now_us]
        for timer in due:
            del self._timers[timer]
            self._handle(Fired(timer))  # type: ignore[arg-type]

    def check(self) -> None:
        """Asserts that nothing of Alice's is other than she said."""
        inner = unwrap_node(self.node)
        broker = inner.index.broker if isinstance(inner, DcsNode) else inner.broker  # type: ignore[union-attr]
        assert broker is not None
        theirs = {
            each.key: each for each in broker.catalogue.history if each.owner == ALICE.node_id
        }
        if self._substrate == "ls":
            events = [one for one in self.told if isinstance(one, asked.NotificationEvent)]
            keys = [one.notification.key for one in events]
            assert sorted(keys) == sorted([KEPT, DELETED]), "each once, and no other"
        else:
            assert theirs == {KEPT: self.kept}
        assert broker.is_known(STANDING)
        assert broker.is_cancelled(ENDED)
        assert broker.subscription_count == 1 + (self._substrate == "ls")
        if isinstance(inner, DcsNode):
            [standing] = inner.index.cell_subscriptions()
            assert standing.located == a_location(NOW_US).since
        self.node.check()
