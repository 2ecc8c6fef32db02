"""Soak: runs a small network under random faults and load, and checks the guarantees of Thyme.

Entry point: `run_soak`. A seed determines the nodes, their cells, the faults and the operations.
During the run, every application event is compared with the operations issued so far, and every
node checks its own invariants. After the faults have ended and a quiet period has passed, no
acknowledged object may be missing. A failure can be reproduced from its seed.
`thyme.testing.soak.faults` draws the faults, `thyme.testing.soak.workload` the operations.
Clauses: B12, D15, M16, M23, M24.
"""

from __future__ import annotations

import math
from functools import partial
from random import Random

import msgspec

from thyme.model.ids import Key, NodeId
from thyme.model.rng import derive_rng
from thyme.model.time_frames import SECOND_US
from thyme.protocol.app_interface import Subscribe
from thyme.protocol.node import Node
from thyme.routing.cells.grid import CELL_M
from thyme.sim.faults.devices import Devices
from thyme.sim.faults.injector import FaultInjector
from thyme.sim.faults.schedule import Crash, CrashMemory, FaultSchedule, make_schedule
from thyme.sim.networks.ideal_network import IdealNetwork
from thyme.sim.scenario import Profile, Substrate
from thyme.storage.store import Store
from thyme.substrates.dcs.node import DcsNode
from thyme.substrates.es import EsNode
from thyme.substrates.ls.node import LsNode
from thyme.testing.soak.checked_node import BrokenNodeError, CheckedNode
from thyme.testing.soak.faults import (
    FaultLimits,
    MoveStep,
    draw_burst,
    draw_faults,
    draw_moves,
    draw_sleeps,
)
from thyme.testing.soak.hostile_node import HostileNode
from thyme.testing.soak.networks import SoakMedium, make_network, usable_range_m
from thyme.testing.soak.positions import draw_positions, is_connected
from thyme.testing.soak.shrinking import Omitted, SoakParts, group_faults, shrink
from thyme.testing.soak.substrate_nodes import (
    SubstrateNode,
    count_stored,
    has_object,
    make_substrate_node,
)
from thyme.testing.soak.workload import TAGS, RandomWorkload

JOIN_US = 8 * SECOND_US
"""Time for the nodes to find their neighbours and to join."""
FAULTS_US = 120 * SECOND_US
QUIET_US = 90 * SECOND_US
AGREEMENT_US = JOIN_US + FAULTS_US + QUIET_US // 2
"""Instant from which on all nodes of a cell must agree, whatever messages they missed."""
PROBE_US = 40 * SECOND_US
"""Time limit of the requests of the final checks."""
OPERATIONS = 100
NODES_MIN, NODES_MAX = 6, 20
VIOLATIONS_MAX = 20
"""Maximum number of violations in a result."""


class SoakResult(msgspec.Struct, frozen=True, kw_only=True):
    """The result of one soak run."""

    seed: int
    substrate: Substrate
    profile: Profile
    medium: SoakMedium = SoakMedium.IDEAL
    hostile_messages: int = 0
    """Number of forged and replayed messages that a hostile node sent."""
    nodes: int
    cells: int
    faults: int
    steps: int
    """Number of steps of moving nodes."""
    ended: dict[str, int]
    """Numbers of operations by kind and result."""
    notifications: int
    """Number of notifications that applications received."""
    violations: tuple[str, ...]
    """Violated guarantees; the seed reproduces them."""


NOTHING_OMITTED = Omitted()


def run_soak(
    seed: int,
    substrate: Substrate,
    profile: Profile,
    omitted: Omitted = NOTHING_OMITTED,
    medium: SoakMedium = SoakMedium.IDEAL,
    *,
    hostile: bool = False,
) -> SoakResult:
    """Executes the soak run of a seed, or what is left of it, and returns its violations. Only
    Thyme-DCS runs on the radio: it has a routing of its own. If `hostile`, nodes have keys, and one
    of them forges and replays messages while there are faults (`hostile_node`)."""
    return _SoakRun(seed, substrate, profile, omitted, medium, hostile=hostile).run()


def shrink_soak(result: SoakResult) -> tuple[Omitted, SoakResult]:
    """Returns what the violations of a result do not need, and the result of the shorter run."""
    seed, substrate, profile = result.seed, result.substrate, result.profile

    def run_shorter(omitted: Omitted) -> SoakResult:
        return run_soak(seed, substrate, profile, omitted, result.medium)

    parts = _SoakRun(seed, substrate, profile, medium=result.medium).parts
    omitted = shrink(parts, result.violations, lambda shorter: run_shorter(shorter).violations)
    return omitted, run_shorter(omitted)


