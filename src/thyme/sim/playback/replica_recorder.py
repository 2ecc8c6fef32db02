"""Replica recorder: writes changes of the replicas of objects to the recording of a run.

Entry point: `ReplicaRecorder.record_changes`, called periodically during a recorded run.
Clauses: S17, D3.
"""

from __future__ import annotations

from thyme.map.recording import Recorder, ReplicaEvent
from thyme.sim.faults.devices import Devices
from thyme.substrates.dcs.node import DcsNode
from thyme.substrates.dcs.state.replica_store import ReplicaRole


class ReplicaRecorder:
    """Writes changes of the replicas of objects to the recording (S17); Thyme-DCS only."""

    def __init__(self, devices: Devices, recorder: Recorder) -> None:
        self._devices = devices
        self._recorder = recorder
        self._recorded: list[dict[str, str]] = [{} for _ in range(len(devices))]

    def record_changes(self, at_us: int) -> None:
        """Records the replicas that were added, changed or removed since the last call.

        Instants count from the start of the run.
        """
        for number, recorded in enumerate(self._recorded):
            node = self._devices.node_of(number)
            now = _replica_roles(node) if isinstance(node, DcsNode) else {}
            if now == recorded:
                continue
            for name, role in now.items():
                if recorded.get(name) != role:
                    self._recorder.write_event(ReplicaEvent(at_us, number, name, role))
            for name in recorded:
                if name not in now:
                    self._recorder.write_event(ReplicaEvent(at_us, number, name, ""))
            self._recorded[number] = now


def _replica_roles(node: DcsNode) -> dict[str, str]:
    """Returns the role of each object that a node stores, by object id."""
    return {
        held.metadata.oid: role.value
        for role in ReplicaRole
        for held in node.replicas.with_role(role)
    }
