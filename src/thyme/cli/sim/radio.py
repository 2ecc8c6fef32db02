"""thyme sim radio: replays raw sends on the simulated radio, or compares it with ns-3.

Replays a file of sends without any protocol and writes the result of each send; or, as a self-test,
replays the reference sets and compares the results with those of ns-3.
Clauses: S1–S5.
"""

from __future__ import annotations

import json
import math
import os
import sys
from argparse import ArgumentParser, Namespace, RawDescriptionHelpFormatter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

from thyme.model.errors import OptionError, safe_repr

if TYPE_CHECKING:
    from thyme.cli.subparsers import Subparsers
    from thyme.sim.radio.radio import RadioConfig
    from thyme.sim.validation.raw_replay import RawSend, ReplayResult, SendResult
    from thyme.sim.validation.selftest import Comparison

AGREES, DIFFERS = 0, 1
STANDARDS = ("802.11g", "802.11b")
PROPAGATIONS = ("log-distance", "disk")
TABLE_COLUMNS = 112
COLUMNS = "id,n_rx,n_tx,delay_mean_us,dropped"

HELP = """\
files:
  positions   node,x,y           nodes 0, 1, 2 … in order, positions in metres
  sends       id,t,src,dst,size  t in seconds; dst -1: broadcast; size: bytes of UDP payload
  out         id,n_rx,n_tx,delay_mean_us,dropped, one line for each send:
              number of receivers, number of transmissions, mean delay (-1 if no receiver),
              and the reason if the sender dropped it:
              exceeded (7 transmissions), full (the queue), stale (500 ms in the queue)

The radio is 802.11g at 6 Mb/s with log-distance propagation and interference. All frames have the
same --rate, in Mb/s:
  802.11g     6, 9, 12, 18, 24, 36, 48 or 54
  802.11b     1, 2, 5.5 or 11
--range is the distance at which half of the frames with 300 bytes of payload are received; without
it, higher rates have shorter ranges. With --propagation disk, a frame is received by every node
within the range and by none beyond, unless another frame overlaps it at the receiver. The same
seed gives the same bytes. docs/simulator.md describes the model.

exit status: 0 success, 1 the self-test found a difference, 2 error

examples:
  printf 'node,x,y\\n0,0,0\\n1,80,0\\n2,160,0\\n' >positions.csv
  printf 'id,t,src,dst,size\\n0,1.0,1,-1,300\\n1,1.5,0,1,300\\n' >sends.csv
  thyme sim radio --positions positions.csv --sends sends.csv --out result.csv
  thyme sim radio --positions positions.csv --sends sends.csv --out result.csv --seed 2 --json
  thyme sim radio --positions positions.csv --sends sends.csv --out result.csv \\
      --standard 802.11b --rate 5.5 --range 100
  thyme sim radio --selftest --quick     compare with ns-3, few seeds (all without --quick)
"""


def add_to(group: Subparsers) -> None:
    """Adds the command to the parser."""
    parser: ArgumentParser = group.add_parser(
        "radio",
        help="replay raw sends, or compare the radio with ns-3",
        description="Replay raw sends on the simulated radio, or compare it with ns-3.",
        epilog=HELP,
        formatter_class=RawDescriptionHelpFormatter,
    )
    parser.add_argument("--positions", metavar="FILE", type=Path, help="positions of the nodes")
    parser.add_argument("--sends", metavar="FILE", type=Path, help="sends to replay")
    parser.add_argument("--out", metavar="FILE", type=Path, help="file for the result of each send")
    parser.add_argument(
        "--range",
        metavar="M",
        type=float,
        help="metres (default: range of the rate, 113 at 6 Mb/s)",
    )
    parser.add_argument("--standard", metavar="NAME", help=_with_default(STANDARDS))
    parser.add_argument("--rate", metavar="MBPS", type=float, help="default: the lowest rate")
    parser.add_argument("--propagation", metavar="NAME", help=_with_default(PROPAGATIONS))
    parser.add_argument("--seed", metavar="N", type=int, default=1, help="random seed (default: 1)")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--selftest", action="store_true", help="compare with the results of ns-3")
    parser.add_argument("--quick", action="store_true", help="self-test with few seeds")
    parser.add_argument(
        "--jobs", metavar="N", type=int, help="processes of the self-test (default: one per core)"
    )
    parser.set_defaults(run=radio_command)


