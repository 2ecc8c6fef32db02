"""The maps of several nodes become one: what one sent and another received is one flight."""

from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st

from thyme.map.hub import MapAbout, MapHub
from thyme.map.recording import (
    GapEvent,
    MessageReceivedEvent,
    MessageSentEvent,
    NodeEvent,
    PowerEvent,
    RecordedEvent,
    RecordingHeader,
    encode_line,
)
from thyme.map.stream_merger import HOLD_US, StreamMerger
from thyme.sim.playback.page_data import PlaybackData

IDS = ("aa", "bb", "cc")
LATER = HOLD_US * 2


class Network:
    """A merger of the streams of some devices, and the events that it publishes."""

    def __init__(self, *devices: int) -> None:
        hub = MapHub(MapAbout(title="a park"))
        self.found: list[RecordedEvent] = []
        publish = hub.publish

        def record(event: RecordedEvent) -> None:
            self.found.append(event)
            publish(event)

        hub.publish = record  # type: ignore[method-assign]
        self.merger = StreamMerger(hub)
        for device in devices:
            self.merger.add_device(device, (10.0 * device, 0.0))
            others = [name for name in IDS if name != IDS[device]]
            nodes = (IDS[device], *others)
            header = RecordingHeader(
                start_us=0, nodes=nodes, places=((0.0, 0.0),) * len(nodes), range_m=0.0
            )
            self.merger.add_line(device, encode_line(header))

    def tell(self, device: int, *events: list[object]) -> None:
        for event in events:
            self.merger.add_line(device, json.dumps(event).encode())

    def messages(self, now_us: int = LATER) -> list[RecordedEvent]:
        """Publishes what is held back; returns the messages and receipts."""
        self.merger.flush(now_us)
        kinds = (MessageSentEvent, MessageReceivedEvent)
        return [event for event in self.found if isinstance(event, kinds)]


def test_a_message_that_two_nodes_know_of_is_one_flight() -> None:
    network = Network(0, 1)
    network.tell(1, ["tx", 30, 1, 1, 0, "Done", 9], ["rx", 30, 1, [0]])  # bb received it from aa
    network.tell(0, ["tx", 20, 5, 0, 1, "Done", 9, False, ["photo"]])

    assert network.messages() == [
        MessageSentEvent(20, 1, 0, 1, "Done", 9, False, ("photo",)),
        MessageReceivedEvent(30, 1, (1,)),
    ]


def test_a_broadcast_has_several_receivers() -> None:
    network = Network(0, 1, 2)
    network.tell(0, ["tx", 20, 5, 0, None, "CellBeacon", 9])
    network.tell(1, ["tx", 31, 1, 1, None, "CellBeacon", 9], ["rx", 31, 1, [0]])
    network.tell(2, ["tx", 30, 1, 1, None, "CellBeacon", 9], ["rx", 30, 1, [0]])

    assert network.messages() == [
        MessageSentEvent(20, 1, 0, None, "CellBeacon", 9, False, ()),
        MessageReceivedEvent(30, 1, (2,)),
        MessageReceivedEvent(31, 1, (1,)),
    ]


def test_a_message_of_a_node_without_a_stream_is_known_from_its_receiver() -> None:
    network = Network(0)
    network.tell(0, ["tx", 20, 1, 2, 0, "Done", 9], ["rx", 20, 1, [0]])  # from cc

    assert network.messages() == [
        MessageSentEvent(20, 1, 2, 0, "Done", 9, False, ()),
        MessageReceivedEvent(20, 1, (0,)),
    ]


def test_a_receipt_of_a_message_that_was_sent_before_the_map_opened_is_left_out() -> None:
    network = Network(0, 1)
    network.tell(1, ["tx", 30, 1, 1, 0, "Done", 9], ["rx", 30, 1, [0]])

    assert network.messages() == []


def test_events_wait_until_all_streams_have_come() -> None:
    network = Network(0, 1)
    network.tell(0, ["ask", 50, 0, "Insert", []])

    network.merger.flush(HOLD_US + 49)
    before = len(network.found)
    network.tell(1, ["ask", 40, 0, "Retrieve", []])
    network.merger.flush(HOLD_US + 50)

    assert [event.at_us for event in network.found[before:]] == [40, 50]


def test_a_node_that_restarts_keeps_its_number_and_its_place() -> None:
    network = Network(0, 1)
    header = RecordingHeader(start_us=LATER, nodes=("aa",), places=((3.0, 3.0),), range_m=0.0)
    before = len(network.found)

    network.merger.end_stream(0, LATER)
    network.merger.add_line(0, encode_line(header))

    assert not any(isinstance(event, NodeEvent) for event in network.found[before:])
    switches = [event for event in network.found[before:] if isinstance(event, PowerEvent)]
    assert [event.on for event in switches] == [False, True]


MESSAGES = st.tuples(
    st.integers(0, 1), st.integers(0, 10**6), st.sampled_from(["tx", "rx", "ask", "gap", "near"])
)


@given(st.lists(MESSAGES, max_size=40))
def test_whatever_the_streams_tell_the_result_is_a_valid_recording(
    told: list[tuple[int, int, str]],
) -> None:
    network = Network(0, 1)
    for number, (device, at_us, kind) in enumerate(told, start=1):
        match kind:
            case "tx":
                network.tell(device, ["tx", at_us, number, 0, None, "Done", 3])
            case "rx":
                network.tell(device, ["tx", at_us, number, 1, 0, "Done", 3])
                network.tell(device, ["rx", at_us, number, [0]])
            case "ask":
                network.tell(device, ["ask", at_us, 0, "Insert", []])
            case "near":
                network.tell(device, ["near", at_us, 0, 2, True])
            case _:
                network.tell(device, ["gap", at_us, 1])
    network.merger.flush(10**7)

    data = PlaybackData(RecordingHeader(start_us=0, nodes=(), places=(), range_m=0.0))
    last_us = 0
    for event in network.found:
        last_us = max(last_us, event.at_us)
        data.add_event(type(event)(last_us, *list(vars_of(event))[1:]))
    assert data.events_missing == sum(isinstance(event, GapEvent) for event in network.found)


def vars_of(event: RecordedEvent) -> list[object]:
    return [getattr(event, name) for name in event.__struct_fields__]
