"""What one neighbour can cost a live node: its inbox, and datagrams that the kernel drops (B5)."""

from __future__ import annotations

import asyncio
import socket
import sys
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.builders import ALICE, BOB
from tests.transport.pipe import Pipe
from thyme.lab.supervisor import free_ports
from thyme.live.limits.fair_inbox import BYTES_PER_TURN, MESSAGES_MAX, FairInbox
from thyme.live.limits.freed_memory import GONE_US, WORTH_BYTES, FreedMemory, trim_heap
from thyme.live.limits.sender_limits import SenderLimits
from thyme.live.limits.socket_filter import attach, make_program
from thyme.live.node_factory import count_refused_floods, ls_config
from thyme.live.sockets import NetworkConfig, Sockets
from thyme.model.ids import NodeId
from thyme.model.time_frames import ALWAYS
from thyme.model.worlds import WorldInfo
from thyme.protocol.messages import common as wire
from thyme.protocol.messages.replies import Done
from thyme.protocol.node import Received, Started
from thyme.query.query import Query
from thyme.storage.store import MemoryStore
from thyme.substrates.ls.node import LsNode

SIZE = 100


def test_b5_a_sender_of_many_messages_delays_itself_only() -> None:
    inbox = FairInbox()
    for number in range(300):
        inbox.add_received(Received(BOB, Done(number)), SIZE)
    inbox.add_received(Received(ALICE, Done(1_000)), SIZE)
    inbox.append(Started())

    first = [inbox.popleft() for _ in range(3)]

    assert first == [Started(), Received(BOB, Done(0)), Received(ALICE, Done(1_000))]


def test_b5_a_sender_of_long_messages_delays_itself_only() -> None:
    inbox = FairInbox()
    for number in range(3):
        inbox.add_received(Received(BOB, Done(number)), 10 * BYTES_PER_TURN)
    for number in range(20):
        inbox.add_received(Received(ALICE, Done(number)), SIZE)

    events = [inbox.popleft() for _ in range(23)]

    senders = [event.sender for event in events if isinstance(event, Received)]
    assert [at for at, sender in enumerate(senders) if sender == BOB] == [10, 21, 22]


def test_b5_a_full_queue_is_told_until_half_of_it_was_handled() -> None:
    inbox = FairInbox()
    for number in range(MESSAGES_MAX):
        assert BOB not in inbox.full_senders
        inbox.add_received(Received(BOB, Done(number)), SIZE)
    assert inbox.full_senders == {BOB}

    for _ in range(MESSAGES_MAX // 2 + 1):
        inbox.popleft()
    assert inbox.full_senders == set()


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 2**22)), max_size=100))
def test_b5_every_message_comes_once_and_in_the_order_of_its_sender(
    steps: list[tuple[int, int]],
) -> None:
    inbox = FairInbox()
    for number, (sender, size) in enumerate(steps):
        inbox.add_received(Received(NodeId(b"node %d" % sender), Done(number)), size)
    came: dict[int, list[int]] = {0: [], 1: [], 2: [], 3: []}
    while inbox:
        event = inbox.popleft()
        assert isinstance(event, Received)
        assert isinstance(event.message, Done)
        came[int(event.sender[-1:])].append(event.message.request_id)
    assert came == {
        each: [number for number, (sender, _) in enumerate(steps) if sender == each]
        for each in range(4)
    }
    assert inbox.full_senders == set()


