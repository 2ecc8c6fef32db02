"""B12: small worlds with many faults have no violations, and violations are detected."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from msgspec.structs import replace

from thyme.model.ids import Key, NodeId, ObjectId, SubscriptionId
from thyme.model.metadata import Metadata, make_metadata
from thyme.model.rng import derive_rng
from thyme.model.subscriptions import Notification
from thyme.model.tags import as_tags
from thyme.model.time_frames import ALWAYS, SECOND_US, TimeFrame
from thyme.protocol import app_interface as asked
from thyme.protocol.app_interface import (
    Failed,
    Finished,
    NotificationEvent,
    SearchResult,
    SubscriptionStarted,
)
from thyme.protocol.node import Action, AppRequested, Input
from thyme.sim.faults.schedule import (
    Crash,
    CrashMemory,
    Heal,
    Leave,
    LossBurst,
    Partition,
    Restart,
    make_schedule,
)
from thyme.sim.mobility.paths import position_at
from thyme.sim.scenario import Profile, Substrate
from thyme.substrates.es import EsNode
from thyme.testing.soak import substrate_nodes
from thyme.testing.soak.faults import FaultLimits, MoveStep, draw_faults, draw_moves
from thyme.testing.soak.networks import SoakMedium, make_path
from thyme.testing.soak.runner import run_soak
from thyme.testing.soak.shrinking import Omitted, SoakParts, group_faults, shrink
from thyme.testing.soak.workload import DELETE_SPREAD_US, RandomWorkload

ANN, BEN = NodeId(b"ann"), NodeId(b"ben")
SID = SubscriptionId("the sid")
PLACES = [(10.0 * number, 0.0) for number in range(12)]


@pytest.mark.parametrize("profile", Profile)
@pytest.mark.parametrize("substrate", [Substrate.ES, Substrate.LS])
def test_m24_worlds_of_es_and_ls_come_out_clean(substrate: Substrate, profile: Profile) -> None:
    verdict = run_soak(0, substrate, profile)

    assert verdict.violations == ()
    assert verdict.notifications > 0
    assert verdict.ended["Insert ok"] > 10


@pytest.mark.parametrize(("seed", "profile"), [(0, Profile.PAPER), (18, Profile.ROBUST)])
def test_m24_worlds_of_dcs_come_out_clean(seed: int, profile: Profile) -> None:
    """In the second, a node in a new cell got history before its subscription began."""
    assert run_soak(seed, Substrate.DCS, profile).violations == ()


@pytest.mark.parametrize("seed", [70287, 80232, 80340, 80384, 80472, 2369915])
def test_d27_worlds_in_which_an_object_was_lost_while_it_had_replicas(seed: int) -> None:
    """In 80472, nobody told of an object that its owner had lost and got back; in 80340, nodes of a
    cell listed different replicas; in 2369915, a cell acknowledged its own backup."""
    assert run_soak(seed, Substrate.DCS, Profile.ROBUST).violations == ()


def test_d15_a_world_in_which_a_delete_was_interrupted() -> None:
    """Its owner failed, and took the delete for done when it was asked again."""
    assert run_soak(8100089, Substrate.DCS, Profile.ROBUST).violations == ()


@pytest.mark.parametrize("substrate", [Substrate.ES, Substrate.LS, Substrate.DCS])
def test_b5_a_world_with_a_hostile_member_comes_out_clean(substrate: Substrate) -> None:
    """It forges and replays messages; nothing is lost, and nothing comes back."""
    verdict = run_soak(1, substrate, Profile.ROBUST, hostile=True)
    assert verdict.violations == ()
    assert verdict.hostile_messages > 10


def test_a_seed_gives_the_same_world_again() -> None:
    assert run_soak(3, Substrate.ES, Profile.ROBUST) == run_soak(3, Substrate.ES, Profile.ROBUST)
    assert run_soak(3, Substrate.ES, Profile.ROBUST) != run_soak(4, Substrate.ES, Profile.ROBUST)


def test_a_node_that_falls_over_is_a_violation(monkeypatch: pytest.MonkeyPatch) -> None:
    handle = EsNode.handle

    def stumble(self: EsNode, event: Input, now_us: int) -> list[Action]:
        if isinstance(event, AppRequested) and now_us > 50 * SECOND_US:
            raise IndexError("that was one too many")
        return handle(self, event, now_us)

    monkeypatch.setattr(EsNode, "handle", stumble)

    [violation] = run_soak(0, Substrate.ES, Profile.PAPER).violations

    assert "broken" in violation
    assert "that was one too many" in violation


def test_an_acknowledged_object_that_is_gone_is_a_violation(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Searches that leave out everything but the newest."""

    class Forgetful(EsNode):
        def handle(self, event: Input, now_us: int) -> list[Action]:
            if isinstance(event, AppRequested) and isinstance(event.request, asked.Search):
                event = AppRequested(replace(event.request, count=1))
            return super().handle(event, now_us)

    monkeypatch.setattr(substrate_nodes, "EsNode", Forgetful)

    violations = run_soak(0, Substrate.ES, Profile.PAPER).violations

    assert violations
    assert all(": lost: " in violation for violation in violations)


