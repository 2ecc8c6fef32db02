"""thyme gallery: shares photos of a world on a web page, for this machine and for phones near it.

The command runs one node for each world, unless running nodes are named, and the gallery as their
client. Clauses: M21, M24.
"""

from __future__ import annotations

import asyncio
import json
import socket
import sys
import tempfile
from argparse import ArgumentParser, Namespace, RawDescriptionHelpFormatter
from contextlib import AsyncExitStack
from pathlib import Path
from typing import TYPE_CHECKING

from thyme.cli import node
from thyme.cli.option_values import parse_bytes, parse_span
from thyme.distribution import install_hint
from thyme.model.errors import OptionError, safe_repr

if TYPE_CHECKING:
    from thyme.cli.subparsers import Subparsers
    from thyme.daemon.daemon import DaemonOptions
    from thyme.gallery.settings import GallerySettings
    from thyme.gallery.web.server import ServedGallery

WORLD = "gallery"
PORT = 8480
HTTP_ADDRESS = f"127.0.0.1:{PORT}"
HELP = f"""\
Opens a gallery at http://{HTTP_ADDRESS}, for this machine only. With --lan, phones in the same
Wi-Fi network open it by scanning a code, and their owners publish photos as guests of this node.
The connection of guests is plain HTTP unless --tls gives a certificate. Several galleries run side
by side with several --world. See docs/gallery.md.

examples:
  thyme gallery --create --lan
  thyme gallery --world lisbon
  thyme gallery --world lisbon --create --lan --approve
  thyme gallery --node http://127.0.0.1:8473 --lan
"""


def add_to(commands: Subparsers) -> None:
    """Adds the command to the parser."""
    parser: ArgumentParser = commands.add_parser(
        "gallery",
        help="share photos on a web page, with phones as guests",
        description="Share photos of a world on a web page.",
        epilog=HELP,
        formatter_class=RawDescriptionHelpFormatter,
    )
    parser.add_argument("--world", metavar="NAME", action="append", default=[],
        help=f"name of the world; may be repeated (default: {WORLD})")  # fmt: skip
    parser.add_argument("--create", action="store_true", help="create the worlds")
    parser.add_argument("--area", metavar="WxH",
        help="area of a new world in metres: its devices then store photos together")  # fmt: skip
    parser.add_argument("--node", metavar="URL", action="append", default=[],
        help="use a running node instead of starting one; may be repeated")  # fmt: skip
    parser.add_argument("--data", metavar="DIR", type=Path, default=node.DATA_DIR,
        help=f"folder for stored data (default: {node.DATA_DIR})")  # fmt: skip
    parser.add_argument("--memory", action="store_true", help="store nothing beyond the end")
    parser.add_argument("--http", metavar="A:PORT", default=HTTP_ADDRESS,
        help=f"address of the page for this machine (default: {HTTP_ADDRESS})")  # fmt: skip
    parser.add_argument("--lan", metavar="A:PORT", nargs="?", const="",
        help="serve the page to guests, too (default: the address of the network interface, "
        f"port {PORT})")  # fmt: skip
    parser.add_argument("--lan-name", metavar="NAME", action="append", default=[],
        help="a further host name by which guests reach this machine")  # fmt: skip
    parser.add_argument("--tls", metavar=("CERT", "KEY"), nargs=2, type=Path,
        help="encrypt the connections of guests with this certificate and key")  # fmt: skip
    parser.add_argument("--name", metavar="NAME", default="Host", help="your name (default: Host)")
    parser.add_argument("--guests", metavar="RIGHT", choices=("look", "publish"), default="publish",
        help="what guests may do: look or publish (default: publish)")  # fmt: skip
    parser.add_argument("--approve", action="store_true",
        help="photos of guests wait until the host approves them")  # fmt: skip
    parser.add_argument("--guest-bytes", metavar="N", default="2G",
        help="how much each guest may publish (default: 2G)")  # fmt: skip
    parser.add_argument("--guest-photos", metavar="N", type=int, default=1_000,
        help="how many photos each guest may publish (default: 1000)")  # fmt: skip
    parser.add_argument("--file-bytes", metavar="N", default="2G",
        help="size limit of one file (default: 2G)")  # fmt: skip
    parser.add_argument("--keep", metavar="N", default="2G",
        help="how much to keep of the photos of other devices, so that they outlive their device; "
        "0 for nothing (default: 2G)")  # fmt: skip
    parser.add_argument("--visit", metavar="SPAN", default="7d",
        help="how long a guest stays known (default: 7d)")  # fmt: skip
    parser.add_argument("--control", metavar="A:PORT",
        help="address of the node for applications (default: 127.0.0.1:8473 if it is free)"
    )  # fmt: skip
    parser.add_argument("--secret-file", metavar="FILE", type=Path,
        help="file with the secret of a closed world; or set THYME_SECRET")  # fmt: skip
    node.add_network(parser)
    parser.add_argument("--log-json", action="store_true", help="log as JSON, one line per event")
    parser.add_argument("--json", action="store_true",
        help="print the addresses as one JSON object")  # fmt: skip
    parser.set_defaults(run=gallery_command)