def radio_command(args: Namespace) -> int:
    """thyme sim radio --positions FILE --sends FILE --out FILE; or --selftest"""
    return _selftest(args) if args.selftest else _replay(args)


# Replay


def _replay(args: Namespace) -> int:
    _check_options(args)
    from thyme.sim.validation.csv_files import read_positions, read_sends
    from thyme.sim.validation.raw_replay import replay_sends

    config = _make_config(args)
    positions = read_positions(args.positions)
    sends = read_sends(args.sends, len(positions))
    with _atomic_file(args.out) as out:
        result = replay_sends(positions, sends, seed=args.seed, config=config)
        out.write(f"{COLUMNS}\n")
        out.writelines(_result_lines(sends, result.sends))
    totals = _totals(result)
    if args.json:
        print(json.dumps(totals))
    else:
        _print_totals(totals, args.out)
    return AGREES


def _make_config(args: Namespace) -> RadioConfig:
    """Builds the radio configuration from the options."""
    from thyme.sim.radio.phy import make_phy
    from thyme.sim.radio.radio import RadioConfig
    from thyme.sim.radio.unit_disk import UnitDisk

    try:
        phy = make_phy(args.standard or STANDARDS[0], args.rate)
    except OptionError as error:
        raise OptionError(f"--rate: {error}") from None
    if args.range is not None:
        phy = phy.with_range(args.range)
    disk = None
    if args.propagation == "disk":
        range_m = phy.range_m() if args.range is None else args.range
        disk = UnitDisk(range_m=range_m, interference_m=phy.reach_m(phy.carrier_sense_dbm))
    return RadioConfig(phy=phy, unit_disk=disk)


def _check_options(args: Namespace) -> None:
    """Checks combinations and values that argparse cannot check."""
    for option in ("positions", "sends", "out"):
        if getattr(args, option) is None:
            raise OptionError(f"--{option} FILE is missing; or use --selftest")
    if args.quick or args.jobs is not None:
        raise OptionError("--quick and --jobs belong to --selftest")
    if args.range is not None and not (math.isfinite(args.range) and args.range > 0):
        raise OptionError(f"--range must be a number of metres above 0, not {args.range}")
    for option, known in (("standard", STANDARDS), ("propagation", PROPAGATIONS)):
        given = getattr(args, option)
        if given is not None and given not in known:
            raise OptionError(
                f"--{option} {safe_repr(given)} is unknown; there is {', '.join(known)}"
            )
    for option in ("positions", "sends"):
        if args.out.exists() and args.out.resolve() == getattr(args, option).resolve():
            raise OptionError(f"--out would replace --{option}: {args.out}")


def _with_default(names: tuple[str, ...]) -> str:
    return f"{names[0]} (the default) or {names[1]}"


def _result_lines(sends: list[RawSend], results: Iterable[SendResult]) -> Iterator[str]:
    """Formats one line per send, in the order of the file."""
    by_id = {result.id: result for result in results}
    for send in sends:
        result = by_id[send.id]
        delay = result.delay_us if result.receivers else -1
        yield (f"{result.id},{result.receivers},{result.transmissions},{delay},{result.dropped}\n")


@contextmanager
def _atomic_file(path: Path) -> Iterator[TextIO]:
    """Opens a file that is renamed into place only when it is complete.

    The target of a symbolic link is replaced, not the link. Devices and pipes (/dev/stdout) are
    rejected, because they cannot be replaced atomically.
    """
    target = path.resolve()
    if (target.exists() and not target.is_file()) or target.is_relative_to("/proc"):
        raise OptionError(f"--out must be a regular file: {path} is not")
    if path.parent == Path("/dev"):
        raise OptionError(f"--out must be a regular file: {path} is a device")
    if not target.parent.is_dir():
        raise OptionError(f"--out {path}: there is no folder {target.parent}")
    part = target.with_name(f".{target.name}.{os.getpid()}.part")
    try:
        with part.open("w", encoding="ascii", newline="") as file:
            yield file
        part.replace(target)
    finally:
        part.unlink(missing_ok=True)