def test_b12_a_world_of_dcs_on_the_radio_comes_out_clean() -> None:
    verdict = run_soak(1, Substrate.DCS, Profile.ROBUST, medium=SoakMedium.RADIO)

    assert verdict.violations == ()
    assert verdict.steps > 0


def test_s6_on_the_radio_a_node_takes_the_same_steps() -> None:
    steps = [MoveStep(5 * SECOND_US, 0, (4.0, 0.0)), MoveStep(9 * SECOND_US, 0, (8.0, 0.0))]
    path = make_path((0.0, 0.0), steps)

    assert [position_at(path, at_s * SECOND_US) for at_s in (0, 4, 5, 8, 9, 20)] == [
        *((0.0, 0.0), (0.0, 0.0), (4.0, 0.0), (4.0, 0.0), (8.0, 0.0), (8.0, 0.0)),
    ]


# Shrinking


def test_b12_a_failing_world_is_shrunk_to_the_parts_that_fail() -> None:
    """Fails with node 3, fault 2 and operation 7; movements do not matter."""

    def run(omitted: Omitted) -> list[str]:
        needed = (3 not in omitted.nodes, 2 not in omitted.faults, 7 not in omitted.operations)
        return ["9.000 s: lost: o1"] if all(needed) else ["9.000 s: spurious: o2"]

    omitted = shrink(SoakParts(20, 5, 6, 6), ["8.000 s: lost: o1"], run)

    assert omitted == Omitted(
        nodes=frozenset(range(6)) - {3},
        faults=frozenset(range(5)) - {2},
        moves=frozenset(range(6)),
        operations=frozenset(range(20)) - {7},
    )


