"""The files in deploy/: accepted by the programs that read them, and about things that exist."""

from __future__ import annotations

import json
import re
import shlex
import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from thyme.cli import _parser
from thyme.daemon import metrics
from thyme.daemon.station_status import render_station
from thyme.live.shared_node import RequestStats
from thyme.live.status import EventsStatus, NodeStatus, StationStatus, StorageStatus, WorldStatus

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
INSTRUCTIONS = {
    "FROM", "WORKDIR", "COPY", "RUN", "USER", "VOLUME", "EXPOSE", "STOPSIGNAL", "HEALTHCHECK",
    "ENTRYPOINT", "CMD",
}  # fmt: skip


NODE = NodeStatus(
    version="0",
    node="00",
    world=WorldStatus(name="lisbon", wid="w", substrate="ls"),
    address="127.0.0.1:1",
    now_us=0,
    up_us=0,
    neighbours=(),
    routes=None,
    cell=None,
    serving=True,
    storage=StorageStatus(objects=0, metadata=0, durable=True, file_bytes=0),
    subscriptions_own=0,
    subscriptions_standing=0,
    applications=0,
    dropped={},
    events=EventsStatus(written=0, dropped=0, removed=0),
)
STATION = StationStatus(
    version="0",
    station="north",
    node="00",
    address="",
    wired_address="",
    now_us=0,
    up_us=0,
    worlds=(),
    mobiles=0,
    addresses=0,
    caches={},
    stations=(),
    needs=0,
    popular=0,
    parked=0,
    deletes=0,
    deletes_unconfirmed=0,
    counts={},
    dropped={},
    durable=True,
    full=False,
    not_saved=0,
)


def exported_metrics() -> set[str]:
    """The metrics that nodes and stations export, and `up`, which Prometheus adds."""
    counted: Any = SimpleNamespace(datagrams=Counter(), bytes=Counter(), unsent=Counter())
    station: Any = SimpleNamespace(
        sockets=counted, links=SimpleNamespace(wires=SimpleNamespace(bytes=Counter()))
    )
    node = metrics.render(NODE, RequestStats(), counted)
    lines = (node + render_station(STATION, station)).splitlines()
    return {"up", *(line.split()[2] for line in lines if line.startswith("# TYPE"))}


def metrics_in(expression: str) -> set[str]:
    return set(re.findall(r"\b(?:thyme_\w+|up)\b(?=[\[{ )]|$)", expression))


def program(name: str) -> str:
    found = shutil.which(name)
    if found is None:
        pytest.skip(f"{name} is not installed")
    return found


def test_systemd_accepts_the_unit(tmp_path: Path) -> None:
    analyze = program("systemd-analyze")
    unit = (DEPLOY / "systemd" / "thyme-node.service").read_text()
    assert "/opt/thyme/bin/thyme" in unit
    copy = tmp_path / "thyme-node.service"
    command = tmp_path / "thyme"  # a path of its own: that of the checkout may contain a space
    command.symlink_to(sys.executable)
    copy.write_text(unit.replace("/opt/thyme/bin/thyme", str(command)))

    done = subprocess.run([analyze, "verify", str(copy)], capture_output=True, text=True)

    assert (done.returncode, done.stderr) == (0, "")


def test_the_unit_starts_the_node_with_options_that_exist() -> None:
    unit = (DEPLOY / "systemd" / "thyme-node.service").read_text()
    environment = dict(
        line.split("=", 1)
        for line in (DEPLOY / "systemd" / "node.env.example").read_text().splitlines()
        if "=" in line and not line.startswith("#")
    )
    (start,) = re.findall("^ExecStart=(.*)$", unit, re.M)
    for name, value in {**environment, "STATE_DIRECTORY": "/var/lib/thyme"}.items():
        start = start.replace(f"${{{name}}}", value).replace(f"${name}", value)

    args = _parser().parse_args(shlex.split(start)[1:])

    assert (args.world, args.interface, str(args.data)) == ("lisbon", ["all"], "/var/lib/thyme")


def instructions() -> list[tuple[str, str]]:
    text = (DEPLOY / "container" / "Containerfile").read_text().replace("\\\n", " ")
    lines = [line.strip() for line in text.splitlines()]
    pairs = [line.partition(" ") for line in lines if line and not line.startswith("#")]
    return [(word, rest) for word, _, rest in pairs]


def test_the_container_file_is_well_formed_and_does_not_run_as_root() -> None:
    found = instructions()

    assert {word for word, _ in found} <= INSTRUCTIONS
    images = [rest.split()[0] for word, rest in found if word == "FROM"]
    assert all(re.fullmatch(r"[\w./-]+:[\w.-]+", image) for image in images)
    assert not any(image.endswith(":latest") for image in images)
    users = [rest for word, rest in found if word == "USER"]
    assert users
    assert users[-1] not in ("root", "0")
    for word, rest in found:
        if word == "COPY" and not rest.startswith("--from"):
            assert all((ROOT / source).exists() for source in rest.split()[:-1]), rest
        if word in ("CMD", "ENTRYPOINT"):
            assert all(isinstance(part, str) for part in json.loads(rest))


def test_hadolint_accepts_the_container_file() -> None:
    file = DEPLOY / "container" / "Containerfile"
    done = subprocess.run([program("hadolint"), str(file)], capture_output=True, text=True)

    assert (done.returncode, done.stdout) == (0, "")


def test_promtool_accepts_the_alerts_and_their_tests_pass() -> None:
    promtool = program("promtool")
    folder = DEPLOY / "prometheus"
    for words in (["check", "rules", "alerts.yml"], ["test", "rules", "alerts_test.yml"]):
        done = subprocess.run([promtool, *words], cwd=folder, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr


def test_the_alerts_are_about_metrics_that_nodes_export() -> None:
    text = (DEPLOY / "prometheus" / "alerts.yml").read_text()
    rules = "".join(line for line in text.splitlines(True) if not line.lstrip().startswith("#"))
    expressions = re.findall(r"expr: (.*?)\n +(?:for|labels):", rules, re.S)

    assert len(expressions) == rules.count("- alert:")
    for expression in expressions:
        assert metrics_in(expression)
        assert metrics_in(expression) <= exported_metrics(), expression


def test_the_dashboard_shows_metrics_that_nodes_export() -> None:
    dashboard = json.loads((DEPLOY / "grafana" / "thyme.json").read_text())
    shown: set[str] = set()
    for panel in dashboard["panels"]:
        for target in panel["targets"]:
            assert metrics_in(target["expr"]), panel["title"]
            shown |= metrics_in(target["expr"])

    assert shown <= exported_metrics()
    assert len({panel["id"] for panel in dashboard["panels"]}) == len(dashboard["panels"])
    places = [tuple(panel["gridPos"][side] for side in "xy") for panel in dashboard["panels"]]
    assert len(set(places)) == len(places)