@pytest.mark.skipif(sys.platform != "linux", reason="a filter of Linux")
@pytest.mark.parametrize("host", ["127.0.0.1", "::1"])
def test_b5_the_kernel_drops_the_datagrams_of_a_banned_address_alone(host: str) -> None:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        sockets = [socket.socket(family, socket.SOCK_DGRAM) for _ in range(3)]
        for each in sockets:
            each.bind((host, 0))
    except OSError:
        pytest.skip("no IPv6 here")
    receiver, good, bad = sockets
    receiver.settimeout(5)
    banned = [(host, bad.getsockname()[1])]
    known = [(host, good.getsockname()[1])]

    def heard() -> bytes:
        for sender, word in ((bad, b"bad"), (good, b"good")):
            sender.sendto(word, receiver.getsockname())
        word = receiver.recv(100)
        if word == b"bad":
            receiver.recv(100)
        return word

    assert heard() == b"bad", "nobody is banned yet"
    assert attach([receiver], make_program(banned, [], 1.0, is_ipv6=":" in host))
    assert heard() == b"good"
    assert attach([receiver], make_program([], known, 0.0, is_ipv6=":" in host))
    assert heard() == b"good", "a stranger, of which none are wanted"
    assert attach([receiver], make_program([], [], 1.0, is_ipv6=":" in host))
    assert heard() == b"bad"
    for each in sockets:
        each.close()


def test_b5_who_floods_beyond_its_budget_is_banned_and_who_passes_some_on_is_not() -> None:
    """Else a node spends its time on floods that it refuses."""
    ann, mallory, me = NodeId(b"ann"), NodeId(b"mallory"), NodeId(b"me")
    pipe = Pipe()
    for name in (ann, mallory, me):
        pipe.add(name)
    pipe.run(1)
    config = ls_config(WorldInfo("lisbon", "w1", substrate="ls"))
    node = LsNode(me, MemoryStore(), Random(1), config)
    limits = SenderLimits(FairInbox(), None, lambda: 0, lambda: count_refused_floods(node))
    link = pipe.links[me]
    limits.watch(link)
    for number in range(2_000):
        page = wire.FetchPage(number, Query("goal").conjunctions, ALWAYS, 10)
        flood = wire.Flooded(mallory, number, 0, page)
        limits.handle(node, Received(mallory, flood), pipe.now_us)
        if number % 10 == 0:
            limits.handle(node, Received(ann, flood), pipe.now_us)

    assert link.shares.banned() == [(mallory.hex(), 0)]


@pytest.mark.skipif(sys.platform != "linux", reason="a filter of Linux")
def test_b5_the_kernel_keeps_what_a_node_says_to_the_group_from_itself_alone() -> None:
    """Else its own broadcasts count as those of strangers, and cost as much to receive."""
    port = free_ports(1, socket.SOCK_DGRAM)[0]
    heard: list[tuple[str, bytes]] = []

    async def story() -> None:
        all_came = asyncio.Event()

        def hear(name: str, datagram: bytes) -> None:
            heard.append((name, datagram))
            if len(heard) == 4:
                all_came.set()

        one, other = (Sockets(NetworkConfig(group_port=port)) for _ in range(2))
        one.on_datagram = lambda datagram, _: hear("one", datagram)
        other.on_datagram = lambda datagram, _: hear("other", datagram)
        for each in (one, other):
            await each.open()
        for banned in ([], [("127.0.0.1", 9)], []):
            one.filter_senders(banned, [], 1.0)
            one.send(b"from one", None)
        other.send(b"from other", None)
        await all_came.wait()
        for each in (one, other):
            each.close()

    asyncio.run(asyncio.wait_for(story(), 20))
    assert sorted(heard) == [("one", b"from other"), *[("other", b"from one")] * 3]


def test_b5_memory_goes_back_once_incomplete_messages_are_gone_for_some_time() -> None:
    given_back: list[int] = []
    now_us = 0
    memory = FreedMemory(lambda: given_back.append(now_us))

    def store(stored: int, for_us: int) -> None:
        nonlocal now_us
        for _ in range(0, for_us, GONE_US // 5):
            memory.update(stored, now_us)
            now_us += GONE_US // 5

    for _ in range(5):  # long messages of an honest neighbour, with pauses
        store(4 * WORTH_BYTES, GONE_US)
        store(0, GONE_US // 2)
    assert not given_back
    store(0, 10 * GONE_US)
    assert len(given_back) == 1
    store(WORTH_BYTES // 2, GONE_US)
    store(0, 10 * GONE_US)
    assert len(given_back) == 1, "too little to give back"
    trim_heap()