def gallery_command(args: Namespace) -> int:
    """thyme gallery [--world NAME] [--create] [--lan]"""
    node.require_live()
    _require_gallery()
    from thyme.daemon import logs

    if args.node and (args.world or args.create):
        raise OptionError("use --node or --world, not both: a running node has its world")
    logs.configure(as_json=args.log_json)
    node.coroutine_runner()(_run(args))
    return 0


def _require_gallery() -> None:
    from importlib.util import find_spec

    if any(find_spec(name) is None for name in ("PIL", "segno")):
        raise OptionError(f"the gallery needs more packages: {install_hint('gallery')}")


async def _run(args: Namespace) -> None:
    """Runs nodes and gallery until a signal stops the nodes."""
    from thyme.gallery.web.server import serve_gallery

    async with AsyncExitStack() as stack:
        folder = args.data
        if args.memory:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="thyme-gallery-")))
        nodes = [asyncio.create_task(_wait_for_signal())] if args.node else []
        urls = [(await _world_name(url), url) for url in args.node]
        for number, world in enumerate(args.world or ([] if args.node else [WORLD])):
            started: asyncio.Future[str] = asyncio.get_running_loop().create_future()
            nodes.append(asyncio.create_task(_run_node(args, world, number, started)))
            await asyncio.wait((started, nodes[-1]), return_when=asyncio.FIRST_COMPLETED)
            if not started.done():
                await nodes[-1]  # raises the error
                return
            urls.append((world, started.result()))
        served = await stack.enter_async_context(serve_gallery(_settings(args, folder, urls)))
        _print_addresses(served, as_json=args.json)
        await asyncio.wait(nodes, return_when=asyncio.FIRST_COMPLETED)
        await _stop(nodes)


async def _run_node(args: Namespace, world: str, number: int, started: asyncio.Future[str]) -> None:
    from thyme.daemon.daemon import run

    await run(_daemon_options(args, world, number), started.set_result)


async def _stop(nodes: list[asyncio.Task[None]]) -> None:
    """Stops the other nodes as well: the signal handler is that of the last one."""
    done = [task for task in nodes if task.done()]
    others = [task for task in nodes if not task.done()]
    for task in others:
        task.cancel()
    await asyncio.gather(*others, return_exceptions=True)
    for task in done:
        task.result()


async def _wait_for_signal() -> None:
    import signal

    stopped = asyncio.Event()
    for name in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(name, stopped.set)
    await stopped.wait()


async def _world_name(url: str) -> str:
    import thyme

    async with thyme.connect(url) as world:
        return world.info.name


