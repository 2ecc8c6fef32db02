"""thyme publish, subscribe, retrieve, delete, unsubscribe, status: use a running node.

Clauses: M13–M20, M27.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from argparse import ArgumentParser, Namespace, RawDescriptionHelpFormatter
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from thyme.cli.node import coroutine_runner, require_live
from thyme.cli.option_values import parse_instant, parse_span
from thyme.model.errors import OptionError
from thyme.model.metadata import Metadata
from thyme.model.subscriptions import Notification
from thyme.model.time_frames import format_instant
from thyme.model.worlds import INFRA

if TYPE_CHECKING:
    from thyme.api.world import World
    from thyme.cli.subparsers import Subparsers
    from thyme.live.status import NodeStatus

T = TypeVar("T")
NODE_URL = "http://127.0.0.1:8473"
WATCH_S = 1.0
NODE_TIMEOUT_S = 10.0
"""How long to wait for a node that may still be starting."""
RETRY_S = 0.2
TIMES_HELP = """\
times:
  2h, 30m, 90s, 1d        a time span: before now for --since, from now for --until
  2026-07-10T21:00Z       an instant; local time if it has no zone
"""


def add_to(commands: Subparsers) -> None:
    """Adds the commands to the parser."""
    _add_publish(commands)
    _add_subscribe(commands)
    retrieve = _add_parser(commands, "retrieve", "retrieve a published object", retrieve_command)
    retrieve.add_argument("key", metavar="KEY", help="key of the object, from a notification")
    retrieve.add_argument(
        "-o", "--out", metavar="FILE", type=Path, help="default: standard output", required=False
    )
    versions = _add_parser(
        commands, "versions", "list the versions of an object, latest first", versions_command
    )
    versions.add_argument("key", metavar="KEY", help="key of any version of the object")
    versions.add_argument("--limit", metavar="N", type=int, default=20, help="default: 20")
    delete = _add_parser(commands, "delete", "delete an object of this node", delete_command)
    delete.add_argument("key", metavar="KEY")
    unsubscribe = _add_parser(commands, "unsubscribe", "end a subscription", unsubscribe_command)
    unsubscribe.add_argument("sid", metavar="SID")
    status = _add_parser(commands, "status", "show the status of a node", status_command)
    status.add_argument("--watch", action="store_true", help="refresh until Ctrl-C")
    status.add_argument(
        "--peers", action="store_true", help="show what each neighbour and author costs the node"
    )


def _add_publish(commands: Subparsers) -> None:
    publish = _add_parser(commands, "publish", "store a file for others to find", publish_command)
    publish.add_argument(
        "file", metavar="FILE", type=Path, help="file to publish; - for standard input"
    )
    publish.add_argument("--tags", metavar="A,B", required=True, action="append", help="tags")
    publish.add_argument(
        "--summary", metavar="FILE|TEXT", default="", help="summary sent with each notification"
    )
    publish.add_argument(
        "--oid", metavar="NAME", help="object id, unique among your objects (default: random)"
    )
    publish.add_argument(
        "--life", metavar="SPAN", help="time to live, e.g. 2h (default: unlimited)"
    )
    publish.add_argument("--copies", metavar="N", type=int, default=1,
        help="fail unless N nodes store the object (default: 1)")  # fmt: skip
    publish.add_argument(
        "--durable", action="store_true", help="fail unless these nodes store it on disk"
    )
    publish.add_argument("--updates", metavar="KEY",
        help="publish the file as the latest version of this object of yours")  # fmt: skip
    publish.add_argument("--replicas", metavar="all|N",
        help="how many nodes of this node's cell should store the object, 1 for this node alone "
        "(default: as the world does)")  # fmt: skip


def _add_subscribe(commands: Subparsers) -> None:
    subscribe = _add_parser(
        commands, "subscribe", "print objects that match a query", subscribe_command
    )
    subscribe.formatter_class = RawDescriptionHelpFormatter
    subscribe.epilog = TIMES_HELP
    subscribe.add_argument("query", metavar="QUERY", nargs="?", help="query, in single quotes")
    subscribe.add_argument(
        "--since", metavar="TIME", help="published at or after TIME (default: any time)"
    )
    subscribe.add_argument("--until", metavar="TIME", help="published at or before TIME")
    subscribe.add_argument("--batch", metavar="N", type=int, default=20,
        help="maximum number of past objects, most recent first (default: 20)")  # fmt: skip
    subscribe.add_argument("--follow", action="store_true", help="continue until Ctrl-C")
    subscribe.add_argument(
        "--keep", action="store_true", help="keep the subscription active at exit"
    )
    subscribe.add_argument("--resume", metavar="SID", help="continue a subscription kept by --keep")


def _add_parser(
    commands: Subparsers, name: str, purpose: str, run: Callable[[Namespace], int]
) -> ArgumentParser:
    description = f"{purpose[0].upper()}{purpose[1:]}."
    parser: ArgumentParser = commands.add_parser(name, help=purpose, description=description)
    parser.add_argument("--node", metavar="URL", default=os.environ.get("THYME_NODE") or NODE_URL,
        help=f"URL of the node (default: $THYME_NODE or {NODE_URL})")  # fmt: skip
    parser.add_argument("--json", action="store_true", help="print JSON, one object per line")
    parser.set_defaults(run=run)
    return parser


def publish_command(args: Namespace) -> int:
    """thyme publish FILE --tags A,B"""
    from thyme.cli.option_values import parse_replicas
    from thyme.model.ids import Key

    data = sys.stdin.buffer if str(args.file) == "-" else args.file
    tags = [tag for given in args.tags for tag in given.split(",") if tag.strip()]
    summary = _read_summary(args.summary)
    life = None if args.life is None else parse_span(args.life)
    replicas = parse_replicas(args.replicas)
    updates = None if args.updates is None else Key.parse(args.updates)

    async def publish(world: World) -> None:
        key = await world.insert(
            data,
            tags=tags,
            summary=summary,
            oid=args.oid,
            ttl=life,
            copies=args.copies,
            durable=args.durable,
            replicas=replicas,
            updates=updates,
        )
        print(json.dumps({"key": str(key)}) if args.json else key)

    return _run_in_world(args, publish)


def subscribe_command(args: Namespace) -> int:
    """thyme subscribe QUERY [--since TIME] [--until TIME] [--follow]"""
    if (args.query is None) == (args.resume is None):
        raise OptionError(
            "give a QUERY, or --resume SID for a subscription kept by --keep; not both"
        )
    start = None if args.since is None else parse_instant(args.since, past=True)
    end = None if args.until is None else parse_instant(args.until, past=False)

    async def subscribe(world: World) -> None:
        if args.resume is None:
            subscription = await world.subscribe(args.query, start, end, args.batch)
        else:
            subscription = await world.resume(args.resume)
        _end_on_signals()
        try:
            if args.follow:
                if args.keep:
                    print(f"thyme: subscription {subscription.sid}", file=sys.stderr)
                async for note in subscription:
                    _print_notification(note, args.json)
                print(
                    f"thyme: the subscription has ended: {subscription.end_reason}", file=sys.stderr
                )
            else:
                await subscription.caught_up()
                for note in subscription.drain():
                    _print_notification(note, args.json)
        finally:
            if not (args.keep or args.resume):
                await subscription.cancel()
        if args.keep and not args.follow:
            print(f"thyme: subscription {subscription.sid}", file=sys.stderr)

    return _run_in_world(args, subscribe)


def _end_on_signals() -> None:
    """Makes SIGTERM and SIGHUP (a closed terminal) end the command as Ctrl-C does."""
    import asyncio

    task = asyncio.current_task()
    assert task is not None
    for number in (signal.SIGTERM, signal.SIGHUP):
        asyncio.get_running_loop().add_signal_handler(number, task.cancel, number)


def retrieve_command(args: Namespace) -> int:
    """thyme retrieve KEY -o FILE"""
    from thyme.model.ids import Key

    key = Key.parse(args.key)

    async def retrieve() -> None:
        from thyme.api.remote import download

        with _open_output(args.out) as write:
            page = f"/v1/objects/{key}"
            size = await retry_until_up(lambda: download(args.node, page, write))
        if args.json and args.out is not None:
            print(json.dumps({"key": str(key), "size": size, "file": str(args.out)}))

    require_live()
    coroutine_runner()(retrieve())
    return 0


def versions_command(args: Namespace) -> int:
    """thyme versions KEY"""
    from thyme.model.ids import Key

    key = Key.parse(args.key)

    async def show(world: World) -> None:
        for metadata in await world.versions(key, args.limit):
            _print_object(metadata, args.json)

    return _run_in_world(args, show)


def delete_command(args: Namespace) -> int:
    """thyme delete KEY"""
    from thyme.model.ids import Key

    key = Key.parse(args.key)

    async def delete(world: World) -> None:
        await world.delete(key)
        if args.json:
            print(json.dumps({"key": str(key)}))

    return _run_in_world(args, delete)


def unsubscribe_command(args: Namespace) -> int:
    """thyme unsubscribe SID"""

    async def unsubscribe(world: World) -> None:
        await world.unsubscribe(args.sid)
        if args.json:
            print(json.dumps({"sid": args.sid}))

    return _run_in_world(args, unsubscribe)


def status_command(args: Namespace) -> int:
    """thyme status [--watch] [--peers]"""
    require_live()
    coroutine_runner()(_show_status(args))
    return 0


async def _show_status(args: Namespace) -> None:
    import asyncio

    import msgspec
    from aiohttp import ClientSession
    from rich.live import Live

    from thyme.api.remote import fetch_any_status, fetch_shares, normalise_url
    from thyme.cli.operations.shares_output import shares_tables
    from thyme.cli.station_output import any_status_table
    from thyme.cli.terminal import Terminal

    base, terminal = normalise_url(args.node), Terminal()
    fetch: Any = fetch_shares if args.peers else fetch_any_status
    make_table: Any = shares_tables if args.peers else any_status_table
    async with ClientSession() as session:
        status = await retry_until_up(lambda: fetch(session, base))
        if args.json:
            print(msgspec.json.encode(status).decode(), flush=True)
            while args.watch:
                await asyncio.sleep(WATCH_S)
                print(msgspec.json.encode(await fetch(session, base)).decode(), flush=True)
        elif not (args.watch and terminal.is_terminal):
            terminal.print(make_table(status))
            while args.watch:
                await asyncio.sleep(WATCH_S)
                terminal.print(make_table(await fetch(session, base)))
        else:
            with Live(make_table(status), console=terminal, screen=True) as view:
                while True:
                    await asyncio.sleep(WATCH_S)
                    view.update(make_table(await fetch(session, base)))


def _clock_text(ahead_us: int | None) -> str:
    """The difference between the clock of a neighbour and that of the node (M36)."""
    return "" if ahead_us is None else f", clock {ahead_us / 1e6:+.1f} s"


def status_table(status: NodeStatus) -> Any:
    """Formats the status of a node as a table."""
    from rich.table import Table

    table = Table(box=None, show_header=False, pad_edge=False)
    table.add_column(style="bold")
    table.add_column()
    world = status.world
    where = "" if world.area_m is None else f", {world.area_m[0]:g}x{world.area_m[1]:g} m"
    paper = ", profile paper" if world.profile == "paper" else ""
    table.add_row("world", f"{world.name} ({world.substrate}{where}{paper}), {world.wid}")
    if world.ends_us is not None:
        table.add_row("ends", format_instant(world.ends_us))
    table.add_row("node", f"{status.node} at {', '.join(status.addresses) or status.address}")
    if world.server is not None:
        table.add_row("server", "this node" if world.server == status.node else world.server)
    if status.cell is not None:
        table.add_row("cell", f"{status.cell}{'' if status.serving else ' (joining)'}")
    if world.substrate == INFRA:
        table.add_row("station", status.base_station or "none in range")
    if status.reach_m is not None:
        table.add_row("reach", f"cells up to {status.reach_m:.0f} m away are heard")
    table.add_row("up", str(timedelta(seconds=status.up_us // 1_000_000)))
    table.add_row("neighbours", str(len(status.neighbours)))
    for neighbour in status.neighbours[:20]:
        silent_s = neighbour.silent_us / 1e6
        clock = _clock_text(neighbour.clock_ahead_us)
        table.add_row("", f"{neighbour.node} at {neighbour.address}, {silent_s:.1f} s ago{clock}")
    if status.routes is not None:
        table.add_row("reachable", str(status.routes))
    kept = status.storage
    where = f"{kept.file_bytes:,} bytes on the disk" if kept.durable else "in memory"
    where += ", which is full" if kept.full else ""
    table.add_row("storage", f"{kept.objects} objects, {kept.metadata} known, {where}")
    for cause, count in kept.removed.items():
        table.add_row("removed", f"{count} {cause}")
    own, standing = status.subscriptions_own, status.subscriptions_standing
    table.add_row("subscriptions", f"{own} own, {standing} matched here")
    table.add_row("applications", str(status.applications))
    for cause, count in status.dropped.items():
        table.add_row("dropped", f"{count} {cause}")
    if (events := status.events) is not None:
        table.add_row("events", f"{events.written} exported, {events.dropped} dropped")
    if status.hint is not None:
        table.add_row("look into", status.hint)
    return table


def _run_in_world(args: Namespace, action: Callable[[World], Awaitable[object]]) -> int:
    """Calls `act` with the world of a running node; returns the exit status."""
    require_live()
    from thyme.api.remote import open_remote
    from thyme.api.world import World

    async def run() -> None:
        async with World(lambda: retry_until_up(lambda: open_remote(args.node, None))) as world:
            await action(world)

    from asyncio import CancelledError

    try:
        coroutine_runner()(run())
    except CancelledError as stopped:
        return 128 + int(stopped.args[0])
    return 0


async def retry_until_up(request: Callable[[], Awaitable[T]]) -> T:
    """Calls `ask`; while no node answers, retries until the timeout."""
    import asyncio

    from thyme.api.remote import NodeUnreachableError

    end_s = time.monotonic() + NODE_TIMEOUT_S
    announced = False
    while True:
        try:
            return await request()
        except NodeUnreachableError as error:
            if not error.not_listening or time.monotonic() >= end_s:
                raise
        if not announced:
            announced = True
            print(f"thyme: waiting for a node, {NODE_TIMEOUT_S:g} s at most", file=sys.stderr)
        await asyncio.sleep(RETRY_S)


def _print_notification(note: Notification, as_json: bool) -> None:
    _print_object(note.metadata, as_json, past=note.from_history)


def _print_object(metadata: Metadata, as_json: bool, **more: bool) -> None:
    text = metadata.summary.decode(errors="replace")
    if as_json:
        entry = {
            "key": str(metadata.key),
            "tags": metadata.tags,
            "summary": text,
            "published_us": metadata.published_us,
            "size": metadata.size,
            **more,
        }
        print(json.dumps(entry), flush=True)
        return
    columns = [format_instant(metadata.published_us), str(metadata.key), ",".join(metadata.tags)]
    printable = "".join(char if char.isprintable() else " " for char in text)
    print("  ".join([*columns, f"{metadata.size} bytes", printable[:80]]).rstrip(), flush=True)


# Input and output


@contextmanager
def _open_output(file: Path | None) -> Iterator[Callable[[bytes], object]]:
    """Yields the function that writes the output; a file appears only when it is complete."""
    if file is None or str(file) == "-":
        yield sys.stdout.buffer.write
        return
    from thyme.api.content import open_whole

    with open_whole(file) as opened:
        yield opened.write


def _read_summary(given: str) -> bytes:
    """The contents of the file of this name, or else the text itself."""
    try:
        file = Path(given)
        return file.read_bytes() if given and file.is_file() else given.encode()
    except (OSError, ValueError):  # not a valid file name
        return given.encode()
