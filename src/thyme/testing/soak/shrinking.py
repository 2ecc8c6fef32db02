"""Soak shrinking: leaves out parts of a failing soak run that its violation does not need.

Entry point: `shrink`. Nodes, faults, movements and operations are left out: half of them, then a
quarter, and so on down to single ones, as long as the run still has a violation of the same kind.
Clause: B12.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec

from thyme.sim.faults.schedule import Crash, Fault, FaultSchedule, Heal, Leave, Partition, Restart

RUNS_MAX = 300
"""The maximum number of runs to shrink one."""


class Omitted(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The parts of a soak run that are left out, by their numbers."""

    nodes: frozenset[int] = frozenset()
    """Nodes that are never switched on."""
    faults: frozenset[int] = frozenset()
    """Faults; a device that stops and restarts is one fault, and so is a partition and its end."""
    moves: frozenset[int] = frozenset()
    """Nodes that stay where they are."""
    operations: frozenset[int] = frozenset()

    def with_more(self, part: str, numbers: Sequence[int]) -> Omitted:
        """Also leaves out more of one part."""
        return msgspec.structs.replace(self, **{part: getattr(self, part) | set(numbers)})


class SoakParts(msgspec.Struct, frozen=True):
    """The number of parts of a complete soak run; the names are those of `Omitted`."""

    operations: int
    faults: int
    moves: int
    nodes: int


def group_faults(schedule: FaultSchedule) -> list[list[Fault]]:
    """Groups the faults of a schedule so that each group can be left out alone."""
    groups: list[list[Fault]] = []
    open_groups: dict[int | str, list[Fault]] = {}
    for fault in schedule:
        subject = "partition" if isinstance(fault, Partition | Heal) else None
        key = fault.node if isinstance(fault, Crash | Leave | Restart) else subject
        if isinstance(fault, Restart | Heal) and key in open_groups:
            open_groups.pop(key).append(fault)
            continue
        groups.append([fault])
        if key is not None:
            open_groups[key] = groups[-1]
    return groups


def violation_kinds(violations: Sequence[str]) -> set[str]:
    """The kinds of violations; their texts begin with an instant and the kind."""
    return {violation.split(": ")[1] for violation in violations}


def shrink(
    parts: SoakParts, violations: Sequence[str], run: Callable[[Omitted], Sequence[str]]
) -> Omitted:
    """Returns what can be left out of a failing run; `run` returns the violations of a shorter
    one."""
    kinds = violation_kinds(violations)
    omitted, runs = Omitted(), 0
    for part in ("nodes", "faults", "moves", "operations"):
        size = getattr(parts, part)
        step = max(1, size // 2)
        while size and step:
            left = [number for number in range(size) if number not in getattr(omitted, part)]
            for start in range(0, len(left), step):
                if runs == RUNS_MAX:
                    return omitted
                shorter = omitted.with_more(part, left[start : start + step])
                runs += 1
                if kinds & violation_kinds(run(shorter)):
                    omitted = shorter
            step //= 2
    return omitted