class _SoakRun:
    """One soak run: the network, its devices, its faults and its workload."""

    def __init__(
        self,
        seed: int,
        substrate: Substrate,
        profile: Profile,
        omitted: Omitted = NOTHING_OMITTED,
        medium: SoakMedium = SoakMedium.IDEAL,
        *,
        hostile: bool = False,
    ) -> None:
        self._hostile = hostile
        self._hostile_messages = 0
        self._seed = seed
        self._medium = medium
        self._omitted = omitted
        self._substrate = substrate
        self._profile = profile
        rng = derive_rng(seed, "soak", "world")
        self._node_ids = [
            NodeId(f"n{n:02}".encode()) for n in range(rng.randint(NODES_MIN, NODES_MAX))
        ]
        self._grid, positions = draw_positions(
            rng, len(self._node_ids), partial(usable_range_m, medium)
        )
        self._positions = dict(zip(self._node_ids, positions, strict=True))
        self._has_cells = substrate is Substrate.DCS
        fault_limits = self._fault_limits()
        self._moves = self._draw_moves(fault_limits) if self._has_cells else []
        self._network = make_network(
            medium, seed, self._positions, self._moves, self._in_range if self._has_cells else None
        )
        self.workload = RandomWorkload(
            self._network,
            self._node_ids,
            derive_rng(seed, "soak", "people"),
            agreement_us=AGREEMENT_US if self._has_cells and fault_limits.message_loss else 0,
        )
        self.devices = Devices(
            self._network,
            self._node_ids,
            self._make_node,
            on_event=self.workload.on_event,
            on_power=self._on_power,
        )
        fault_rng = derive_rng(seed, "soak", "weather")
        until_us = JOIN_US + FAULTS_US
        self._fault_groups = group_faults(
            draw_faults(fault_rng, positions, JOIN_US, until_us, fault_limits)
        )
        self._schedule = self._kept_faults()
        if self._has_cells:
            self.workload.memory_losses_us = [
                fault.at_us
                for fault in self._schedule
                if isinstance(fault, Crash) and fault.memory is CrashMemory.LOST
            ]
        nodes = len(self._node_ids) if medium is SoakMedium.IDEAL else 0
        sleep_rng = derive_rng(seed, "soak", "sleep")
        self._sleeps = draw_sleeps(sleep_rng, nodes, JOIN_US, until_us, fault_limits)
        self._burst = draw_burst(derive_rng(seed, "soak", "burst"), nodes, JOIN_US, until_us)

    def _draw_moves(self, limits: FaultLimits) -> list[MoveStep]:
        """The movements that are not left out."""
        area = self._grid.columns * CELL_M, self._grid.rows * CELL_M
        rng, positions = derive_rng(self._seed, "soak", "walks"), list(self._positions.values())
        steps = draw_moves(rng, positions, area, JOIN_US, JOIN_US + FAULTS_US, limits)
        still = self._omitted.moves | self._omitted.nodes
        return [step for step in steps if step.node not in still]

    @property
    def parts(self) -> SoakParts:
        """The numbers of parts that can be left out."""
        nodes = len(self._node_ids)
        return SoakParts(OPERATIONS, len(self._fault_groups), nodes, nodes)

    def _kept_faults(self) -> FaultSchedule:
        """The faults that are not left out, nor those of nodes that are."""
        omitted = self._omitted
        kept = [
            fault
            for number, group in enumerate(self._fault_groups)
            for fault in group
            if number not in omitted.faults and getattr(fault, "node", None) not in omitted.nodes
        ]
        return make_schedule(kept, nodes=len(self._node_ids))

    def _in_range(self, one: NodeId, other: NodeId) -> bool:
        range_m = usable_range_m(self._medium, self._grid.range_m)
        return math.dist(self._positions[one], self._positions[other]) <= range_m

    def _fault_limits(self) -> FaultLimits:
        """Returns the faults that a substrate and profile are not designed to survive.

        DCS `paper` does not survive an emptied cell, a partition or lost messages; DCS `robust`
        survives the loss of one store at a time; ES does not survive the loss of its server's
        store.
        """
        match self._substrate, self._profile:
            case Substrate.DCS, Profile.PAPER:
                core = self._connected_core()
                return FaultLimits(
                    always_up=frozenset(map(self._node_ids.index, core)),
                    message_loss=False,
                    partitions=False,
                    destinations=tuple(self._positions[node_id] for node_id in core),
                )
            case Substrate.DCS, Profile.ROBUST:
                return FaultLimits(separate_memory_losses=True)
            case Substrate.ES, _:
                return FaultLimits(memory_kept=frozenset([len(self._node_ids) - 1]))
            case _:
                return FaultLimits()

    def _connected_core(self) -> list[NodeId]:
        """Returns one node of each cell, and further nodes until they form a connected network."""
        cells: dict[int, NodeId] = {}
        for node_id in self._node_ids:
            cells.setdefault(self._grid.cell_at(self._positions[node_id]), node_id)
        core = list(cells.values())
        others = [node_id for node_id in self._node_ids if node_id not in core]
        while not is_connected(core, self._in_range):
            core.append(others.pop(0))
        return core

    # Nodes

    def _make_node(self, node_id: NodeId, store: Store, incarnation: int) -> Node:
        rng = derive_rng(self._seed, "node", node_id, incarnation)
        sleep = self._sleeps.get(self._node_ids.index(node_id))
        node = make_substrate_node(
            node_id,
            store,
            rng,
            self._substrate,
            self._profile,
            server=self._node_ids[-1],
            grid=self._grid,
            position=self._positions[node_id],
            with_keys=self._hostile,
        )
        if not self._hostile or node_id != self._node_ids[0]:
            return CheckedNode(node, sleep)
        hostile_rng = derive_rng(self._seed, "hostile", incarnation)
        return HostileNode(node, hostile_rng, JOIN_US + FAULTS_US, sleep, self._count_hostile)

    def _count_hostile(self) -> None:
        self._hostile_messages += 1

    def _on_power(self, node_id: NodeId, incarnation: int) -> None:
        self.workload.on_power(node_id, incarnation)
        if incarnation > 1:
            node = self._substrate_node(self._node_ids.index(node_id))
            held = {held.sid for held in node.subscriber.active_subscriptions()}
            self.workload.resume_subscriptions(node_id, held)

    def _substrate_node(self, number: int) -> SubstrateNode:
        node = self.devices.node_of(number)
        assert isinstance(node, CheckedNode)
        assert isinstance(node.inner, EsNode | LsNode | DcsNode)
        return node.inner

    def _running(self) -> list[int]:
        return [n for n in range(len(self._node_ids)) if self.devices.node_of(n) is not None]

    # Phases of the run

    def run(self) -> SoakResult:
        """Executes all phases and returns the result."""
        try:
            self._run_fault_phase()
            self._run_quiet_phase()
            self._run_final_checks()
        except BrokenNodeError as error:
            self.workload.report_violation("broken", str(error))
        return SoakResult(
            seed=self._seed,
            substrate=self._substrate,
            profile=self._profile,
            medium=self._medium,
            hostile_messages=self._hostile_messages,
            nodes=len(self._node_ids) - len(self._omitted.nodes),
            cells=len({self._grid.cell_at(position) for position in self._positions.values()}),
            faults=len(self._schedule) + len(self._sleeps) + (self._burst is not None),
            steps=len(self._moves),
            ended=dict(sorted(self.workload.ended.items())),
            notifications=sum(
                len(subscription.notified) for subscription in self.workload.subscriptions.values()
            ),
            violations=tuple(self.workload.violations[:VIOLATIONS_MAX]),
        )

    def _run_fault_phase(self) -> None:
        """Runs the operations while faults are injected."""
        FaultInjector(self._network, self.devices, self._schedule)
        for number in range(len(self._node_ids)):
            if number not in self._omitted.nodes:
                self.devices.start(number)
        for step in self._moves:
            self._network.kernel.schedule(step.at_us, self._move, step)
        if self._burst is not None:
            number, at_us = self._burst
            self._network.kernel.schedule(at_us, self.workload.insert_burst, self._node_ids[number])
        operation_rng = derive_rng(self._seed, "soak", "acts")
        for number in range(OPERATIONS):
            at_us = operation_rng.randint(JOIN_US, JOIN_US + FAULTS_US)
            node_id = operation_rng.choice(self._node_ids)
            if number not in self._omitted.operations:
                self._network.kernel.schedule(at_us, self.workload.run_random_operation, node_id)
        self._network.run(JOIN_US + FAULTS_US)

    def _move(self, step: MoveStep) -> None:
        node_id = self._node_ids[step.node]
        self._positions[node_id] = step.position
        network = self._network  # on the radio, nodes follow their paths
        if isinstance(network, IdealNetwork) and self.devices.node_of(step.node) is not None:
            network.move(node_id, step.position)

    def _run_quiet_phase(self) -> None:
        """Runs a quiet period without faults; afterwards every request must be answered."""
        self._network.run(self._network.now_us + QUIET_US)
        for node_id, requests in self.workload.pending.items():
            for request in requests.values():
                self.workload.report_violation(
                    "never answered", f"{request.request} of {node_id.decode()}"
                )

    def _run_final_checks(self) -> None:
        """Checks that acknowledged objects are found, deleted ones are not, and limits hold."""
        for number in self._running():
            self._check_limits(number)
        if not self._is_connected():
            return
        rng = derive_rng(self._seed, "soak", "probes")
        probers = [
            self._node_ids[n] for n in rng.sample(self._running(), min(3, len(self._running())))
        ]
        searches = {
            (prober, tag): self.workload.search(prober, tag) for prober in probers for tag in TAGS
        }
        self._network.run(self._network.now_us + PROBE_US // 2)
        required = [key for key in self.workload.objects if self._must_exist(key)]
        for (prober, tag), number in searches.items():
            found = self.workload.search_results.get(number)
            if found is None:
                self.workload.report_violation(
                    "no reply", f"to {prober.decode()}'s search for {tag}"
                )
                continue
            found_metadata = {note.key: note.metadata for note in found}
            for key in required:
                if tag in self.workload.objects[key].tags and key not in found_metadata:
                    detail = (
                        f"{key}, stored by {self._holders(key)}, for {prober.decode()} at {tag}"
                    )
                    self.workload.report_violation("lost", detail)
            self.workload.known_metadata[prober].update(found_metadata)
        self._check_retrieves(rng, probers, required)

    def _check_retrieves(self, rng: Random, probers: list[NodeId], required: list[Key]) -> None:
        """Checks that a sample of the existing objects can be retrieved."""
        requests = {}
        for key in rng.sample(required, min(10, len(required))):
            prober = rng.choice(probers)
            if (metadata := self.workload.known_metadata[prober].get(key)) is not None:
                requests[key, prober] = self.workload.retrieve(prober, metadata)
        self._network.run(self._network.now_us + PROBE_US)
        for (key, prober), request_id in requests.items():
            if request_id not in self.workload.retrieved:
                detail = f"{key}, stored by {self._holders(key)}, by {prober.decode()}"
                self.workload.report_violation("not retrieved", detail)

    def _must_exist(self, key: Key) -> bool:
        inserted = self.workload.objects[key]
        if inserted.acknowledged_us is None or inserted.delete_requested or not self._holders(key):
            return False
        return self.workload.is_durable(inserted.acknowledged_us)

    def _holders(self, key: Key) -> list[str]:
        """Returns the names of the running nodes that store an object."""
        return [
            self._node_ids[n].decode()
            for n in self._running()
            if has_object(self._substrate_node(n), key)
        ]

    def _check_limits(self, number: int) -> None:
        node = self._substrate_node(number)
        try:
            node.check()
        except AssertionError as error:
            raise BrokenNodeError(f"{self._node_ids[number].decode()}: {error!r}") from error
        objects_max, subscriptions_max = (
            len(self.workload.objects),
            self.workload.ended[f"{Subscribe.label} ok"],
        )
        # A subscription whose reply was lost may be active, too.
        subscriptions_max += self.workload.ended[f"{Subscribe.label} timeout"] + OPERATIONS
        objects, subscriptions = count_stored(node)
        if objects > objects_max or subscriptions > subscriptions_max:
            detail = f"{self._node_ids[number].decode()} stores {objects} objects of {objects_max}"
            self.workload.report_violation(
                "unbounded", f"{detail}, {subscriptions} subscriptions of {subscriptions_max}"
            )

    def _is_connected(self) -> bool:
        """Whether the running nodes form a connected network."""
        up = [self._node_ids[number] for number in self._running()]
        if not self._has_cells:
            return bool(up)
        return is_connected(up, self._in_range)
