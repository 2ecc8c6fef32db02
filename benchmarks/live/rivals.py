"""Others who carry small messages between two processes: bare UDP, zenoh, NATS, Mosquitto.

Each rival is a pair of roles, run as processes of their own: a subscriber, which says "ready" and
later how it went, and a publisher. A message of 300 bytes begins with the instant it was sent, of a
clock that all processes of a machine share.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import socket
import struct
import subprocess
import sys
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

SIZE = 300
MQTT_IN_FLIGHT = 256
DIRECTORY = Path(__file__).resolve().parents[2] / "build" / "peers"
"""Packages that only this benchmark needs."""
_INSTANT = struct.Struct("!Q")
Deliver = Callable[[bytes], None]
Publish = Callable[[bytes], Awaitable[None]]


def stamped(*, hurried: bool = False) -> bytes:
    """A message that says when it was made, and in which phase of a measurement."""
    return _INSTANT.pack(time.monotonic_ns()).ljust(SIZE, b"h" if hurried else b"x")


def is_hurried(message: bytes) -> bool:
    """Whether a message was sent at full speed."""
    return message[-1:] == b"h"


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


@asynccontextmanager
async def signed_subscriber(port: int, deliver: Deliver) -> AsyncIterator[None]:
    """As bare UDP, with a verification: the least that a signed hop costs in Python."""
    from nacl.signing import VerifyKey

    def verify(message: bytes) -> None:
        deliver(VerifyKey(message[:32]).verify(message[32:]))

    async with udp_subscriber(port, verify):
        yield


@asynccontextmanager
async def signed_publisher(port: int) -> AsyncIterator[Publish]:
    from nacl.signing import SigningKey

    key = SigningKey.generate()
    public = bytes(key.verify_key)
    async with udp_publisher(port) as publish:

        async def publish_signed(message: bytes) -> None:
            await publish(public + key.sign(message))

        yield publish_signed


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


def _mqtt_client() -> Any:
    from paho.mqtt import client as mqtt

    return mqtt.Client(mqtt.CallbackAPIVersion.VERSION2)


@asynccontextmanager
async def mosquitto_subscriber(port: int, deliver: Deliver) -> AsyncIterator[None]:
    client, subscribed = _mqtt_client(), threading.Event()
    client.on_message = lambda _client, _data, message: deliver(message.payload)
    client.on_subscribe = lambda *_: subscribed.set()
    client.connect("127.0.0.1", port)
    client.loop_start()
    client.subscribe("bench", qos=1)
    await asyncio.to_thread(subscribed.wait, 10)
    yield
    client.disconnect()
    client.loop_stop()


@asynccontextmanager
async def mosquitto_publisher(port: int) -> AsyncIterator[Publish]:
    client, in_flight = _mqtt_client(), threading.Semaphore(MQTT_IN_FLIGHT)
    client.max_inflight_messages_set(MQTT_IN_FLIGHT)
    client.on_publish = lambda *_: in_flight.release()
    client.connect("127.0.0.1", port)
    client.loop_start()

    async def publish(message: bytes) -> None:
        in_flight.acquire()
        client.publish("bench", message, qos=1)

    await asyncio.sleep(1)
    yield publish
    for _ in range(MQTT_IN_FLIGHT):
        in_flight.acquire(timeout=5)
    client.disconnect()
    client.loop_stop()


SUBSCRIBERS = {
    "udp": udp_subscriber,
    "signed": signed_subscriber,
    "zenoh": zenoh_subscriber,
    "nats": nats_subscriber,
    "mosquitto": mosquitto_subscriber,
}
PUBLISHERS = {
    "udp": udp_publisher,
    "signed": signed_publisher,
    "zenoh": zenoh_publisher,
    "nats": nats_publisher,
    "mosquitto": mosquitto_publisher,
}
_PACKAGES = {
    "zenoh": ("zenoh", "eclipse-zenoh"),
    "nats": ("nats", "nats-py"),
    "mosquitto": ("paho", "paho-mqtt"),
}
"""The module that a rival needs, and its package on PyPI."""
_SERVERS = {"nats": "nats-server", "mosquitto": "mosquitto"}
"""The server that a rival needs: program and Debian package."""


def install(rivals: Iterable[str]) -> None:
    """Tries to install what is missing: clients by pip, beside the project's own packages; servers
    by apt-get, if this user may."""
    packages = [_PACKAGES[rival][1] for rival in rivals if rival in _PACKAGES]
    DIRECTORY.mkdir(parents=True, exist_ok=True)
    absent = [name for name in packages if not (DIRECTORY / f".{name}").exists()]
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--target", str(DIRECTORY)]
    if absent and subprocess.run([*pip, *absent], check=False).returncode == 0:
        for name in absent:
            (DIRECTORY / f".{name}").touch()
    servers = [_SERVERS[rival] for rival in rivals if rival in _SERVERS and not _server(rival)]
    if servers and os.geteuid() == 0 and shutil.which("apt-get"):
        apt = ["apt-get", "-qq", "-y", "--no-install-recommends", "install", *servers]
        environment = os.environ | {"DEBIAN_FRONTEND": "noninteractive"}
        subprocess.run(apt, check=False, stdout=subprocess.DEVNULL, env=environment)


def missing(rival: str) -> str:
    """Why a rival cannot be measured here; "" if it can."""
    if rival in _PACKAGES:
        module, package = _PACKAGES[rival]
        if find_spec(module) is None and not (DIRECTORY / module).exists():
            return f"skipped: no Python package {package} (pip install {package})"
    if rival in _SERVERS and not _server(rival):
        return f"skipped: no {_SERVERS[rival]} on the PATH (apt-get install {_SERVERS[rival]})"
    return ""


def _server(rival: str) -> str | None:
    return shutil.which(_SERVERS[rival], path=f"{os.environ.get('PATH', '')}:/usr/sbin")


def server_of(rival: str, port: int) -> subprocess.Popen[bytes] | None:
    """Starts the server that a rival needs, if it needs one."""
    if rival not in _SERVERS:
        return None
    program = _server(rival)
    assert program is not None
    options = ["-a", "127.0.0.1", "-p", str(port)] if rival == "nats" else ["-p", str(port)]
    silent = subprocess.DEVNULL
    server = subprocess.Popen([program, *options], stdout=silent, stderr=silent)
    for _ in range(100):
        with socket.socket() as caller:
            if caller.connect_ex(("127.0.0.1", port)) == 0:
                break
        time.sleep(0.05)
    return server
