"""B12: small worlds full of trouble come out clean, and what is wrong does not go unseen."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from msgspec.structs import replace

from thyme.model.frames import ALWAYS, SECOND_US, TimeFrame
from thyme.model.ids import Key, NodeId, ObjectId, SubscriptionId
from thyme.model.metadata import Metadata, describe
from thyme.model.streams import stream
from thyme.model.subscriptions import Notification
from thyme.model.tags import as_tags
from thyme.protocol import requests as asked
from thyme.protocol.node import Action, Asked, Input
from thyme.protocol.requests import Begun, Failed, Finished, Found, Notified
from thyme.sim import soak as soaking
from thyme.sim.faults import Crash, Heal, Leave, LossBurst, Memory, Partition, Restart
from thyme.sim.scenario import Profile, Substrate
from thyme.sim.soak import soak
from thyme.sim.soak_faults import Mercy, draw_faults, draw_walks
from thyme.sim.soak_people import SPREADS_US, People
from thyme.substrates.es import EsNode

ANN, BEN = NodeId(b"ann"), NodeId(b"ben")
SID = SubscriptionId("the sid")
PLACES = [(10.0 * number, 0.0) for number in range(12)]


@pytest.mark.parametrize("profile", Profile)
@pytest.mark.parametrize("substrate", [Substrate.ES, Substrate.LS])
def test_m24_worlds_of_es_and_ls_come_out_clean(substrate: Substrate, profile: Profile) -> None:
    verdict = soak(0, substrate, profile)

    assert verdict.violations == ()
    assert verdict.told > 0
    assert verdict.ended["Insert ok"] > 10


@pytest.mark.parametrize(("seed", "profile"), [(0, Profile.PAPER), (18, Profile.ROBUST)])
def test_m24_worlds_of_dcs_come_out_clean(seed: int, profile: Profile) -> None:
    """In the second, a node in a new place was told of the past before its subscription began."""
    assert soak(seed, Substrate.DCS, profile).violations == ()


def test_a_seed_gives_the_same_world_again() -> None:
    assert soak(3, Substrate.ES, Profile.ROBUST) == soak(3, Substrate.ES, Profile.ROBUST)
    assert soak(3, Substrate.ES, Profile.ROBUST) != soak(4, Substrate.ES, Profile.ROBUST)


def test_a_node_that_falls_over_is_a_violation(monkeypatch: pytest.MonkeyPatch) -> None:
    handle = EsNode.handle

    def stumble(self: EsNode, event: Input, now_us: int) -> list[Action]:
        if isinstance(event, Asked) and now_us > 50 * SECOND_US:
            raise IndexError("that was one too many")
        return handle(self, event, now_us)

    monkeypatch.setattr(EsNode, "handle", stumble)

    [violation] = soak(0, Substrate.ES, Profile.PAPER).violations

    assert "broken" in violation
    assert "that was one too many" in violation


def test_an_acknowledged_object_that_is_gone_is_a_violation(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Searches that leave everything out but the newest."""

    class Forgetful(EsNode):
        def handle(self, event: Input, now_us: int) -> list[Action]:
            if isinstance(event, Asked) and isinstance(event.request, asked.Search):
                event = Asked(replace(event.request, count=1))
            return super().handle(event, now_us)

    monkeypatch.setattr(soaking, "EsNode", Forgetful)

    violations = soak(0, Substrate.ES, Profile.PAPER).violations

    assert violations
    assert all(": lost: " in violation for violation in violations)


# The judge


class Still:
    """Air in which nothing is heard but what the test says."""

    def __init__(self) -> None:
        self.now_us = 100 * SECOND_US
        self.asks: list[asked.Request] = []

    def ask(self, node_id: NodeId, request: asked.Request) -> None:
        self.asks.append(request)

    @property
    def last(self) -> int:
        numbers = [getattr(request, "ask", 0) for request in self.asks]
        return max(number for number in numbers if isinstance(number, int))


class Village:
    """Ann, who has inserted, and Ben, who has subscribed."""

    def __init__(self, query: str = "goal", frame: TimeFrame = ALWAYS) -> None:
        self.air = Still()
        self.people = People(self.air, [ANN, BEN], stream(0, "people"))
        self.key = self.people.insert(ANN, list(as_tags(["goal", "eder"])))
        self.people.on_told(ANN, Finished(self.air.last, self.key))
        self.people.subscribe(BEN, query, frame)
        self.people.on_told(BEN, Finished(self.air.last, Begun(SID, 0)))

    def metadata(self) -> Metadata:
        thing = self.people.things[self.key]
        return describe(self.key, thing.data, thing.tags, self.air.now_us)

    def notify(self, metadata: Metadata | None = None, to: NodeId = BEN) -> None:
        note = Notification(SID, metadata or self.metadata(), self.air.now_us, past=False)
        self.people.on_told(to, Notified(note))

    def delete(self) -> None:
        self.people.ask(ANN, asked.Delete(ask=1_000, key=self.key))
        self.people.on_told(ANN, Finished(1_000, None))

    def search(self) -> None:
        number = self.people.search(BEN, "goal")
        note = Notification(SubscriptionId("search"), self.metadata(), self.air.now_us, past=True)
        self.people.on_told(BEN, Finished(number, Found((note,), 1)))

    def elapse(self, time_us: int) -> None:
        self.air.now_us += time_us

    @property
    def wrong(self) -> list[str]:
        return [violation.split(": ")[1] for violation in self.people.violations]


