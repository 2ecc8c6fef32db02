"""Peer reads: a cell refuses an object only after its other nodes were asked (D7, D14, D18)."""

from __future__ import annotations

import msgspec
import pytest

from tests.substrates.dcs.network import DcsNetwork, in_cell, tag_in
from thyme.model.ids import Key, NodeId
from thyme.protocol import app_interface as asked
from thyme.protocol.app_interface import Finished
from thyme.protocol.messages import common as wire
from thyme.substrates.common.catalogue import DELETED
from thyme.substrates.dcs.config import ROBUST, DcsConfig, ReplicationConfig
from thyme.substrates.dcs.state.replica_store import ReplicaRole

ONCE = ReplicationConfig(announcements=ROBUST.replication.announcements, retrieve_tries_max=1)
"""A reader asks the cell once, so that nothing but its answer counts."""
CELL_OF_ANN = ("ann", "abe", "amy")
PLACES = {
    **{name: in_cell(0, number) for number, name in enumerate(CELL_OF_ANN)},
    "bea": in_cell(2),
    "ben": in_cell(2, 1),
}


def only_with(keeps: str | None, *, asks: bool, seed: int = 1) -> tuple[DcsNetwork, Key]:
    """Ann's photo, of which Bea knows, is with one node of Ann's cell at most: it had retrieved
    the photo before it moved there, so that no comparison of digests gives it to the others."""
    replication = msgspec.structs.replace(ONCE, ask_peers=asks)
    config: DcsConfig = msgspec.structs.replace(ROBUST, replication=replication)
    net = DcsNetwork(PLACES, config=config, seed=seed)
    net.subscribe("bea", tag_in(2))
    key = net.insert("ann", "photo", tag_in(2))
    for name in CELL_OF_ANN:
        if name == keeps:
            net.nodes[name].replicas.change_role(ReplicaRole.ACTIVE, ReplicaRole.PASSIVE)
        else:
            net.nodes[name].replicas.remove_without_tombstone(key)
    return net, key


def retrieve(net: DcsNetwork) -> object:
    """What Bea's retrieve of the photo ends with: its bytes, or the code of a failure."""
    told = net.ask("bea", asked.Retrieve(request_id=1_000, metadata=net.metadata("bea", "photo")))
    return told.value if isinstance(told, Finished) else getattr(told, "code", None)


def asks_in_cell(net: DcsNetwork) -> list[tuple[str, NodeId | None]]:
    """Which nodes of Ann's cell asked which others for an object."""
    asks = net.messages(wire.FetchObject)
    return [(name, packet.targets[0].node) for name, packet in asks if name in CELL_OF_ANN]


def answers_of_the_cell(net: DcsNetwork) -> list[type]:
    """What the cell answered to readers."""
    return [
        kind
        for kind in (wire.ObjectData, wire.Refused)
        for _, packet in net.messages(kind)
        if isinstance(packet.message, wire.ReplyFromCell)
    ]


@pytest.mark.parametrize("keeps", ["abe", "amy"])
@pytest.mark.parametrize("seed", range(4))
def test_d14_d18_an_object_that_a_node_of_the_cell_still_has_is_not_refused(
    keeps: str, seed: int
) -> None:
    """The owner and another node lost their memory. Whoever is reached first, the bytes come, and
    they come once."""
    net, _ = only_with(keeps, asks=True, seed=seed)

    assert retrieve(net) == b"pixels"
    assert answers_of_the_cell(net) == [wire.ObjectData]
    assert len(asks_in_cell(net)) <= 2


def test_d18_a_node_that_asks_nobody_refuses_for_its_whole_cell() -> None:
    results = {retrieve(only_with("amy", asks=False, seed=seed)[0]) for seed in range(8)}

    assert "not_found" in results


def test_d18_a_cell_refuses_what_it_lacks_after_each_other_node_was_asked_once() -> None:
    net, _ = only_with(None, asks=True)

    assert retrieve(net) == "not_found"
    [first] = {asker for asker, _ in asks_in_cell(net)}
    others = sorted(name.encode() for name in CELL_OF_ANN if name != first)
    assert sorted(node for _, node in asks_in_cell(net) if node is not None) == others
    assert answers_of_the_cell(net) == [wire.Refused]


def test_d15_d18_a_node_that_knows_of_the_delete_asks_nobody() -> None:
    """Amy still has the photo: she missed that it was deleted."""
    results = set()
    for seed in range(8):
        net, key = only_with("amy", asks=True, seed=seed)
        for name in ("ann", "abe"):
            net.nodes[name].replicas.remove_with_tombstone(key, DELETED, 0)
        results.add(retrieve(net))
        assert asks_in_cell(net) == []

    assert "not_found" in results


def test_d19_readers_that_ask_meanwhile_wait_for_the_same_answer() -> None:
    """Bea asks for one object four times at once: whoever is reached first looks for it once, and
    each request is answered."""
    net, _ = only_with("amy", asks=True)
    metadata = net.metadata("bea", "photo")
    for number in range(4):
        net.links.ask(NodeId(b"bea"), asked.Retrieve(request_id=1_000 + number, metadata=metadata))
    net.run(3)

    asks = asks_in_cell(net)
    assert len(asks) == len(set(asks)), "a node asks another one once"
    results = [told for told in net.told["bea"] if isinstance(told, Finished)]
    assert [told.value for told in results if told.request_id >= 1_000] == 4 * [b"pixels"]
