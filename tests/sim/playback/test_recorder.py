"""S17: a run is recorded, read back, and gives the same bytes every time."""

from __future__ import annotations

import hashlib
import io

import msgspec
import pytest

from tests.hashing import printed
from tests.sim.faults.faulty_networks import ALICE, BOB, CAROL, MS, NAMES, START_US, Village
from thyme.map.recording import (
    FaultEvent,
    MessageDroppedEvent,
    MessageReceivedEvent,
    MessageSentEvent,
    MoveEvent,
    PowerEvent,
    RecordedEvent,
    Recorder,
    Recording,
)
from thyme.model.errors import InputError
from thyme.protocol.messages.replies import Done
from thyme.sim.faults.schedule import Crash, Fault, Heal, LossBurst, Partition, Restart
from thyme.sim.mobility.paths import pause_leg, straight_leg
from thyme.sim.networks.wireless_network import WirelessNetwork
from thyme.sim.radio.radio import RadioConfig
from thyme.sim.radio.unit_disk import UnitDisk
from thyme.wire.codec import size_of

FAULTS: list[Fault] = [
    Partition(100 * MS, ((ALICE,), (BOB, CAROL))),
    Heal(200 * MS),
    LossBurst(200 * MS, 300 * MS, 0.5),
    Crash(400 * MS, BOB),
    Restart(600 * MS, BOB),
]
GOES = straight_leg(50 * MS, (0.0, 0.0), (2.0, 0.0), 4.0)
PATH = [
    pause_leg(0, 50 * MS, (0.0, 0.0)),
    GOES,
    pause_leg(GOES.end_us, GOES.end_us + MS, (2.0, 0.0)),
]


def recorded(seed: int = 1) -> bytes:
    file = io.BytesIO()
    places = {name: (10.0 * number + 1 / 3, 0.0) for number, name in enumerate(NAMES)}
    world = WirelessNetwork(
        places,
        seed=seed,
        start_us=START_US,
        config=RadioConfig(unit_disk=UnitDisk()),
        paths={NAMES[ALICE]: PATH},
        recorder=Recorder(file),
    )
    village = Village(world, FAULTS, to={ALICE: BOB}, on_fault=world.record_fault)
    village.run(700)
    return file.getvalue()


def events(recording: Recording) -> list[RecordedEvent]:
    return list(recording)


def test_s17_a_recording_says_who_was_there_and_where() -> None:
    recording = Recording(recorded().splitlines())
    header = recording.header
    assert header.nodes == tuple(name.hex() for name in NAMES)
    assert header.places[1] == (10.33, 0.0)
    assert header.start_us == START_US
    assert header.range_m == UnitDisk().range_m
    assert sum(1 for _ in recording) > 500


def test_s17_who_sent_what_to_whom_and_who_heard_it() -> None:
    happened = events(Recording(recorded().splitlines()))
    sent = {event.message_id: event for event in happened if isinstance(event, MessageSentEvent)}
    heard = [event for event in happened if isinstance(event, MessageReceivedEvent)]
    first = sent[1]
    assert (first.at_us, first.node, first.to, first.kind, first.bytes) == (
        10 * MS, ALICE, BOB, "Done", size_of(Done(0)),
    )  # fmt: skip
    [arrival] = [event for event in heard if event.message_id == 1]
    assert arrival.nodes == (BOB,)
    assert 0 < arrival.at_us - first.at_us < MS
    to_all = sent[2]
    assert (to_all.node, to_all.to) == (BOB, None)
    [arrival] = [event for event in heard if event.message_id == 2]
    assert arrival.nodes == (ALICE, CAROL, 3)
    gave_up = [
        sent[event.message_id] for event in happened if isinstance(event, MessageDroppedEvent)
    ]
    assert len(gave_up) > 5
    assert {(event.node, event.to) for event in gave_up} == {(ALICE, BOB)}


def test_s17_who_was_up_and_which_faults_occurred() -> None:
    recording = Recording(recorded().splitlines())
    switched, fault_events = [], []
    for event in recording:
        if isinstance(event, PowerEvent):
            switched.append((event.at_us, event.node, event.on))
            assert (event.node in recording.up) is event.on
        if isinstance(event, FaultEvent):
            fault_events.append((event.at_us, msgspec.convert(event.fault, Fault), event.begins))
    assert switched[4:] == [(400 * MS, BOB, False), (600 * MS, BOB, True)]
    assert fault_events == [
        (100 * MS, FAULTS[0], True),
        (200 * MS, FAULTS[1], True),
        (200 * MS, FAULTS[2], True),
        (300 * MS, FAULTS[2], False),
        (400 * MS, FAULTS[3], True),
        (600 * MS, FAULTS[4], True),
    ]


def test_s17_where_a_node_is_follows_from_the_legs() -> None:
    recording = Recording(recorded().splitlines())
    seen = []
    for event in recording:
        if isinstance(event, MessageReceivedEvent) and ALICE in event.nodes:
            seen.append((event.at_us, recording.position_of(ALICE, event.at_us)[0]))
        if isinstance(event, MoveEvent):
            assert event.node == ALICE
    assert len(seen) > 100
    for at_us, x in seen:
        assert x == pytest.approx(GOES.position_at(at_us)[0])
    assert recording.position_of(BOB, 0) == (10.33, 0.0)


def test_s17_the_same_seed_gives_the_same_bytes_whatever_the_hash_seed() -> None:
    assert recorded(1) != recorded(2)
    program = (
        f"import hashlib; from {__name__} import recorded;"
        "print(hashlib.sha256(recorded(1)).hexdigest())"
    )
    [told] = printed(program)
    assert told.decode().strip() == hashlib.sha256(recorded(1)).hexdigest()


def test_s17_recording_a_run_does_not_change_it() -> None:
    def frames(recorder: Recorder | None) -> tuple[int, int]:
        places = {name: (10.0 * number, 0.0) for number, name in enumerate(NAMES)}
        world = WirelessNetwork(places, seed=1, start_us=START_US, recorder=recorder)
        Village(world, FAULTS).run(700)
        return world.radio.frames, world.kernel.events_processed

    assert frames(None) == frames(Recorder(io.BytesIO()))


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (b"", "line 1"),
        (b"{}", "line 1"),
        (
            b'{"recording":2,"start_us":0,"nodes":[],"places":[],"range_m":1}',
            "version 1 can be read, not of 2",
        ),
        (b'{"recording":1,"start_us":0,"nodes":[],"places":[],"range_m":1}\n["tx",1', "line 2"),
        (b'{"recording":1,"start_us":0,"nodes":[],"places":[],"range_m":1}\n["what",1]', "line 2"),
        (b'{"recording":1,"start_us":0,"nodes":[],"places":[],"range_m":1}\n\xff', "line 2"),
    ],
)
def test_s17_a_damaged_recording_is_refused_by_line(damage: bytes, words: str) -> None:
    with pytest.raises(InputError, match=words):
        events(Recording(damage.splitlines()))
