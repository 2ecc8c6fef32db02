"""The environments in which the conformance tests run, one line each."""

from __future__ import annotations

import asyncio
from abc import abstractmethod
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Generic, TypeVar

import msgspec

from tests.conformance.environment import Environment
from tests.conformance.live_environment import LiveEsEnvironment, LiveLsEnvironment
from tests.conformance.process_environment import DcsProcesses, EsProcesses, LsProcesses
from tests.conformance.simulated_port import SimulatedPort
from thyme.api.session import NodeSession
from thyme.live.host import Host
from thyme.model.ids import Key, NodeId
from thyme.model.metadata import Limits
from thyme.model.rng import derive_rng
from thyme.protocol.message_auth import MessageAuthenticator
from thyme.protocol.messages.cell_records import CellId
from thyme.protocol.node import Action, Broadcast, Input, Node, Send
from thyme.protocol.port import NodeListener, NodePort
from thyme.protocol.retry import RetryPolicy
from thyme.routing.cells import Grid, LogicalCells
from thyme.sim.networks.ideal_network import PERFECT, IdealNetwork, LinkConditions
from thyme.sim.networks.wireless_network import WirelessNetwork
from thyme.storage.sqlite.store import SqliteStore
from thyme.storage.store import MemoryStore, Store
from thyme.substrates.common.broker import BrokerConfig
from thyme.substrates.common.catalogue import Retention
from thyme.substrates.common.subscriber import SubscriberConfig
from thyme.substrates.dcs.cell_map import GridCellMap, LogicalCellMap
from thyme.substrates.dcs.config import LOGICAL_ROBUST, DcsConfig
from thyme.substrates.dcs.config import PAPER as DCS_PAPER
from thyme.substrates.dcs.config import ROBUST as DCS_ROBUST
from thyme.substrates.dcs.node import DcsNode
from thyme.substrates.encounters.config import EncounterConfig, MobUserConfig
from thyme.substrates.encounters.memory_config import ListSizes
from thyme.substrates.encounters.node import EncounterNode
from thyme.substrates.es import EsConfig, EsNode
from thyme.substrates.infra.factory import make_mobile_node
from thyme.substrates.infra.mobile.cell_data import CellDataConfig
from thyme.substrates.infra.mobile.extension import MobileConfig
from thyme.substrates.infra.station.cached_content import CachedContent
from thyme.substrates.infra.station.node import StationNode
from thyme.substrates.infra.station.settings import (
    GlobalSettings,
    PopularitySettings,
    StationSettings,
)
from thyme.substrates.ls.config import PAPER, ROBUST, LsConfig
from thyme.substrates.ls.node import LsNode
from thyme.substrates.solo import SoloConfig, make_solo_node
from thyme.testing.soak.hostile_node import HostileNode
from thyme.testing.soak.named_keys import named_authenticator

START_US = 1_700_000_000_000_000
SECOND_US = 1_000_000
SKEW_US = 2 * SECOND_US
LOSSY = LinkConditions(loss=0.2, duplication=0.1, delay_us_min=500, delay_us_max=200_000)


AROUND_A_TABLE = {
    NodeId(name.encode()): (float(10 * place), float(place % 2))
    for place, name in enumerate(("server", "alice", "bob", "carol"))
}
"""All nodes within one hop."""


class SoloEnvironment(Environment):
    """A local world in virtual time; all users share one device."""

    moment_us = SECOND_US

    def __init__(self, directory: Path | None = None, retention: Retention | None = None) -> None:
        super().__init__()
        self.durable = directory is not None
        self._directory = directory
        self._config = SoloConfig(retention=retention or Retention())
        self._network = IdealNetwork(start_us=START_US)
        self._lives = 0
        self._asker: NodeSession | None = None
        self._memory = MemoryStore()
        self._store: Store = self._memory
        self._node: EsNode | None = None

    def open(self, name: str) -> NodeSession:
        if self._asker is None:
            self._lives += 1
            if self._directory is not None:
                self._store = SqliteStore(self._directory / "solo.thyme")
            node_id = NodeId(b"the one device..")
            rng = derive_rng(self._lives, "node")
            self._node = make_solo_node(node_id, self._store, rng, self._config)
            self._asker = NodeSession(self._port)
        return self._asker

    def _port(self, listener: NodeListener) -> NodePort:
        assert self._node is not None
        return SimulatedPort(self._network, self._node, self._store, listener)

    def crash(self, name: str) -> None:
        assert self._node is not None
        self._network.remove(self._node.node_id)
        self._store.close()
        self._asker = None

    def elapse(self, moments: float) -> None:
        self._network.run(self._network.now_us + self.us(moments))

    def tamper(self, key: Key, data: bytes) -> None:
        self._store.put_data(str(key), data)

    def standing(self) -> int:
        assert self._node is not None
        assert self._node.broker is not None
        self._node.check()
        return self._node.broker.subscription_count

    def left(self) -> dict[str, int]:
        """The number of objects that were removed from the store, by reason."""
        assert self._node is not None
        assert self._node.broker is not None
        return dict(self._node.broker.catalogue.removed)

    def close(self) -> None:
        self._store.close()


