"""The example on the simulator's page runs, and its tables are complete."""

from __future__ import annotations

import re
from pathlib import Path
from typing import get_args

import pytest

from thyme.map import recording as recorder
from thyme.map.recording import FaultEvent, Recording
from thyme.sim.faults import schedule
from thyme.sim.faults.devices import LEAVE_GRACE_US
from thyme.sim.faults.network_faults import DUPLICATE_DELAY_US_MAX
from thyme.sim.measurement.measurements import Measurements

PAGE = (Path(__file__).parents[2] / "docs" / "simulator.md").read_text("utf-8")


def test_the_example_runs(capsys: pytest.CaptureFixture[str]) -> None:
    [program] = re.findall(r"```python\n(.*?)```", PAGE, flags=re.S)
    names: dict[str, object] = {}
    exec(program, names)
    measured, recording = names["measured"], names["recording"]
    assert isinstance(measured, Measurements)
    assert capsys.readouterr().out == f"{measured.frames} frames, {measured.joules:.0f} J\n"
    assert measured.joules > 1_000
    fault_events = [event for event in _events(recording) if isinstance(event, FaultEvent)]
    assert len(fault_events) > 6


def _events(recording: object) -> list[recorder.RecordedEvent]:
    data = recording.getvalue()  # type: ignore[attr-defined]
    return list(Recording(data.splitlines()))


def test_s17_every_line_of_a_recording_is_explained() -> None:
    listed = re.findall(r"^\| `\[\"(\w+)\",t", PAGE, flags=re.M)
    assert listed == [kind.__struct_config__.tag for kind in get_args(recorder.RecordedEvent)]


def test_s8_every_fault_is_explained() -> None:
    rows = re.findall(r"^\| ((?:`[A-Z]\w+`(?:, )?)+) \| ", PAGE, flags=re.M)
    named = {name for row in rows for name in re.findall(r"\w+", row)}
    assert named == {kind.__name__ for kind in get_args(schedule.Fault)}
    assert f"has {LEAVE_GRACE_US // 1_000} ms to send its last messages" in PAGE
    assert f"up to {DUPLICATE_DELAY_US_MAX // 1_000} ms later" in PAGE
