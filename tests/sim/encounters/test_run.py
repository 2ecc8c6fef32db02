"""Runs of encounter scenarios: deliveries, traffic, broken contacts (U8, U9, C44)."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from msgspec.structs import replace

from tests.sim.runs import delete, insert, subscribe, trace, unsubscribe
from thyme.sim.encounters.contact_files import ContactTrace, read_contacts
from thyme.sim.encounters.contacts import Contact
from thyme.sim.encounters.exchange_times import ExchangeTimes
from thyme.sim.encounters.run import EncounterSummary, run_encounters
from thyme.sim.encounters.scenario import (
    HOUR_US,
    EncounterKind,
    EncounterProtocol,
    EncounterScenario,
    EncounterScenarioError,
    make_trace,
    topics_of_trace,
)
from thyme.substrates.encounters.config import ExchangeMode
from thyme.substrates.encounters.memory_config import WhenFull
from thyme.traces.operations import SubscribeOperation

SECOND_US = 1_000_000
PROTOCOLS = list(EncounterProtocol)
SMALL = EncounterScenario(
    protocol=EncounterProtocol.MOBUSER, nodes=30, duration_us=HOUR_US, side_m=80.0
)


def without_wall_time(summary: EncounterSummary) -> bytes:
    return msgspec.json.encode(replace(summary, wall_s=0.0))


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_the_same_seed_gives_the_same_bytes(protocol: EncounterProtocol) -> None:
    scenario = replace(SMALL, protocol=protocol)

    assert without_wall_time(run_encounters(scenario)) == without_wall_time(
        run_encounters(scenario)
    )
    assert without_wall_time(run_encounters(scenario)) != without_wall_time(
        run_encounters(replace(scenario, seed=2))
    )


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_u8_few_events_in_a_crowd_reach_all_subscribers(protocol: EncounterProtocol) -> None:
    summary = run_encounters(replace(SMALL, protocol=protocol))

    assert summary.events.published == 3
    assert summary.events.due == 3 * 29
    assert summary.events.reliability is not None
    assert summary.events.reliability > 0.9
    assert summary.traffic.bytes == sum(summary.traffic.bytes_by_type.values())
    assert summary.timeline[-1][1] == summary.events.reliability


def test_u8_memories_smaller_than_the_events_hamper_rivals_and_not_mobuser() -> None:
    """C39 in small: more events than memory; MobUser well above MFPS ≈ RAPID."""
    crowded = replace(SMALL, publishers_share=0.5, memory_events=4)
    found = {
        protocol: run_encounters(replace(crowded, protocol=protocol)).events.reliability
        for protocol in PROTOCOLS
    }

    assert found["mobuser"] is not None
    assert found["mobuser"] > 2 * max(found["mfps"] or 0, found["rapid"] or 0)


def test_u7_with_replacement_the_rivals_do_not_stall() -> None:
    crowded = replace(SMALL, protocol=EncounterProtocol.MFPS, publishers_share=0.5, memory_events=4)
    refused = run_encounters(crowded).events
    replaced = run_encounters(replace(crowded, when_full=WhenFull.REPLACE)).events

    assert replaced.delivered > 2 * refused.delivered


def trace_of(*contacts: Contact) -> ContactTrace:
    nodes = 1 + max(contact.second for contact in contacts)
    return ContactTrace([str(number) for number in range(nodes)], list(contacts))


def recorded(nodes: int, hours: int = 1, **changes: object) -> EncounterScenario:
    return EncounterScenario(
        protocol=EncounterProtocol.MOBUSER,
        kind=EncounterKind.CONTACTS,
        nodes=nodes,
        duration_us=hours * HOUR_US,
        publishers_share=1.0,
        **changes,  # type: ignore[arg-type]
    )


def test_devices_in_contact_all_the_time_exchange_everything() -> None:
    summary = run_encounters(recorded(2), trace_of(Contact(0, HOUR_US, 0, 1)))

    assert summary.events.reliability == 1.0
    assert summary.contacts == 1
    assert summary.traffic.exchanges > 0


def test_c44_a_contact_shorter_than_an_exchange_moves_nothing() -> None:
    """An exchange takes 0.5 to 2 s; contacts of 0.4 s break it off, and senders are told."""
    flicker = [Contact(t * SECOND_US, t * SECOND_US + 400_000, 0, 1) for t in range(3_600)]
    summary = run_encounters(recorded(2, event_bytes=2_000), trace_of(*flicker))

    assert summary.events.delivered == 0
    assert summary.traffic.broken > 0


def test_c44_an_exchange_takes_from_half_a_second_to_two_seconds() -> None:
    times = ExchangeTimes()
    profile, one_event, memory = 60, 500, 20 * 500

    for events in (one_event, memory):
        took_us = 3 * times.message_us + times.airtime_us(profile) + 2 * times.airtime_us(events)
        assert 0.5e6 <= took_us <= 2e6


def test_events_travel_over_devices_that_never_meet() -> None:
    contacts = trace_of(
        Contact(600 * SECOND_US, 1_300 * SECOND_US, 0, 1),
        Contact(2_000 * SECOND_US, 2_700 * SECOND_US, 1, 2),
    )
    summary = run_encounters(recorded(3), contacts)

    assert summary.events.due == 6
    assert summary.events.delivered == 5  # only 2 → 0 has no path in time


def test_u9_areas_of_interest_have_six_nodes_with_areas_and_four_walkers() -> None:
    scenario = EncounterScenario(
        protocol=EncounterProtocol.MOBUSER,
        kind=EncounterKind.AREAS,
        nodes=10,
        side_m=120.0,
        duration_us=HOUR_US,
    )
    counts = make_trace(scenario).counts()
    summary = run_encounters(scenario)

    assert (counts["subscribe"], counts["insert"]) == (6, 12)
    assert summary.events.due == 24  # each area has three nodes
    assert (summary.events.reliability or 0) > 0.5


def test_u9_the_rarest_of_six_topics_has_the_given_probability() -> None:
    scenario = replace(SMALL, nodes=1_000, rare_probability=0.2)
    users = make_trace(scenario)
    queries = [each.query for each in users.operations if isinstance(each, SubscribeOperation)]
    rare = sum("topic0" in query for query in queries)

    assert len(queries) == 1_000
    assert 150 < rare < 250
    assert users.counts()["insert"] == rare
    assert len(topics_of_trace(users)) == 6


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_p3_the_users_may_come_from_a_trace(protocol: EncounterProtocol) -> None:
    """Frames, formulas, unsubscribes and deletes of a trace; deletes are refused and counted."""
    users = trace(
        3,
        subscribe(0, 1, "s1", "goal & !replay"),
        subscribe(0, 2, "s2", "goal", (0, 400)),
        insert(10, 0, "a", "goal"),
        insert(20, 0, "b", "goal replay"),
        delete(30, 0, "b"),
        unsubscribe(1_000, 1, "s1"),
        insert(1_100, 0, "c", "goal"),
    )
    contacts = trace_of(Contact(0, HOUR_US, 0, 1), Contact(0, HOUR_US, 0, 2))
    found = run_encounters(replace(recorded(3), protocol=protocol), contacts, trace=users)

    # To user 1, event a; to user 2, events a and b. Frames end 400 s after the start.
    assert (found.events.published, found.events.due) == (3, 3)
    assert found.events.delivered >= 1
    assert found.dropped["requests refused: unsupported"] == 1


def test_p3_a_trace_with_more_users_than_nodes_is_refused() -> None:
    with pytest.raises(EncounterScenarioError, match="the trace has 9 users"):
        run_encounters(replace(SMALL, nodes=8), trace=trace(9, insert(1, 8, "a", "goal")))


def test_u3_the_reconciled_exchange_delivers_as_much_with_fewer_bytes() -> None:
    whole = run_encounters(replace(SMALL, publishers_share=0.5))
    reconciled = run_encounters(
        replace(SMALL, publishers_share=0.5, exchange=ExchangeMode.RECONCILE)
    )

    assert reconciled.events.delivered >= 0.98 * whole.events.delivered
    assert reconciled.traffic.bytes < 0.6 * whole.traffic.bytes


def test_u3_a_contact_that_breaks_off_has_moved_the_most_useful() -> None:
    """Short contacts, large events: the paper's packet never arrives, metadata and bytes do."""
    contacts = [Contact(t * 11 * SECOND_US, (t * 11 + 8) * SECOND_US, 0, 1) for t in range(320)]
    users = trace(
        2,
        subscribe(0, 1, "s", "goal"),
        *(insert(1, 0, f"e{number}", "goal", size=60_000) for number in range(8)),
    )
    slow = ExchangeTimes(bits_per_second=400_000)
    found = {
        mode: run_encounters(
            replace(recorded(2), exchange=mode), trace_of(*contacts), trace=users, times=slow
        )
        for mode in (ExchangeMode.WHOLE, ExchangeMode.RECONCILE)
    }

    assert found[ExchangeMode.WHOLE].events.delivered == 0
    assert found[ExchangeMode.RECONCILE].events.delivered == 8


def test_a_generated_file_in_the_published_format_runs_through_all_protocols(
    tmp_path: Path,
) -> None:
    path = tmp_path / "tij_meeting.dat"
    path.write_text(
        "".join(
            f"{1_480_486_100 + 20 * step}\t{10 + step % 5}\t{10 + (step // 7 + 1 + step) % 5}\n"
            for step in range(500)
        )
    )
    contacts = read_contacts(path)
    scenario = recorded(contacts.nodes, hours=3)
    for protocol in PROTOCOLS:
        summary = run_encounters(replace(scenario, protocol=protocol), contacts)
        assert summary.contacts == len(contacts.contacts)
        assert summary.events.delivered > 0
        assert summary.dropped["contacts of a node with itself"] > 0


@pytest.mark.parametrize(
    "changes",
    [{"nodes": 1}, {"duration_us": 0}, {"side_m": 1.0}, {"event_bytes": -1}],
)
def test_impossible_scenarios_are_refused(changes: dict[str, object]) -> None:
    with pytest.raises(EncounterScenarioError):
        replace(SMALL, **changes)  # type: ignore[arg-type]


def test_recorded_contacts_need_a_trace() -> None:
    with pytest.raises(EncounterScenarioError, match="trace"):
        run_encounters(recorded(3))