class PacedSoloEnvironment(SoloEnvironment):
    """A local world in real time, as `thyme.join` opens it."""

    moment_us = 50_000

    def __init__(self, directory: Path | None = None) -> None:
        super().__init__(directory)
        self._loop = asyncio.new_event_loop()

    def open(self, name: str) -> NodeSession:
        async def in_loop() -> NodeSession:
            return super(PacedSoloEnvironment, self).open(name)

        return self._loop.run_until_complete(in_loop())

    def _port(self, listener: NodeListener) -> NodePort:
        assert self._node is not None
        self._paced = Host(self._node, self._store, listener)
        return self._paced

    def crash(self, name: str) -> None:
        self._paced.close()
        self._asker = None

    def elapse(self, moments: float) -> None:
        self._loop.run_until_complete(asyncio.sleep(self.us(moments) / SECOND_US))

    def close(self) -> None:
        self._paced.close()
        self._loop.close()


N = TypeVar("N", EsNode, LsNode, DcsNode, EncounterNode)


class OverheardNode:
    """A node whose messages a hostile member overhears, as on a radio."""

    def __init__(self, inner: Node, mallory: HostileNode) -> None:
        self._inner = inner
        self._mallory = mallory

    @property
    def node_id(self) -> NodeId:
        return self._inner.node_id

    def handle(self, event: Input, now_us: int) -> list[Action]:
        actions = self._inner.handle(event, now_us)
        for action in actions:
            if isinstance(action, Send | Broadcast):
                self._mallory.overhear(self.node_id, action.message)
        return actions

    def check(self) -> None:
        self._inner.check()