def _daemon_options(args: Namespace, world: str, number: int) -> DaemonOptions:
    """The options of the node of a world, as `thyme node` would parse them."""
    from thyme.daemon.daemon import DaemonOptions

    parser = ArgumentParser()
    node.add_to(parser.add_subparsers())
    words = ["node", "--world", world, "--data", str(args.data)]
    words += ["--create"] if args.create else []
    words += ["--memory"] if args.memory else []
    for option in ("area", "secret_file", "group"):
        if getattr(args, option) is not None:
            words += [f"--{option.replace('_', '-')}", str(getattr(args, option))]
    for option in ("interface", "peer"):
        for value in getattr(args, option):
            words += [f"--{option}", value]
    return DaemonOptions(
        node=node.node_options(parser.parse_args(words)), http=_control_address(args, number)
    )


def _control_address(args: Namespace, number: int) -> tuple[str, int]:
    """The address of a node for applications: the usual one if it is free, else any."""
    if args.control is not None and number == 0:
        return node.parse_address(args.control, "--control")
    host, port = node.parse_address(node.HTTP_ADDRESS, "--control")
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError:
            return host, 0
    return host, port


def _settings(args: Namespace, folder: Path, urls: list[tuple[str, str]]) -> GallerySettings:
    from thyme.gallery.settings import GallerySettings

    local = node.parse_address(args.http, "--http")
    if not local[0].startswith("127.") and local[0] not in ("localhost", "::1"):
        raise OptionError(
            f"--http is for this machine only, use 127.0.0.1, not {safe_repr(local[0])}; "
            "--lan serves others"
        )
    name = "-".join(world for world, _ in urls)
    return GallerySettings(
        folder=folder / f"gallery-{name}" if not args.memory else folder,
        nodes=tuple(urls),
        host_name=args.name,
        local=local,
        lan=_lan_address(args, local),
        lan_names=tuple(args.lan_name),
        tls=None if args.tls is None else tuple(args.tls),
        guest_rights=args.guests,
        approval=args.approve,
        guest_bytes_max=parse_bytes(args.guest_bytes, "--guest-bytes"),
        guest_photos_max=args.guest_photos,
        upload_bytes_max=parse_bytes(args.file_bytes, "--file-bytes"),
        copies_bytes_max=0 if args.keep == "0" else parse_bytes(args.keep, "--keep"),
        session_s=parse_span(args.visit).total_seconds(),
    )


def _lan_address(args: Namespace, local: tuple[str, int]) -> tuple[str, int] | None:
    """The address for guests: given, or that of the network interface."""
    if args.lan is None:
        return None
    if args.lan:
        return node.parse_address(args.lan, "--lan")
    from thyme.live.interfaces import LOOPBACK, resolve_addresses

    addresses = (host for host in resolve_addresses(args.interface) if ":" not in host)
    host = next(addresses, LOOPBACK)
    if host.startswith("127."):
        print("thyme: no network: only this machine can open the gallery", file=sys.stderr)
        return host, 0 if local[1] == 0 else local[1] + 1
    return host, local[1]


def _print_addresses(served: ServedGallery, *, as_json: bool) -> None:
    """Prints the addresses of the gallery and the code to scan."""
    if as_json:
        addresses = {
            "url": served.url,
            "lan_url": served.lan_url,
            "invitation": served.invitation_url,
        }
        print(json.dumps(addresses), flush=True)
        return
    print(f"\n  Open your gallery in a browser:  {served.url}")
    if served.invitation_url is None:
        print("  For phones near you, start it with --lan.\n", flush=True)
        return
    import segno

    print(f"  Guests in this network open:     {served.invitation_url}")
    if sys.stdout.isatty():
        print("  or scan this code with a phone; it is on the page, too:\n")
        segno.make(served.invitation_url, micro=False).terminal(compact=True)
    if served.invitation_url.startswith("http:"):
        print("  The connection of guests is not encrypted: who is in this network can read along.")
    print("  Ctrl-C ends it.\n", flush=True)