def stranger(village: Village) -> None:
    thing = village.people.things[village.key]
    village.notify(describe(Key(ObjectId("other"), ANN), thing.data, thing.tags, 1))


def retagged(village: Village) -> None:
    thing = village.people.things[village.key]
    village.notify(describe(village.key, thing.data, ["goal"], village.air.now_us))


def twice(village: Village) -> None:
    village.notify()
    village.notify()


def to_somebody_else(village: Village) -> None:
    village.notify(to=ANN)


def after_the_end(village: Village) -> None:
    village.people.ask(BEN, asked.Unsubscribe(ask=1_001, sid=SID))
    village.people.on_told(BEN, Finished(1_001, None))
    village.notify()


def found_after_delete(village: Village) -> None:
    village.delete()
    village.elapse(SPREADS_US + 1)
    village.search()


def answered_again(village: Village) -> None:
    village.people.on_told(BEN, Finished(2, None))


def corrupt(village: Village) -> None:
    village.people.retrieve(BEN, village.metadata())
    village.people.on_told(BEN, Failed(village.air.last, "corrupt", ""))


def other_bytes(village: Village) -> None:
    village.people.retrieve(BEN, village.metadata())
    village.people.on_told(BEN, Finished(village.air.last, b"something else"))


@pytest.mark.parametrize(
    ("happens", "wrong"),
    [
        (stranger, ["spurious"]),
        (retagged, ["spurious"]),
        (twice, ["notified twice"]),
        (to_somebody_else, ["spurious"]),
        (after_the_end, ["spurious"]),
        (found_after_delete, ["resurrection"]),
        (answered_again, ["answered twice"]),
        (corrupt, ["unexpected failure"]),
        (other_bytes, ["wrong bytes"]),
    ],
)
def test_m16_m23_d15_what_people_are_told_wrongly_is_noticed(
    happens: Callable[[Village], None], wrong: list[str]
) -> None:
    village = Village()

    happens(village)

    assert village.wrong == wrong


def test_m23_what_does_not_match_or_is_outside_the_frame_is_noticed() -> None:
    unmatched, outside = Village("save"), Village("goal", TimeFrame(0, 1))

    unmatched.notify()
    outside.notify()

    assert unmatched.wrong == outside.wrong == ["spurious"]


def test_what_is_right_is_no_violation() -> None:
    """News that was on its way when its object was deleted may still come (M14)."""
    village = Village()
    village.search()
    village.delete()
    village.notify()

    assert village.wrong == []
    assert village.people.waiting == {ANN: {}, BEN: {}}


def test_b1_what_was_acknowledged_just_before_a_memory_was_lost_may_be_lost_with_it() -> None:
    village = Village()
    village.delete()
    village.people.losses_us = [village.air.now_us + SECOND_US]
    village.elapse(10 * SECOND_US)
    village.search()

    assert village.wrong == []
    assert village.people.is_safe(village.air.now_us)


# The weather


def test_s7_s8_what_mercy_spares_does_not_happen() -> None:
    kind = Mercy(spared=frozenset([1, 2]), loses_messages=False, divides=False)
    for seed in range(30):
        for fault in draw_faults(stream(seed), PLACES, 0, 60 * SECOND_US, kind):
            assert not isinstance(fault, LossBurst | Partition | Heal)
            assert not (isinstance(fault, Crash) and fault.node in (1, 2))


def test_s7_s8_every_kind_of_trouble_comes_up_and_ends_in_time() -> None:
    kinds = set()
    for seed in range(30):
        for fault in draw_faults(stream(seed), PLACES, SECOND_US, 60 * SECOND_US, Mercy()):
            kinds.add(type(fault).__name__)
            assert SECOND_US <= fault.at_us <= 60 * SECOND_US
    assert kinds == {
        "Crash", "Leave", "Restart", "Partition", "Heal", "LossBurst", "Duplication", "Reordering",
        "ClockSkew",
    }  # fmt: skip


def test_b1_memory_may_be_lost_by_one_device_at_a_time_after_everything_else() -> None:
    mercy = Mercy(one_by_one=True)
    for seed in range(30):
        faults = draw_faults(stream(seed), PLACES, 0, 120 * SECOND_US, mercy)
        losses = [f for f in faults if isinstance(f, Crash) and f.memory is Memory.LOST]
        assert [loss.at_us for loss in losses] == [70 * SECOND_US, 90 * SECOND_US, 110 * SECOND_US]
        assert all(
            fault.at_us <= 60 * SECOND_US
            for fault in faults
            if fault not in losses and not isinstance(fault, Restart)
        )
        assert sum(isinstance(fault, Restart) for fault in faults) == sum(
            isinstance(fault, Crash | Leave) for fault in faults
        )


def test_d20_walks_lead_step_by_step_to_where_nodes_may_stay() -> None:
    mercy = Mercy(spared=frozenset([0]), destinations=((5.0, 5.0),))
    walked = 0
    for seed in range(10):
        steps = draw_walks(stream(seed), PLACES, (120.0, 40.0), 0, 90 * SECOND_US, mercy)
        last = {step.node: step.place for step in steps}
        assert 0 not in last
        assert set(last.values()) <= {(5.0, 5.0)}
        assert all(0 < step.at_us < 90 * SECOND_US for step in steps)
        walked += len(last)
    assert walked > 10