class CrowdEnvironment(Environment, Generic[N]):
    """Several nodes in an ideal network, or within one hop by radio; one for each user."""

    moment_us = SECOND_US
    many = True
    places = AROUND_A_TABLE

    def __init__(
        self,
        conditions: LinkConditions = PERFECT,
        *,
        seed: int = 0,
        skews_us: dict[str, int] | None = None,
        radio: bool = False,
        hostile: bool = False,
    ) -> None:
        """If `hostile`, nodes have keys, and one among them forges and replays what it overhears
        of the others (B5)."""
        super().__init__()
        self._mallory: HostileNode | None = None
        self._hostile = hostile
        self.reliable = conditions == PERFECT
        # Lost messages are sent again, in the worst case several times at each of several steps.
        self.lag = 1 if conditions == PERFECT else 10
        self._network = (
            WirelessNetwork(self.places, seed=seed, start_us=START_US)
            if radio
            else IdealNetwork(seed=seed, conditions=conditions, start_us=START_US)
        )
        self._seed = seed
        self._skews_us = skews_us or {}
        self._stores: dict[str, MemoryStore] = {}
        self._lives: dict[str, int] = {}
        self._nodes: dict[str, N] = {}

    @abstractmethod
    def _make(self, node_id: NodeId, store: MemoryStore, rng: Random) -> N:
        """Makes a node of the substrate."""

    def _node(self, name: str) -> N:
        self._lives[name] = self._lives.get(name, 0) + 1
        store = self._stores.setdefault(name, MemoryStore())
        rng = derive_rng(self._seed, "node", name, self._lives[name])
        self._nodes[name] = node = self._make(NodeId(name.encode()), store, rng)
        return node

    def _authenticator(self, node_id: NodeId) -> MessageAuthenticator | None:
        if not self._hostile:
            return None
        in_cells = isinstance(self, DcsEnvironment)
        return named_authenticator(
            node_id, check_locations=in_cells, authenticate_answers=not in_cells
        )

    def _add_mallory(self) -> None:
        """Adds the hostile member to the network."""
        if self._hostile:
            node, rng = self._node("mallory"), derive_rng(self._seed, "hostile")
            self._mallory = HostileNode(node, rng, 2 * START_US, None, interval_us=SECOND_US // 2)
            self._network.add(self._mallory, self._stores["mallory"], lambda told: None)

    def open(self, name: str) -> NodeSession:
        store: Store
        node: Node
        node, store = self._node(name), self._stores[name]
        if self._mallory is not None:
            node = OverheardNode(node, self._mallory)
        skew_us = self._skews_us.get(name, 0)
        return NodeSession(
            lambda listener: SimulatedPort(
                self._network, node, store, listener, skew_us=skew_us, on_request=self.on_request
            )
        )

    def on_request(self) -> None:
        """Called before a node gets a request of its user."""

    def crash(self, name: str) -> None:
        self._network.remove(NodeId(name.encode()))
        del self._nodes[name]

    def elapse(self, moments: float) -> None:
        self._network.run(self._network.now_us + self.us(moments))

    def close(self) -> None:
        """Nothing to close: the network is simulated."""


class EsEnvironment(CrowdEnvironment[EsNode]):
    """A server and its clients."""

    def __init__(
        self,
        conditions: LinkConditions = PERFECT,
        *,
        seed: int = 0,
        skews_us: dict[str, int] | None = None,
        retention: Retention | None = None,
        radio: bool = False,
        hostile: bool = False,
    ) -> None:
        super().__init__(conditions, seed=seed, skews_us=skews_us, radio=radio, hostile=hostile)
        self._config = EsConfig(
            retries=RetryPolicy(tries_max=10, backoff=1.5),
            broker=BrokerConfig(skew_us=SKEW_US, retention=retention or Retention()),
            subscriber=SubscriberConfig(skew_us=SKEW_US),
        )
        self._start_server()

    def _make(self, node_id: NodeId, store: MemoryStore, rng: Random) -> EsNode:
        keys = self._authenticator(node_id)
        return EsNode(node_id, NodeId(b"server"), store, rng, self._config, keys)

    def _start_server(self) -> None:
        self._server = self._node("server")
        self._network.add(self._server, self._stores["server"], lambda told: None)
        if self._mallory is None:
            self._add_mallory()

    def restart_server(self) -> None:
        """Crashes the server and starts it with its store."""
        self.crash("server")
        self._start_server()

    def tamper(self, key: Key, data: bytes) -> None:
        self._stores["server"].put_data(str(key), data)

    def standing(self) -> int:
        assert self._server.broker is not None
        self._server.check()
        return self._server.broker.subscription_count


class LsEnvironment(CrowdEnvironment[LsNode]):
    """Nodes of Thyme-LS: each stores its own objects and the subscriptions of all."""

    outlives_owner = False
    total_at_once = False

    def __init__(
        self,
        conditions: LinkConditions = PERFECT,
        *,
        profile: LsConfig = PAPER,
        seed: int = 0,
        skews_us: dict[str, int] | None = None,
        radio: bool = False,
        hostile: bool = False,
    ) -> None:
        super().__init__(conditions, seed=seed, skews_us=skews_us, radio=radio, hostile=hostile)
        self.reliable = conditions == PERFECT or profile == ROBUST
        self._config = msgspec.structs.replace(
            profile,
            retries=RetryPolicy(tries_max=10, backoff=1.25),
            broker=BrokerConfig(skew_us=SKEW_US),
            subscriber=SubscriberConfig(skew_us=SKEW_US),
        )
        self._add_mallory()

    def _make(self, node_id: NodeId, store: MemoryStore, rng: Random) -> LsNode:
        return LsNode(node_id, store, rng, self._config, self._authenticator(node_id))

    def tamper(self, key: Key, data: bytes) -> None:
        self._stores[key.owner.decode()].put_data(str(key), data)

    def standing(self) -> int:
        for node in self._nodes.values():
            node.check()
        return max(node.broker.subscription_count for node in self._nodes.values())


FOUR_CELLS = Grid(columns=2, rows=2)
RESIDENTS = [f"resident {number}" for number in range(8)]
IN_FOUR_CELLS = {
    NodeId(name.encode()): (20.0 + 40 * (place % 2) + place, 20.0 + 40 * (place // 2 % 2))
    for place, name in enumerate((*RESIDENTS, "alice", "bob", "carol", "mallory"))
}


class DcsEnvironment(CrowdEnvironment[DcsNode]):
    """Four cells, each with two nodes that started earlier; the nodes of users join them."""

    places = IN_FOUR_CELLS
    in_chunks = True

    def __init__(
        self,
        conditions: LinkConditions = PERFECT,
        *,
        profile: DcsConfig = DCS_PAPER,
        seed: int = 0,
        skews_us: dict[str, int] | None = None,
        radio: bool = False,
        hostile: bool = False,
    ) -> None:
        super().__init__(conditions, seed=seed, skews_us=skews_us, radio=radio, hostile=hostile)
        self.reliable = conditions == PERFECT or profile.anti_entropy
        routing = profile.routing
        if conditions != PERFECT:
            # The ratings of links (D28) are for radios, which differ and repeat lost frames. Here
            # all links lose as many messages and no link repeats any: a detour only adds losses.
            routing = msgspec.structs.replace(routing, beacon_gap_us_max=None)
        self._config = msgspec.structs.replace(
            profile,
            routing=routing,
            # A request or its reply is lost in 36 % of the tries, in all of 12 once in 200,000.
            retries=RetryPolicy(tries_max=12, backoff=1.25),
            broker=BrokerConfig(skew_us=SKEW_US, metadata_only=True),
            subscriber=SubscriberConfig(skew_us=SKEW_US),
            in_chunks=self.in_chunks and not radio,
        )
        for name in RESIDENTS:
            self._network.add(self._node(name), self._stores[name], lambda told: None)
        self._add_mallory()
        self.elapse(5)

    def _make(self, node_id: NodeId, store: MemoryStore, rng: Random) -> DcsNode:
        cell = FOUR_CELLS.cell_at(IN_FOUR_CELLS[node_id])
        ground = GridCellMap(node_id, FOUR_CELLS, rng, self._config.routing)
        keys = self._authenticator(node_id)
        return DcsNode(node_id, CellId(cell), ground, store, rng, self._config, authenticator=keys)

    def open(self, name: str) -> NodeSession:
        asker = super().open(name)
        self.elapse(5)  # long enough to hear the neighbours and to join the cell
        return asker

    def tamper(self, key: Key, data: bytes) -> None:
        for store in self._stores.values():
            if store.get_data(str(key)) is not None:
                store.put_data(str(key), data)

    def standing(self) -> int:
        for node in self._nodes.values():
            node.check()
        return max(node.broker_subscriptions for node in self._nodes.values())


class MobUserEnvironment(CrowdEnvironment[EncounterNode]):
    """Devices of MobUser that are in range of each other and discover each other all the time."""

    outlives_owner = False
    total_at_once = False
    memory_events = 200
    """More than the paper's: the stories of other substrates forget nothing."""

    def _make(self, node_id: NodeId, store: MemoryStore, rng: Random) -> EncounterNode:
        protocol = MobUserConfig(
            discovery_us=SECOND_US // 5,
            repeat_us=SECOND_US,
            lists=ListSizes(memory_events=self.memory_events),
        )
        config = EncounterConfig(
            protocol=protocol,
            limits=Limits(),
            subscriber=SubscriberConfig(skew_us=SKEW_US),
            first_discovery_us=0,
        )
        return EncounterNode(node_id, store, rng, config)

    def tamper(self, key: Key, data: bytes) -> None:
        for store in self._stores.values():
            if store.get_data(str(key)) is not None:
                store.put_data(str(key), data)

    def standing(self) -> int:
        for node in self._nodes.values():
            node.check()
        return max(len(node.subscriber) for node in self._nodes.values())


_PAST = "the past of other devices is not there when a device subscribes: it comes by encounters"
NOT_BY_ENCOUNTERS = {
    "test_m10_a_frame_may_start_in_the_past_and_end_in_the_future": _PAST,
    "test_m15_a_new_subscription_finds_the_stored_object": _PAST,
    "test_m16_an_object_that_matches_twice_is_heard_once": _PAST,
    "test_m17_an_object_that_several_tags_match_counts_once": _PAST,
    "test_m17_a_batch_of_nothing_only_tells_how_much_there_is": _PAST,
    "test_m17_new_objects_come_as_usual_between_batches": _PAST,
    "test_m17_the_past_comes_in_batches_newest_first": _PAST,
    "test_m27_a_subscription_tells_when_the_first_batch_has_come": _PAST,
    "test_m27_more_than_a_batch_missed_comes_all_the_same": _PAST,
    "test_m28_the_publisher_s_stamp_counts_and_the_arrival_is_kept_apart": _PAST,
}
"""Stories that a world of encounters does not tell, and why."""


class LogicalCellsEnvironment(DcsEnvironment):
    """The same nodes in four logical cells, each within one hop of every other (I1)."""

    def _make(self, node_id: NodeId, store: MemoryStore, rng: Random) -> DcsNode:
        cells = LogicalCells(4)
        cell_map = LogicalCellMap(node_id, cells, rng, self._config.routing)
        return DcsNode(node_id, cells.cell_of_node(node_id), cell_map, store, rng, self._config)


class InfraEnvironment(DcsEnvironment):
    """The same nodes as mobile nodes of Thyme-Infrastructure, with a station or without."""

    in_chunks = False
    retrieve_patience = 200
    """Objects are sent whole: a try to get one of 4.5 MiB takes 19 s before the next, and the five
    tries of a retrieve 155 s."""

    def __init__(
        self,
        conditions: LinkConditions = PERFECT,
        *,
        station: bool = True,
        profile: DcsConfig = DCS_PAPER,
        seed: int = 0,
    ) -> None:
        super().__init__(conditions, profile=profile, seed=seed)
        if station:
            self.start_station()
            self.elapse(3)

    def start_station(self) -> None:
        """Starts the station with empty caches."""
        self._lives["station"] = self._lives.get("station", 0) + 1
        rng = derive_rng(self._seed, "station", self._lives["station"])
        content = CachedContent(STATION_SETTINGS.caches)
        self.station = StationNode(NodeId(b"station"), [], content, rng, STATION_SETTINGS)
        self._network.add(self.station, MemoryStore(), lambda told: None)
        self.has_station = True

    def kill_station(self) -> None:
        """The station dies; its caches are lost."""
        self._network.remove(NodeId(b"station"))
        self.has_station = False

    has_station = False

    def _make(self, node_id: NodeId, store: MemoryStore, rng: Random) -> DcsNode:
        mobile = MobileConfig(
            world_name="conformance", cell_data=CellDataConfig(period_us=2 * SECOND_US)
        )
        node, _ = make_mobile_node(
            node_id,
            store,
            cells_rng=rng,
            rng=rng,
            station_rng=rng,
            config=self._config,
            mobile=mobile,
        )
        return node


class UnsteadyStationEnvironment(InfraEnvironment):
    """A station that dies and returns with empty caches every seven seconds."""

    _next_change_us = START_US + 7 * SECOND_US

    def __init__(
        self, conditions: LinkConditions = PERFECT, *, profile: DcsConfig = DCS_PAPER, seed: int = 0
    ) -> None:
        super().__init__(conditions, station=False, profile=profile, seed=seed)

    def elapse(self, moments: float) -> None:
        until_us = self._network.now_us + self.us(moments)
        while self._next_change_us <= until_us:
            self._network.run(self._next_change_us)
            self._change_station()
        self._network.run(until_us)

    def _change_station(self) -> None:
        """The station dies or returns, and the next change is set."""
        if self.has_station:
            self.kill_station()
        else:
            self.start_station()
        self._next_change_us += 7 * SECOND_US


class DyingStationEnvironment(UnsteadyStationEnvironment):
    """A station that dies in the middle of every step: shortly after each request of a user, while
    its messages are under way. It returns with empty caches after five seconds, or at the next
    request: then nodes do not know yet that it was away."""

    def on_request(self) -> None:
        if not self.has_station:
            self.start_station()
        rng = derive_rng(self._seed, "death", self._lives["station"])
        self._next_change_us = self._network.now_us + rng.randrange(self._step_us)

    def _change_station(self) -> None:
        super()._change_station()
        lasts_us = 3600 * SECOND_US if self.has_station else 5 * SECOND_US
        self._next_change_us = self._network.now_us + lasts_us

    def __init__(
        self, conditions: LinkConditions = PERFECT, *, profile: DcsConfig = DCS_PAPER, seed: int = 0
    ) -> None:
        self._step_us = 3 * max(1_000, conditions.delay_us_max)
        super().__init__(conditions, profile=profile, seed=seed)


STATION_SETTINGS = StationSettings(
    popularity=PopularitySettings(decision_period_us=3 * SECOND_US),
    sharing=GlobalSettings(needs_period_us=3 * SECOND_US, reply_window_us=3 * SECOND_US),
)


ENVIRONMENTS: dict[str, Callable[[Path], Environment]] = {
    "solo, memory": lambda _: SoloEnvironment(),
    "solo, SQLite": SoloEnvironment,
    "solo, real clock": lambda _: PacedSoloEnvironment(),
    "ES, perfect network": lambda _: EsEnvironment(),
    "ES, lossy network": lambda _: EsEnvironment(LOSSY, seed=7),
    "ES, one radio hop": lambda _: EsEnvironment(radio=True),
    "LS, perfect network": lambda _: LsEnvironment(),
    "LS, lossy network": lambda _: LsEnvironment(LOSSY, profile=ROBUST, seed=7),
    "LS, one radio hop": lambda _: LsEnvironment(profile=ROBUST, radio=True),
    "DCS, perfect network": lambda _: DcsEnvironment(),
    "DCS, four cells by radio": lambda _: DcsEnvironment(radio=True),
    "DCS robust, perfect network": lambda _: DcsEnvironment(profile=DCS_ROBUST),
    "DCS robust, lossy network": lambda _: DcsEnvironment(LOSSY, profile=DCS_ROBUST, seed=7),
    "DCS robust, four cells by radio": lambda _: DcsEnvironment(profile=DCS_ROBUST, radio=True),
    "ES, hostile member": lambda _: EsEnvironment(hostile=True),
    "LS, hostile member": lambda _: LsEnvironment(hostile=True),
    "DCS robust, hostile member": lambda _: DcsEnvironment(profile=DCS_ROBUST, hostile=True),
    "MobUser, perfect network": lambda _: MobUserEnvironment(),
    "DCS, logical cells, perfect network": lambda _: LogicalCellsEnvironment(),
    "DCS robust, logical cells, lossy network": lambda _: LogicalCellsEnvironment(
        LOSSY, profile=DCS_ROBUST, seed=7
    ),
    "DCS robust, logical cells by radio": lambda _: LogicalCellsEnvironment(
        profile=DCS_ROBUST, radio=True
    ),
    "Infra, perfect network": lambda _: InfraEnvironment(),
    "Infra without a station": lambda _: InfraEnvironment(station=False),
    "Infra robust, lossy network": lambda _: InfraEnvironment(
        LOSSY, profile=LOGICAL_ROBUST, seed=7
    ),
    "Infra robust, lossy network, seed 1": lambda _: InfraEnvironment(
        LOSSY, profile=LOGICAL_ROBUST, seed=1
    ),
    "Infra robust, lossy network, seed 2": lambda _: InfraEnvironment(
        LOSSY, profile=LOGICAL_ROBUST, seed=2
    ),
    "Infra robust, unsteady station": lambda _: UnsteadyStationEnvironment(profile=LOGICAL_ROBUST),
    "Infra, station dies in every step": lambda _: DyingStationEnvironment(),
    "Infra robust, station dies in every step, lossy network": lambda _: DyingStationEnvironment(
        LOSSY, profile=LOGICAL_ROBUST
    ),
    "ES, live, real clock": lambda _: LiveEsEnvironment(),
    "LS, live, real clock": lambda _: LiveLsEnvironment(),
    "ES, live processes, real clock": EsProcesses,
    "LS, live processes, real clock": LsProcesses,
    "DCS, live processes, real clock": DcsProcesses,
}
IN_VIRTUAL_TIME = {name: make for name, make in ENVIRONMENTS.items() if "real clock" not in name}
"""The environments in virtual time."""
CROWDS = {name: make for name, make in ENVIRONMENTS.items() if "solo" not in name}
"""The environments in which each user has a node of its own."""
