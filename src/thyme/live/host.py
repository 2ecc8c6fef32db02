"""Host: runs a node in real time on the running asyncio loop, with or without a network.

The host handles waiting inputs as a batch with one commit of the store and executes their actions
after the commit: a node acknowledges only committed data. If the wall clock was corrected, or the
device slept, the host replaces node and link by new ones with the same store, as after a restart of
the process; applications keep their subscriptions (M36). With a link and sockets, the node is on
the network; without, it is the only node of a local world, which needs none of the packages of the
`live` extra.
Entry point: `Host`. Retransmission and neighbours are up to `thyme.transport.link`, time and timers
to `clocks`, limits of senders to `limits`.
Clauses: M24, M28, M36.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import assert_never

from thyme.live.clocks.clock import CLOCK_STEP_US_MAX, Clock, ClockWatch
from thyme.live.clocks.timers import Alarm, TimerQueue
from thyme.live.limits.fair_inbox import FairInbox
from thyme.live.limits.sender_limits import SenderLimits
from thyme.live.sockets import Sockets
from thyme.model.errors import ClosedError, StoreError
from thyme.model.ids import NodeId, SubscriptionId
from thyme.protocol.app_interface import AppEvent, AppRequest, RequestWithReply
from thyme.protocol.handover import Handover, fail_unanswered
from thyme.protocol.node import (
    Action,
    AppRequested,
    Broadcast,
    CancelTimer,
    Emit,
    Input,
    Leaving,
    Node,
    PositionChanged,
    Received,
    Send,
    SendFailed,
    SetTimer,
    Started,
    TimerFired,
)
from thyme.protocol.port import NodeListener
from thyme.storage.store import Store
from thyme.transport.link_config import Address, HostLink, MessageReceived, MessageUndelivered

_log = logging.getLogger("thyme")
INPUTS_PER_COMMIT_MAX = 256
"""Maximum number of inputs in one commit."""
BATCH_US_MAX = 15_000
SHARED_BATCH_US_MAX = 3_000
"""After this time a batch ends, so that the node receives datagrams in between; sooner with several
neighbours, since datagrams that are not received are lost for all of them alike, unless commits
take longer."""
LONG_COMMIT_US_MIN = 1_000
"""Where a commit takes so long, a batch begins with all datagrams that wait, which then share its
commit; and what they contain is acknowledged to the link of the sender before, which would take the
duration of the commit for a queue on the network and send less at a time."""
LEAVE_US_MAX = 5_000_000
DRAIN_POLL_S = 0.05
DRAIN_IDLE_POLLS_MIN = 3
"""A leaving node stays until this many polls in a row find no unacknowledged message."""
_RESUME_AGAIN_S = 2.0
_CLOCK_CORRECTED = "the clock of this device was corrected meanwhile"


RestartNode = Callable[[tuple[float, float] | None], tuple[Node, HostLink]]
"""Makes a new incarnation of a node and its link, at the last position of the device."""
RepeatRequests = Callable[[list[RequestWithReply]], tuple[list[AppRequest], list[AppEvent]]]
"""Decides about requests without an answer: those to repeat, and events that answer the others."""


class Host:
    """Runs one node in real time and gives its application access to it (a `NodePort`)."""

    def __init__(
        self,
        node: Node,
        store: Store,
        listener: NodeListener,
        link: HostLink | None = None,
        sockets: Sockets | None = None,
        restart_node: RestartNode | None = None,
        count_invalid: Callable[[], int] | None = None,
        count_refused: Callable[[], int] = lambda: 0,
    ) -> None:
        """Starts the node; if it cannot start, `listener.on_node_failed` has been called. Without
        `restart_node` the host does not follow corrections of the wall clock. `count_invalid` is
        the number of records with a false signature so far, `count_refused` that of floods beyond
        the limit: they are charged to their sender."""
        self._loop = asyncio.get_running_loop()
        self._clock = Clock()
        self._node = node
        self._store = store
        self._link = link
        self._sockets = sockets
        self._listener = listener
        self._inbox = FairInbox()
        filter_senders = None if sockets is None else sockets.filter_senders
        self._limits = SenderLimits(self._inbox, filter_senders, count_invalid, count_refused)
        self._commit_us = 0
        self._flush_handle: asyncio.Handle | None = None
        self._timers = TimerQueue()
        self._alarm = Alarm(self._loop, self._on_alarm)
        self.on_alarm: Callable[[], None] | None = None
        """Called after the due timers, for work that needs no wake-up of its own."""
        self._batch_handle: asyncio.Handle | None = None
        self._closed_error: ClosedError | None = None
        self._restart_node = restart_node
        self._position: tuple[float, float] | None = None
        self._clock_watch = ClockWatch()
        self._handover = Handover(self._resume_later)
        self.prepare_request: Callable[[AppRequest], AppRequest | None] = lambda request: request
        """Called for each request of the application; the node handles the request it returns."""
        self._limits.watch(self._link)
        if sockets is not None:
            sockets.on_datagram = self._on_datagram
        self._inbox.append(Started())
        self._process_inbox()

    @property
    def node_id(self) -> NodeId:
        return self._node.node_id

    def now_us(self) -> int:
        return self._clock.now_us()

    def send_request(self, request: AppRequest) -> None:
        if self._closed_error is not None:
            raise self._closed_error
        prepared = self.prepare_request(request)
        if prepared is not None:
            self._enqueue(AppRequested(prepared))

    @property
    def closed(self) -> bool:
        """Whether the node has stopped."""
        return self._closed_error is not None

    def replace_link(self, link: HostLink) -> None:
        """Continues with another link, under another node id; messages in the old one are lost."""
        self._link = link
        self._limits.watch(self._link)
        self._set_alarm()

    def on_link_events(self) -> None:
        """Handles the events of a link that has received messages by itself."""
        if self._closed_error is None:
            self._handle_link_events()
            self._set_alarm()

    def move_to(self, position: tuple[float, float]) -> None:
        """Tells the node its new position, in metres."""
        self._position = position
        self._enqueue(PositionChanged(position))

    async def leave(self) -> None:
        """Leaves the world gracefully: handles the waiting inputs, waits until the neighbours
        acknowledged the last messages, then closes."""
        if self._closed_error is None:
            await self.withdraw()
        self.close()

    async def _wait_until_acknowledged(self, link: HostLink) -> None:
        deadline_us = self.now_us() + LEAVE_US_MAX
        idle_polls = 0
        while (
            idle_polls < DRAIN_IDLE_POLLS_MIN
            and self.now_us() < deadline_us
            and self._closed_error is None
        ):
            await asyncio.sleep(DRAIN_POLL_S)
            idle_polls = 0 if link.has_pending else idle_polls + 1

    def close(self) -> None:
        """Stops the node at once; committed data stays in the store."""
        if self._closed_error is None:
            self._shut_down(ClosedError("this world has been left"))

    # Inputs

    def _enqueue(self, event: Input) -> None:
        self._inbox.append(event)
        self._schedule_batch()

    def _schedule_batch(self) -> None:
        if self._inbox and self._batch_handle is None and self._closed_error is None:
            self._batch_handle = self._loop.call_soon(self._process_inbox)

    def _on_datagram(self, datagram: bytes, address: Address) -> None:
        if self._closed_error is None and self._link is not None:
            was_dropped = not self._link.receive_datagram(datagram, address, self.now_us())
            self._limits.update_filter()
            if was_dropped:
                return
            self._handle_link_events()
            if not self._inbox:  # else the batch sends and sets the alarm
                self._set_alarm()
                self._schedule_flush()

    def _on_alarm(self) -> None:
        now_us = self.now_us()
        if self._restart_node is not None and self._clock_watch.is_due(now_us):
            self._check_clocks(self._restart_node)
            now_us = self.now_us()
        for timer in self._timers.pop_due(now_us):
            self._enqueue(TimerFired(timer))
        if self._link is not None:
            self._link.tick(now_us)
            self._limits.on_alarm(now_us)
        self._handle_link_events()
        self._set_alarm()
        self._flush()
        if self.on_alarm is not None:
            self.on_alarm()

    def _process_inbox(self) -> None:
        """Handles waiting inputs in batches. A node on the network handles one batch per turn of
        the loop, so that it receives datagrams in between. A node without a link handles all, and
        the requests that its application makes during the callbacks, too."""
        self._batch_handle = None
        while self._inbox and self._closed_error is None:
            self._process_batch()
            if self._link is not None:
                break
        self._schedule_batch()

    def _process_batch(self) -> None:
        """Handles waiting inputs, commits the store, then executes the actions."""
        actions: list[Action] = []
        commits_long = self._commit_us >= LONG_COMMIT_US_MIN
        if self._sockets is not None and (self._limits.is_shared or commits_long):
            self._sockets.receive_waiting()
        if commits_long:
            self._flush()
        now_us = self.now_us()
        until_us = now_us + self._batch_us_max()
        try:
            for _ in range(INPUTS_PER_COMMIT_MAX):
                if not self._inbox or now_us > until_us:
                    break
                # Without a link there is nobody to sign for: inserts need not share a signature.
                has_link = self._link is not None
                event = self._inbox.pop_joined() if has_link else self._inbox.popleft()
                if self._restart_node is not None and isinstance(event, AppRequested):
                    self._handover.count_request(event.request)
                actions += self._limits.handle(self._node, event, now_us)
                now_us = self.now_us()
            self._store.commit()
            self._commit_us = self.now_us() - now_us
        except StoreError as error:
            self._fail(error)
            return
        except Exception as error:
            # A bug: a half-handled input must be neither stored nor acted upon (M24).
            _log.exception("an input could not be handled; the node stops")
            self._fail(ClosedError(f"internal error, see the log: {error!r}"))
            return
        now_us = self.now_us()
        for action in actions:
            self._execute(action, now_us)
        self._handle_link_events()
        self._set_alarm()
        if any(isinstance(action, Emit) for action in actions):
            self._schedule_flush()
        else:
            self._flush()

    def _batch_us_max(self) -> int:
        if not self._limits.is_shared:
            return BATCH_US_MAX
        return min(BATCH_US_MAX, max(SHARED_BATCH_US_MAX, 2 * self._commit_us))

    # Actions

    def _execute(self, action: Action, now_us: int) -> None:
        match action:
            case Send():
                if self._link is not None:
                    self._link.send(action.to, action.message, now_us)
            case Broadcast():
                if self._link is not None:
                    self._link.broadcast(action.message, now_us)
            case SetTimer():
                self._timers.set(action.timer, action.at_us)
            case CancelTimer():
                self._timers.cancel(action.timer)
            case Emit():
                if self._restart_node is None or self._handover.count_event(action.event):
                    self._listener.on_event(action.event)
            case _:
                assert_never(action)

    # New incarnations

    def _check_clocks(self, restart_node: RestartNode) -> None:
        """Follows a correction of the wall clock; tells the node how far other clocks differ."""
        if abs(self._clock.behind_us()) > CLOCK_STEP_US_MAX:
            self._follow_clock(restart_node)
        if self._limits.link is not None:
            compared = self._clock_watch.compare_neighbours(self._limits.link)
            if compared is not None:
                self._enqueue(compared)

    def _follow_clock(self, restart_node: RestartNode) -> None:
        """Continues with a new incarnation of the node, since the wall clock was corrected. Its
        requests without an answer fail, since nobody knows how they ended."""
        by_s = round(self._clock.behind_us() / 1e6, 1)
        _log.warning("clock_corrected", extra={"facts": {"by_s": by_s}})
        self._clock = Clock()
        self.continue_with(
            restart_node, lambda requests: fail_unanswered(requests, _CLOCK_CORRECTED)
        )

    def continue_with(self, restart_node: RestartNode, repeat: RepeatRequests) -> None:
        """Continues with a new incarnation of the node: the subscriptions of the application are
        resumed, and `repeat` decides about the requests without an answer."""
        if self._closed_error is not None:
            return
        self._clock_watch.begin_again()
        waiting = self._inbox.drop_messages()
        resumes, unanswered = self._handover.start_again()
        repeated, answers = repeat(unanswered)
        self._timers.clear()
        self._node, self._link = restart_node(self._position)
        self._limits.watch(self._link)
        self._inbox.append(Started())
        for request in (*map(AppRequested, (*resumes, *repeated)), *waiting):
            self._inbox.append(request)
        self._schedule_batch()
        for event in answers:
            self._listener.on_event(event)

    async def withdraw(self) -> None:
        """Lets the node hand over its state to others, before another incarnation replaces it."""
        self._enqueue(Leaving())
        if self._link is None:
            self._process_inbox()
        else:
            await self._wait_until_acknowledged(self._link)

    def _resume_later(self, sid: SubscriptionId) -> None:
        self._loop.call_later(_RESUME_AGAIN_S, self._resume, sid)

    def _resume(self, sid: SubscriptionId) -> None:
        """Resumes a subscription of the application at the new incarnation of the node."""
        request = self._handover.make_resume(sid)
        if request is not None and self._closed_error is None:
            self._enqueue(AppRequested(request))

    def _handle_link_events(self) -> None:
        if self._link is None:
            return
        for event in self._link.drain_events():
            match event:
                case MessageReceived():
                    received = Received(event.sender, event.message)
                    self._inbox.add_received(received, event.size, event.is_broadcast)
                    self._schedule_batch()
                case MessageUndelivered():
                    self._enqueue(SendFailed(event.to, event.message))
                case _:
                    assert_never(event)

    def _schedule_flush(self) -> None:
        """Defers sending until the loop has run the callbacks that are ready: more messages then
        share a datagram, and local readers are not delayed by the send."""
        if self._flush_handle is None:
            self._flush_handle = self._loop.call_soon(self._flush)

    def _flush(self) -> None:
        if self._flush_handle is not None:
            self._flush_handle.cancel()
            self._flush_handle = None
        if self._closed_error is None and self._link is not None and self._sockets is not None:
            for outgoing in self._link.drain_datagrams():
                self._sockets.send(outgoing.datagram, outgoing.to)

    def _set_alarm(self) -> None:
        """Sets the alarm for the first due timer or link deadline."""
        if self._closed_error is not None:
            return
        at_us = self._timers.next_due_us()
        if self._link is not None:
            tick_us = self._link.next_tick_us()
            at_us = tick_us if at_us is None else min(at_us, tick_us)
        if at_us is not None:
            self._alarm.set(at_us, self.now_us())

    def _fail(self, error: StoreError | ClosedError) -> None:
        self._shut_down(ClosedError(f"this world stopped: {error}"))
        self._listener.on_node_failed(error)

    def _shut_down(self, error: ClosedError) -> None:
        self._closed_error = error
        self._alarm.cancel()
        for handle in (self._batch_handle, self._flush_handle):
            if handle is not None:
                handle.cancel()
        if self._sockets is not None:
            self._sockets.close()
        self._store.close()
