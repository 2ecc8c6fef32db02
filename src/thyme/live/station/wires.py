"""Wires: the TCP connections of a station to the other stations of its list.

Each station connects to every other one and sends over this connection; it receives over those that
the others made. A connection that ends is made anew, after a growing wait. Messages wait for it for
some seconds; what is lost is sent again by the protocol. A connection of a station that is not in
the list, or cannot prove that it is, is closed and counted.
Entry point: `StationWires`. The bytes are up to `thyme.transport.station_session`.
Clauses: I17, I20, I27, M36, B5, B8.
"""

from __future__ import annotations

import asyncio
import secrets
from collections import Counter
from collections.abc import Callable, Coroutine
from contextlib import suppress
from hashlib import sha256
from random import Random

from thyme.live.keys.identity import Identity
from thyme.live.keys.signatures import derive_node_id, verify_key_signature
from thyme.live.sockets import NetworkError
from thyme.live.station.wire_queue import WireQueue
from thyme.live.status import OtherStationStatus
from thyme.model.errors import DecodeError
from thyme.model.ids import NodeId
from thyme.model.time_frames import SECOND_US
from thyme.protocol.messages.common import Message, ToStation
from thyme.substrates.infra.config_file import Endpoint, OtherStation
from thyme.transport.link_config import LinkEvent, MessageReceived, MessageUndelivered
from thyme.transport.station_session import (
    EPHEMERAL_KEY_BYTES,
    FRAME_BYTES_MAX,
    HANDSHAKE_FRAME_BYTES_MAX,
    LENGTH_BYTES,
    Handshake,
    StationFacts,
    StationSession,
    add_length,
    decode_message,
    encode_message,
)

HANDSHAKE_S = 5.0
ALIVE_S = 2.0
"""The time between two frames that show that a station is alive."""
SILENCE_S = 8.0
"""A connection without any frame for this time is closed."""
RECONNECT_S_MIN, RECONNECT_S_MAX = 0.25, 5.0
HANDSHAKES_MAX = 64
"""How many connections may be without a proof at the same time."""
CLOCK_US_MAX = 5 * SECOND_US
"""A larger difference between the clocks of two stations is reported."""

Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class StationKey:
    """The key of a station in sessions with others (a `SessionKey`)."""

    def __init__(self, identity: Identity) -> None:
        self._identity = identity
        self.public_key = identity.public_key

    def make_signature(self, data: bytes) -> bytes:
        return self._identity.make_signature(data)

    def verify(self, public_key: bytes, signature: bytes, data: bytes) -> bool:
        return verify_key_signature(public_key, signature, data)

    def derive_id(self, public_key: bytes) -> NodeId:
        return derive_node_id(public_key)


class _Wire:
    """The state of the connections to one station."""

    def __init__(self, name: str, other: OtherStation) -> None:
        self.name = name
        self.other = other
        self.queue = WireQueue()
        self.connected = False
        self.connects = 0
        self.incoming: asyncio.StreamWriter | None = None
        self.outgoing: asyncio.StreamWriter | None = None
        self.clock_ahead_us: int | None = None
        self.differences: tuple[str, ...] = ()