def test_b12_a_shorter_world_is_part_of_the_whole_one() -> None:
    whole = run_soak(3, Substrate.DCS, Profile.ROBUST)
    faults = frozenset(range(whole.faults // 2))
    shorter = run_soak(
        3, Substrate.DCS, Profile.ROBUST, Omitted(nodes=frozenset([0]), faults=faults)
    )

    assert shorter.nodes == whole.nodes - 1
    assert 0 < shorter.faults < whole.faults
    assert shorter.violations == ()


def test_b12_a_fault_and_its_end_are_left_out_together() -> None:
    """So every group of faults, and every choice of groups, is a valid schedule."""
    for seed in range(10):
        schedule = draw_faults(derive_rng(seed), PLACES, 0, 60 * SECOND_US, FaultLimits())
        groups = group_faults(schedule)
        assert make_schedule([fault for group in groups for fault in group], nodes=12) == schedule
        for number in range(len(groups)):
            rest = groups[:number] + groups[number + 1 :]
            make_schedule([fault for group in rest for fault in group], nodes=12)


# The checks


class Still:
    """A network that only records requests."""

    def __init__(self) -> None:
        self.now_us = 100 * SECOND_US
        self.asks: list[asked.AppRequest] = []

    def send_request(self, node_id: NodeId, request: asked.AppRequest) -> None:
        self.asks.append(request)

    @property
    def last(self) -> int:
        numbers = [getattr(request, "request_id", 0) for request in self.asks]
        return max(number for number in numbers if isinstance(number, int))


class Village:
    """Ann, who has inserted, and Ben, who has subscribed."""

    def __init__(self, query: str = "goal", frame: TimeFrame = ALWAYS) -> None:
        self.air = Still()
        self.people = RandomWorkload(self.air, [ANN, BEN], derive_rng(0, "people"))
        self.key = self.people.insert(ANN, list(as_tags(["goal", "eder"])))
        self.people.on_event(ANN, Finished(self.air.last, self.key))
        self.people.subscribe(BEN, query, frame)
        self.people.on_event(BEN, Finished(self.air.last, SubscriptionStarted(SID, 0)))

    def metadata(self) -> Metadata:
        thing = self.people.objects[self.key]
        return make_metadata(self.key, thing.data, thing.tags, self.air.now_us)

    def notify(self, metadata: Metadata | None = None, to: NodeId = BEN) -> None:
        note = Notification(SID, metadata or self.metadata(), self.air.now_us, from_history=False)
        self.people.on_event(to, NotificationEvent(note))

    def delete(self) -> None:
        self.people.send_request(ANN, asked.Delete(request_id=1_000, key=self.key))
        self.people.on_event(ANN, Finished(1_000, None))

    def search(self) -> None:
        number = self.people.search(BEN, "goal")
        note = Notification(
            SubscriptionId("search"), self.metadata(), self.air.now_us, from_history=True
        )
        self.people.on_event(BEN, Finished(number, SearchResult((note,), 1)))

    def elapse(self, time_us: int) -> None:
        self.air.now_us += time_us

    @property
    def wrong(self) -> list[str]:
        return [violation.split(": ")[1] for violation in self.people.violations]


def stranger(village: Village) -> None:
    thing = village.people.objects[village.key]
    village.notify(make_metadata(Key(ObjectId("other"), ANN), thing.data, thing.tags, 1))


def retagged(village: Village) -> None:
    thing = village.people.objects[village.key]
    village.notify(make_metadata(village.key, thing.data, ["goal"], village.air.now_us))


def twice(village: Village) -> None:
    village.notify()
    village.notify()


def to_somebody_else(village: Village) -> None:
    village.notify(to=ANN)


def after_the_end(village: Village) -> None:
    village.people.send_request(BEN, asked.Unsubscribe(request_id=1_001, sid=SID))
    village.people.on_event(BEN, Finished(1_001, None))
    village.notify()


def found_after_delete(village: Village) -> None:
    village.delete()
    village.elapse(DELETE_SPREAD_US + 1)
    village.search()


def answered_again(village: Village) -> None:
    village.people.on_event(BEN, Finished(2, None))


def corrupt(village: Village) -> None:
    village.people.retrieve(BEN, village.metadata())
    village.people.on_event(BEN, Failed(village.air.last, "corrupt", ""))


def other_bytes(village: Village) -> None:
    village.people.retrieve(BEN, village.metadata())
    village.people.on_event(BEN, Finished(village.air.last, b"something else"))


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
    """A notification in transit when its object was deleted may still arrive (M14)."""
    village = Village()
    village.search()
    village.delete()
    village.notify()

    assert village.wrong == []
    assert village.people.pending == {ANN: {}, BEN: {}}


def test_b1_what_was_acknowledged_just_before_a_memory_was_lost_may_be_lost_with_it() -> None:
    village = Village()
    village.delete()
    village.people.memory_losses_us = [village.air.now_us + SECOND_US]
    village.elapse(10 * SECOND_US)
    village.search()

    assert village.wrong == []
    assert village.people.is_durable(village.air.now_us)


# The faults


def test_s7_s8_what_mercy_spares_does_not_happen() -> None:
    kind = FaultLimits(always_up=frozenset([1, 2]), message_loss=False, partitions=False)
    for seed in range(30):
        for fault in draw_faults(derive_rng(seed), PLACES, 0, 60 * SECOND_US, kind):
            assert not isinstance(fault, LossBurst | Partition | Heal)
            assert not (isinstance(fault, Crash) and fault.node in (1, 2))


def test_s7_s8_every_kind_of_trouble_comes_up_and_ends_in_time() -> None:
    kinds = set()
    for seed in range(30):
        for fault in draw_faults(
            derive_rng(seed), PLACES, SECOND_US, 60 * SECOND_US, FaultLimits()
        ):
            kinds.add(type(fault).__name__)
            assert SECOND_US <= fault.at_us <= 60 * SECOND_US
    assert kinds == {
        "Crash", "Leave", "Restart", "Partition", "Heal", "LossBurst", "Duplication", "Reordering",
        "ClockSkew",
    }  # fmt: skip


def test_b1_memory_may_be_lost_by_one_device_at_a_time_after_everything_else() -> None:
    mercy = FaultLimits(separate_memory_losses=True)
    for seed in range(30):
        faults = draw_faults(derive_rng(seed), PLACES, 0, 120 * SECOND_US, mercy)
        losses = [f for f in faults if isinstance(f, Crash) and f.memory is CrashMemory.LOST]
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
    mercy = FaultLimits(always_up=frozenset([0]), destinations=((5.0, 5.0),))
    walked = 0
    for seed in range(10):
        steps = draw_moves(derive_rng(seed), PLACES, (120.0, 40.0), 0, 90 * SECOND_US, mercy)
        last = {step.node: step.position for step in steps}
        assert 0 not in last
        assert set(last.values()) <= {(5.0, 5.0)}
        assert all(0 < step.at_us < 90 * SECOND_US for step in steps)
        walked += len(last)
    assert walked > 10


def test_d27_a_distant_owner_is_asked_if_closer_replicas_are_gone() -> None:
    """The nodes that the list named in the reader's own cell had left it or lost the object, and
    took all attempts; the owner, who had moved to another cell, was in the list, too."""
    assert run_soak(7061393, Substrate.DCS, Profile.ROBUST).violations == ()