def _totals(result: ReplayResult) -> dict[str, Any]:
    from statistics import fmean

    from thyme.sim.validation.selftest import upper_quantile

    delays = result.delays_us()
    return {
        "frames": result.frames,
        "retransmissions": result.retransmissions,
        "exceeded": result.exceeded,
        "bytes": result.bytes_sent,
        "receptions": result.receptions,
        "delay_ms": {
            "mean": round(fmean(delays) / 1000, 6) if delays else None,
            "p50": upper_quantile(delays, 0.50) / 1000 if delays else None,
            "p95": upper_quantile(delays, 0.95) / 1000 if delays else None,
        },
        "wall_s": round(result.wall_s, 6),
    }


def _print_totals(totals: dict[str, Any], out: Path) -> None:
    """Prints the totals as text."""
    from rich.table import Table

    from thyme.cli.terminal import Terminal

    table = Table(box=None, show_header=False, pad_edge=False)
    table.add_column(style="bold")
    table.add_column(justify="right")
    table.add_column()
    for name, meaning in (
        ("frames", "transmitted, with acknowledgements and retransmissions"),
        ("retransmissions", "after a missing acknowledgement"),
        ("exceeded", "sends dropped after the last transmission"),
        ("bytes", "transmitted, with MAC headers"),
        ("receptions", "of sends, at their destinations"),
    ):
        table.add_row(name, f"{totals[name]:,}", meaning)
    for name, delay_ms in totals["delay_ms"].items():
        shown_ms = "none" if delay_ms is None else f"{delay_ms:.3f} ms"
        table.add_row(f"delay {name}", shown_ms, "from send to reception")
    table.add_row("wall", f"{totals['wall_s']:.3f} s", f"result of each send: {out}")
    Terminal().print(table, soft_wrap=True)


# Self-test


def _selftest(args: Namespace) -> int:
    from thyme.sim.validation.selftest import all_passed, run_selftest

    if args.positions or args.sends or args.out:
        raise OptionError("--selftest has its own positions and sends, and writes no file")
    for option in ("standard", "rate", "propagation", "range"):
        if getattr(args, option) is not None:
            raise OptionError(f"--selftest has its own radio; --{option} cannot be used with it")
    if args.jobs is not None and args.jobs < 1:
        raise OptionError(f"--jobs must be at least 1, not {args.jobs}")
    progress = _print_progress if sys.stderr is not None and sys.stderr.isatty() else None
    rows = run_selftest(quick=args.quick, jobs=args.jobs, on_progress=progress)
    agrees = all_passed(rows)
    if args.json:
        print(json.dumps({"passed": agrees, "rows": [_row_as_json(row) for row in rows]}))
    else:
        _print_rows(rows)
    return AGREES if agrees else DIFFERS


def _print_progress(done: int, total: int) -> None:
    print(
        f"\r{done} of {total} cases", end="\n" if done == total else "", file=sys.stderr, flush=True
    )


def _row_as_json(row: Comparison) -> dict[str, Any]:
    from msgspec.structs import asdict

    return asdict(row)


def _print_rows(rows: list[Comparison]) -> None:
    """Prints the comparisons as a table."""
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    from thyme.cli.terminal import Terminal

    table = Table(box=SIMPLE_HEAD, show_edge=False)
    for name in ("set", "case", "quantity"):
        table.add_column(name, no_wrap=True)
    for name in ("ns-3", "ours", "off by", "at most"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("")
    for row in rows:
        style = "red" if row.ok is False else None
        table.add_row(*format_row(row), style=style)
    judged = [row for row in rows if row.ok is not None]
    good = sum(bool(row.ok) for row in judged)
    console = Terminal()
    # On a narrow terminal, wrapped lines are better than truncated numbers.
    console.width = max(console.width, TABLE_COLUMNS)
    console.print(table)
    console.print(f"\n{good} of {len(judged)} comparisons with ns-3.44 agree")


def format_row(row: Comparison) -> tuple[str, ...]:
    """Formats a comparison as the cells of a table row."""
    share = "%" if row.relative else ""
    scale = 100 if row.relative else 1
    digits = 1 if row.relative else 3
    return (
        row.set,
        row.case,
        row.quantity,
        _format_number(row.reference),
        _format_number(row.ours),
        f"{scale * row.deviation:+.{digits}f}{share}",
        f"{scale * row.tolerance:.{0 if row.relative else 2}f}{share}",
        {True: "ok", False: "DIFFERS", None: "not judged"}[row.ok],
    )


def _format_number(value: float) -> str:
    return f"{value:.3f}" if abs(value) < 100 else f"{value:,.0f}"