class StationWires:
    """The connections of one station."""

    def __init__(
        self,
        name: str,
        identity: Identity,
        listen: Endpoint,
        others: dict[str, OtherStation],
        reply_window_us: int,
        now_us: Callable[[], int],
    ) -> None:
        """`now_us` is a steady clock, by which messages wait."""
        self._name = name
        self._key = StationKey(identity)
        self._listen = listen
        self._reply_window_us = reply_window_us
        self._now_us = now_us
        self.clock_us = now_us
        """The clock of the station, which other stations compare with theirs."""
        self._wires = {other.station_id: _Wire(called, other) for called, other in others.items()}
        self._stations = digest_stations([identity.node_id, *self._wires])
        self._rng = Random(secrets.randbits(64))
        self._events: list[LinkEvent] = []
        self._tasks: set[asyncio.Task[None]] = set()
        self._server: asyncio.Server | None = None
        self._handshakes = 0
        self.on_events: Callable[[], None] = lambda: None
        self.dropped: Counter[str] = Counter()
        """Refused connections and dropped messages, by reason."""
        self.bytes: Counter[str] = Counter()
        """Bytes of messages by direction: "in" or "out"."""

    def __contains__(self, station: NodeId) -> bool:
        return station in self._wires

    async def open(self) -> None:
        """Listens, and starts to connect to all stations."""
        endpoint = self._listen
        try:
            self._server = await asyncio.start_server(
                self._on_connection, endpoint.address, endpoint.port
            )
        except OSError as error:
            raise NetworkError(
                f"station.wired_port: cannot listen on {endpoint.address}, port {endpoint.port}: "
                f"{error.strerror or error}"
            ) from error
        for wire in self._wires.values():
            self._start(self._keep_connected(wire))

    async def close(self) -> None:
        """Closes all connections."""
        if self._server is not None:
            self._server.close()
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def reconnect(self) -> None:
        """Ends all connections; they are made anew, with the current facts about this station."""
        for wire in self._wires.values():
            for writer in (wire.incoming, wire.outgoing):
                if writer is not None:
                    writer.close()

    def _start(self, coroutine: Coroutine[None, None, None]) -> None:
        task = asyncio.create_task(coroutine)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def describe(self) -> tuple[OtherStationStatus, ...]:
        """The connections to all stations of the list."""
        return tuple(
            OtherStationStatus(
                station=station.hex(),
                name=wire.name,
                address=f"{wire.other.endpoint.address}:{wire.other.endpoint.port}",
                connected=wire.connected,
                receiving=wire.incoming is not None,
                waiting=len(wire.queue),
                connects=wire.connects,
                clock_ahead_us=wire.clock_ahead_us,
                differences=wire.differences,
            )
            for station, wire in self._wires.items()
        )

    # Messages

    def send(self, to: NodeId, message: Message) -> None:
        """Queues a message for a station of the list."""
        payload = encode_message(message)
        if len(payload) > FRAME_BYTES_MAX or not self._wires[to].queue.put(payload, self._now_us()):
            self.dropped["queue full"] += 1
            self._events.append(MessageUndelivered(to, message))

    def drain_events(self) -> list[LinkEvent]:
        """Returns and clears the received and undelivered messages, in order."""
        events, self._events = self._events, []
        return events

    # Own connections

    async def _keep_connected(self, wire: _Wire) -> None:
        wait_s = RECONNECT_S_MIN
        while True:
            with suppress(OSError, DecodeError, TimeoutError, asyncio.IncompleteReadError):
                streams, session = await self._connect(wire)
                wait_s = RECONNECT_S_MIN
                try:
                    await self._run_connection(wire, streams, session)
                finally:
                    wire.connected = False
                    await _close(streams[1])
            await asyncio.sleep(wait_s * (0.75 + self._rng.random() / 2))
            wait_s = min(2 * wait_s, RECONNECT_S_MAX)

    async def _connect(self, wire: _Wire) -> tuple[Streams, StationSession]:
        endpoint = wire.other.endpoint
        async with asyncio.timeout(HANDSHAKE_S):
            streams = await asyncio.open_connection(endpoint.address, endpoint.port)
            try:
                session, facts = await self._shake_hands(streams, wire.other.station_id)
            except BaseException as error:
                await _close(streams[1])
                if isinstance(error, DecodeError):
                    self.dropped[f"refused {wire.name}: {error.reason}"] += 1
                raise
        self._compare(wire, facts)
        return streams, session

    async def _run_connection(self, wire: _Wire, streams: Streams, session: StationSession) -> None:
        """Sends until either direction fails; the other station only shows that it is alive."""
        wire.connected = True
        wire.connects += 1
        wire.outgoing = streams[1]
        tasks = [
            asyncio.ensure_future(self._send_all(wire, streams[1], session)),
            asyncio.ensure_future(self._watch(streams[0], session)),
        ]
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in tasks:
                task.cancel()
            for error in await asyncio.gather(*tasks, return_exceptions=True):
                if isinstance(error, DecodeError):
                    self.dropped[error.reason] += 1

    async def _send_all(
        self, wire: _Wire, writer: asyncio.StreamWriter, session: StationSession
    ) -> None:
        while True:
            payload = await wire.queue.get(self._now_us, ALIVE_S)
            self.bytes["out"] += len(payload)
            writer.write(add_length(session.seal(payload)))
            await writer.drain()

    async def _watch(self, reader: asyncio.StreamReader, session: StationSession) -> None:
        while True:
            async with asyncio.timeout(SILENCE_S):
                session.open(await _read_frame(reader, HANDSHAKE_FRAME_BYTES_MAX))

    # Connections of others

    def _on_connection(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._start(self._serve(reader, writer))

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            if self._handshakes >= HANDSHAKES_MAX:
                self.dropped["too many connections"] += 1
                return
            self._handshakes += 1
            try:
                async with asyncio.timeout(HANDSHAKE_S):
                    session, facts = await self._shake_hands((reader, writer), None)
            finally:
                self._handshakes -= 1
            wire = self._wires[session.peer]
            self._compare(wire, facts)
            await self._receive_all(wire, reader, writer, session)
        except DecodeError as error:
            self.dropped[error.reason] += 1
        except (OSError, TimeoutError, asyncio.IncompleteReadError):
            pass  # the other end is gone, and will connect again
        finally:
            await _close(writer)

    async def _receive_all(
        self,
        wire: _Wire,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        session: StationSession,
    ) -> None:
        previous, wire.incoming = wire.incoming, writer
        if previous is not None:
            previous.close()
        showing = asyncio.ensure_future(_show_alive(writer, session))
        try:
            while True:
                async with asyncio.timeout(SILENCE_S):
                    length = await _read_length(reader, FRAME_BYTES_MAX)
                payload = session.open(await reader.readexactly(length))
                if payload:
                    self.bytes["in"] += len(payload)
                    self._on_message(session.peer, payload)
        finally:
            showing.cancel()
            if wire.incoming is writer:
                wire.incoming = None

    def _on_message(self, sender: NodeId, payload: bytes) -> None:
        try:
            message = decode_message(payload)
        except DecodeError as error:
            self.dropped[error.reason] += 1
            return
        if isinstance(message, ToStation):
            self.dropped["of a mobile node"] += 1
            return
        self._events.append(MessageReceived(sender, message))
        self.on_events()

    # Handshakes

    async def _shake_hands(
        self, streams: Streams, expected: NodeId | None
    ) -> tuple[StationSession, StationFacts]:
        """Proves the own identity and verifies that of a station of the list; `expected` is the
        station that was connected to."""
        reader, writer = streams
        facts = StationFacts(self._name, self.clock_us(), self._reply_window_us, self._stations)
        handshake = Handshake(
            self._key,
            secrets.token_bytes(EPHEMERAL_KEY_BYTES),
            facts,
            is_initiator=expected is not None,
        )
        if expected is not None:
            writer.write(add_length(handshake.hello))
        claimed = handshake.read_hello(await _read_frame(reader, HANDSHAKE_FRAME_BYTES_MAX))
        if expected is None:
            if claimed not in self._wires:
                raise DecodeError("not a station of the list", claimed.hex())
            writer.write(add_length(handshake.hello))
        elif claimed != expected:
            raise DecodeError("another station", claimed.hex())
        writer.write(add_length(handshake.make_proof()))
        return handshake.finish(await _read_frame(reader, HANDSHAKE_FRAME_BYTES_MAX))

    def _compare(self, wire: _Wire, facts: StationFacts) -> None:
        """Notes what two stations must agree on and do not (I20)."""
        wire.clock_ahead_us = facts.now_us - self.clock_us()
        differences = []
        if facts.reply_window_us != self._reply_window_us:
            differences.append(
                f"sharing.reply_window_ms: {self._reply_window_us // 1000} here, "
                f"{facts.reply_window_us // 1000} there"
            )
        if facts.stations != self._stations:
            differences.append("others: the lists of stations name different stations")
        if abs(wire.clock_ahead_us) > CLOCK_US_MAX:
            differences.append(f"clock: {wire.clock_ahead_us / SECOND_US:+.0f} s there")
        wire.differences = tuple(differences)


def digest_stations(stations: list[NodeId]) -> bytes:
    """A digest of a set of stations."""
    return sha256(b"thyme stations" + b"".join(sorted(set(stations)))).digest()[:16]


async def _read_length(reader: asyncio.StreamReader, most: int) -> int:
    length = int.from_bytes(await reader.readexactly(LENGTH_BYTES))
    if length > most:
        raise DecodeError("oversized", f"a frame of {length} bytes")
    return length


async def _read_frame(reader: asyncio.StreamReader, most: int) -> bytes:
    return await reader.readexactly(await _read_length(reader, most))


async def _show_alive(writer: asyncio.StreamWriter, session: StationSession) -> None:
    with suppress(OSError):
        while True:
            writer.write(add_length(session.seal(b"")))
            await writer.drain()
            await asyncio.sleep(ALIVE_S)


async def _close(writer: asyncio.StreamWriter) -> None:
    writer.close()
    with suppress(OSError):
        await writer.wait_closed()
