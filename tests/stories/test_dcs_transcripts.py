"""Transcripts of Thyme-DCS: how cells index objects, notify subscribers, and keep their state.

Eight cells lie in a row, 0 to 7; a node hears nodes up to two cells away. The transcripts are
`tests/transcripts/dcs-*.txt`; read them in the order of the functions here. Each line is a message
on one link: a packet for a cell or for a node in a cell, hop by hop, or a broadcast to the nodes of
a cell. Beacons, timers and receptions are left out.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

import pytest

from tests.stories.transcript import Transcript, written
from tests.substrates.dcs.network import SETTLED_S, DcsNetwork, Place, in_cell
from thyme.model.ids import NodeId
from thyme.protocol import app_interface
from thyme.protocol.messages.cell_records import CellTarget
from thyme.protocol.messages.common import CellBroadcast, CellPacket, Message, ReplyFromCell
from thyme.protocol.node import (
    Action,
    AppRequested,
    Broadcast,
    Emit,
    Input,
    Leaving,
    PositionChanged,
    Send,
    SendFailed,
    Started,
)
from thyme.routing.cells import Grid

CELLS = {"river": 3, "eder": 4}
"""The cell of each tag, by its hash."""
_OMITTED = re.compile(r" (part=0 parts=1|located=\d+|removed=\d+)")


class CellTranscript(Transcript):
    """A transcript of Thyme-DCS, with the cells that packets and broadcasts are for."""

    def __init__(self, title: str, start_us: int, grid: Grid) -> None:
        super().__init__(title, start_us)
        self._grid = grid

    def __call__(self, now_us: int, node_id: NodeId, entry: Input | Action) -> None:
        name = node_id.decode()
        match entry:
            case AppRequested() | Emit():
                super().__call__(now_us, node_id, entry)
            case Send(message=CellPacket() as packet):
                targets = ", ".join(map(_target, packet.targets))
                verb = "forwards" if packet.hops else "sends"
                text = f"{verb} for {targets}: {_content(packet.message)}"
                self._write(now_us, f"{name} -> {entry.to.decode()}  {text}")
            case Broadcast(message=CellBroadcast() as broadcast):
                proxy = f", as proxy of cell {broadcast.addressed_cell}"
                is_proxy = broadcast.addressed_cell != broadcast.receiving_cell
                to = f"nodes of cell {broadcast.receiving_cell}{proxy if is_proxy else ''}"
                self._write(now_us, f"{name} -> {to}: {_content(broadcast.message)}")
            case SendFailed(message=CellPacket() as packet):
                to = entry.to.decode()
                self._write(now_us, f"{name} cannot reach {to}: {_content(packet.message)}")
            case Started():
                self._write(now_us, f"{name} starts")
            case Leaving():
                self._write(now_us, f"{name} leaves")
            case PositionChanged():
                cell = self._grid.cell_at(entry.position)
                self._write(now_us, f"{name} moves to cell {cell}")


def _target(target: CellTarget) -> str:
    cell = f"cell {target.cell}"
    return cell if target.node is None else f"{target.node.decode()} in {cell}"


def _content(message: Message) -> str:
    if isinstance(message, ReplyFromCell):
        return f"reply of cell {message.cell}: {_content(message.message)}"
    return _OMITTED.sub("", written(message))


class TranscriptNetwork(DcsNetwork):
    """A network of Thyme-DCS that records a transcript from when its nodes have joined."""

    def __init__(
        self, title: str, cells: Mapping[str, int], *, absent: tuple[str, ...] = ()
    ) -> None:
        self.transcript: CellTranscript | None = None
        numbers: dict[int, int] = {}
        places: dict[str, Place] = {}
        for name, cell in cells.items():
            numbers[cell] = numbers.get(cell, -1) + 1
            places[name] = in_cell(cell, numbers[cell])
        super().__init__(places, absent=absent)
        self.transcript = CellTranscript(title, self.links.kernel.now_us, self.grid)
        by_cell: dict[int, list[str]] = {}
        for name, cell in cells.items():
            if name not in absent:
                by_cell.setdefault(cell, []).append(name)
        listed = "; ".join(f"{cell}: {', '.join(names)}" for cell, names in by_cell.items())
        self.comment(f"Nodes by cell: {listed}.")

    def comment(self, text: str) -> None:
        assert self.transcript is not None
        self.transcript.note(text)

    def check(self, name: str, *, rewrite: bool) -> None:
        assert self.transcript is not None
        self.transcript.check(name, rewrite=rewrite)

    def _note(self, now_us: int, node_id: NodeId, entry: Input | Action) -> None:
        super()._note(now_us, node_id, entry)
        if self.transcript is not None:
            self.transcript(now_us, node_id, entry)


def insert_and_notify(rewrite: bool) -> None:
    network = TranscriptNetwork(
        "The cell of a tag indexes objects and notifies subscribers (D11–D13, D16–D18).",
        {"ann": 2, "bea": 4, "ben": 4, "dan": 6},
    )
    network.comment(
        "The tag eder belongs to cell 4: the subscription goes there. The first node of"
    )
    network.comment("the cell that receives it replies, and broadcasts it to the others.")
    network.subscribe("ann", "eder")
    network.comment(
        "Dan keeps the object; the cell of the tag indexes its metadata. Again the first"
    )
    network.comment(
        "node of the cell does the rest: it notifies the subscriber and replies to dan."
    )
    network.insert("dan", "photo", "eder")
    network.comment(
        "The metadata names dan's cell as active replica: ann retrieves the object there,"
    )
    network.comment("keeps it as a passive replica, and announces that to the cell of the tag.")
    metadata = network.metadata("ann", "photo")
    network.finish("ann", app_interface.Retrieve, metadata=metadata)
    network.check("dcs-insert-and-notify", rewrite=rewrite)


def proxy_of_an_empty_cell(rewrite: bool) -> None:
    network = TranscriptNetwork(
        "The closest populated cell is the proxy of an empty one (D5, D6).",
        {"ann": 1, "bea": 2, "cat": 4, "dan": 6},
    )
    network.comment(
        "The tag river belongs to cell 3, which is empty. Cells 2 and 4 are equally close;"
    )
    network.comment(
        "the lower number is the proxy. A packet for cell 3 travels around the empty cell:"
    )
    network.comment(
        "when it is back at the closest cell, no closer one exists. Bea replies for cell 3."
    )
    network.subscribe("dan", "river")
    network.comment("The object of the same tag meets the subscription at the proxy.")
    network.insert("ann", "photo", "river")
    network.check("dcs-proxy-of-an-empty-cell", rewrite=rewrite)


def node_that_moves(rewrite: bool) -> None:
    network = TranscriptNetwork(
        "A subscriber moves: it announces each new cell, then joins the one it stays in (D20–D23).",
        {"ann": 0, "abe": 0, "bea": 2, "cat": 4, "dan": 6},
    )
    network.subscribe("ann", "eder")
    network.comment("Ann crosses into cell 1, and tells the cell of her subscription where she is.")
    network.move("ann", in_cell(1), settle_s=1)
    network.comment(
        "A notification reaches her there, although she serves no cell while she moves."
    )
    network.insert("dan", "first", "eder", seconds=0.5)
    network.comment("She crosses into cell 2.")
    network.move("ann", in_cell(2, 3), settle_s=1)
    network.comment(
        "Once she has not moved for five seconds, she gets the state of cell 2 from bea and"
    )
    network.comment("serves the cell.")
    network.run(SETTLED_S)
    network.comment("The next notification goes to her new cell.")
    network.insert("dan", "second", "eder")
    network.check("dcs-node-that-moves", rewrite=rewrite)


def state_transfer(rewrite: bool) -> None:
    network = TranscriptNetwork(
        "A cell that becomes empty transfers its state to its proxy, and gets it back (D24).",
        {"ann": 1, "bea": 3, "cat": 4, "dan": 5},
    )
    network.comment("Cat is the only node of cell 4, the cell of the tag eder.")
    network.subscribe("ann", "eder")
    network.insert("dan", "first", "eder")
    network.comment("Cat leaves: the cell becomes empty. Cell 3 is its proxy, and gets its state.")
    network.comment("Bea's own transfer for cell 4 comes back to her: no populated cell is closer.")
    network.leave("cat")
    network.run(5)
    network.comment("The proxy serves cell 4: it knows the subscription.")
    network.insert("dan", "second", "eder")
    network.comment(
        "Cat is back: the cell becomes populated. The proxy returns the state of cell 4."
    )
    network.come("cat")
    network.run(10)
    network.insert("dan", "third", "eder")
    network.check("dcs-state-transfer", rewrite=rewrite)


def delete_after_a_partition(rewrite: bool) -> None:
    network = TranscriptNetwork(
        "An object deleted in one part of a network does not return from the other (D15, D25).",
        {"ann": 0, "abe": 1, "bea": 3, "zoe": 5},
    )
    network.comment("Bea is the only node of cell 3, the cell of the tag river.")
    key = network.insert("ann", "photo", "river")
    network.comment(
        "Bea moves away, and with her the only link between ann and abe on one side, and zoe"
    )
    network.comment("on the other. She transfers the state of cell 3 to its proxy on zoe's side.")
    network.comment("(Zoe's empty transfer finds out later whether she is still the proxy.)")
    network.move("bea", in_cell(7))
    network.run(20)
    network.comment(
        "Ann deletes the object. On her side abe is the proxy of cell 3; he has no state of"
    )
    network.comment("the cell, and keeps a tombstone.")
    network.finish("ann", app_interface.Delete, key=key)
    network.comment(
        "Bea is back in cell 3. Both proxies transfer their states: the tombstone wins."
    )
    network.move("bea", in_cell(3))
    network.run(30)
    network.comment("Zoe does not find the object.")
    assert network.found("zoe", "river") == set()
    network.check("dcs-delete-after-a-partition", rewrite=rewrite)


STORIES = [
    insert_and_notify,
    proxy_of_an_empty_cell,
    node_that_moves,
    state_transfer,
    delete_after_a_partition,
]


@pytest.mark.parametrize("story", STORIES)
def test_the_transcript_is_as_recorded(
    story: Callable[[bool], None], request: pytest.FixtureRequest
) -> None:
    story(bool(request.config.getoption("--rewrite")))


@pytest.mark.parametrize(("tag", "cell"), CELLS.items())
def test_tags_belong_to_the_cells_that_the_transcripts_name(tag: str, cell: int) -> None:
    assert Grid(columns=8, rows=1).cell_of_key(tag) == cell
