"""Others who carry small messages between two processes: bare UDP, zenoh, NATS.

Each rival is a pair of roles, run as processes of their own: a subscriber, which says "ready" and
later how it went, and a publisher. A message of 300 bytes begins with the instant it was sent, of a
clock that all processes of a machine share.
"""

from __future__ import annotations

import asyncio
import shutil
import socket
import struct
import subprocess
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from importlib.util import find_spec
from typing import Any

SIZE = 300
_INSTANT = struct.Struct("!Q")
Deliver = Callable[[bytes], None]
Publish = Callable[[bytes], Awaitable[None]]


def stamped() -> bytes:
    """A message that says when it was made."""
    return _INSTANT.pack(time.monotonic_ns()).ljust(SIZE, b"x")


def age_us(message: bytes) -> float:
    """How long ago a message was made."""
    return (time.monotonic_ns() - _INSTANT.unpack_from(message)[0]) / 1e3


class _Catch(asyncio.DatagramProtocol):
    def __init__(self, deliver: Deliver) -> None:
        self._deliver = deliver

    def datagram_received(self, data: bytes, addr: object) -> None:
        self._deliver(data)


class Echo(asyncio.DatagramProtocol):
    """Sends everything back."""

    def connection_made(self, transport: Any) -> None:
        self._transport = transport

    def datagram_received(self, data: bytes, addr: tuple[str, int]) -> None:
        self._transport.sendto(data, addr)


async def round_trips(port: int, count: int, gap_s: float) -> list[float]:
    """How long datagrams take to an echo and back, in microseconds."""
    loop, trips = asyncio.get_running_loop(), list[float]()
    came = asyncio.Event()

    def deliver(message: bytes) -> None:
        trips.append(age_us(message))
        came.set()

    transport, _ = await loop.create_datagram_endpoint(
        lambda: _Catch(deliver), remote_addr=("127.0.0.1", port)
    )
    for _ in range(count):
        came.clear()
        transport.sendto(stamped())
        await asyncio.wait_for(came.wait(), 5)
        await asyncio.sleep(gap_s)
    transport.close()
    return trips


@asynccontextmanager
async def udp_subscriber(port: int, deliver: Deliver) -> AsyncIterator[None]:
    loop = asyncio.get_running_loop()
    transport, _ = await loop.create_datagram_endpoint(
        lambda: _Catch(deliver), local_addr=("127.0.0.1", port)
    )
    yield
    transport.close()


@asynccontextmanager
async def udp_publisher(port: int) -> AsyncIterator[Publish]:
    loop = asyncio.get_running_loop()
    transport, _ = await loop.create_datagram_endpoint(
        asyncio.DatagramProtocol, remote_addr=("127.0.0.1", port)
    )

    async def publish(message: bytes) -> None:
        transport.sendto(message)

    yield publish
    transport.close()


def _zenoh_config(port: int, side: str) -> object:
    import zenoh

    config = zenoh.Config()
    config.insert_json5("mode", '"peer"')
    config.insert_json5("scouting/multicast/enabled", "false")
    config.insert_json5(f"{side}/endpoints", f'["tcp/127.0.0.1:{port}"]')
    return config


@asynccontextmanager
async def zenoh_subscriber(port: int, deliver: Deliver) -> AsyncIterator[None]:
    import zenoh

    with zenoh.open(_zenoh_config(port, "listen")) as session:
        session.declare_subscriber("bench", lambda sample: deliver(sample.payload.to_bytes()))
        yield


@asynccontextmanager
async def zenoh_publisher(port: int) -> AsyncIterator[Publish]:
    import zenoh

    with zenoh.open(_zenoh_config(port, "connect")) as session:
        publisher = session.declare_publisher(
            "bench", congestion_control=zenoh.CongestionControl.BLOCK
        )

        async def publish(message: bytes) -> None:
            publisher.put(message)

        await asyncio.sleep(1)
        yield publish


@asynccontextmanager
async def nats_subscriber(port: int, deliver: Deliver) -> AsyncIterator[None]:
    import nats

    client = await nats.connect(f"nats://127.0.0.1:{port}")

    async def on_message(message: object) -> None:
        deliver(message.data)  # type: ignore[attr-defined]

    await client.subscribe("bench", cb=on_message, pending_msgs_limit=10**6)
    await client.flush()
    yield
    await client.close()


@asynccontextmanager
async def nats_publisher(port: int) -> AsyncIterator[Publish]:
    import nats

    client = await nats.connect(f"nats://127.0.0.1:{port}")

    async def publish(message: bytes) -> None:
        await client.publish("bench", message)

    yield publish
    await client.flush()
    await client.close()


SUBSCRIBERS = {"udp": udp_subscriber, "zenoh": zenoh_subscriber, "nats": nats_subscriber}
PUBLISHERS = {"udp": udp_publisher, "zenoh": zenoh_publisher, "nats": nats_publisher}


def missing(rival: str) -> str:
    """Why a rival cannot be measured here; "" if it can."""
    if rival == "zenoh" and find_spec("zenoh") is None:
        return "not here: pip install eclipse-zenoh"
    if rival == "nats" and (find_spec("nats") is None or not shutil.which("nats-server")):
        return "not here: pip install nats-py, and nats-server on the PATH"
    if rival == "mosquitto" and not shutil.which("mosquitto"):
        return "not here: mosquitto on the PATH"
    return ""


def server_of(rival: str, port: int) -> subprocess.Popen[bytes] | None:
    """The server that a rival needs, if it needs one."""
    if rival != "nats":
        return None
    words = ["nats-server", "-a", "127.0.0.1", "-p", str(port)]
    server = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    for _ in range(100):
        with socket.socket() as caller:
            if caller.connect_ex(("127.0.0.1", port)) == 0:
                break
        time.sleep(0.05)
    return server
