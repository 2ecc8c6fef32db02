"""Handover: what a new incarnation of a node continues for the application.

When a node is replaced while its process runs, because the clock was corrected (M36) or the
substrate changes (B7), the subscriptions of the application are resumed at the new one, and its
requests without an answer are repeated or fail.
Entry point: `Handover`. Replacing the node is up to `thyme.live.host`.
Clauses: M27, M36, B7.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from thyme.model.errors import NotFoundError, OperationTimeoutError
from thyme.model.ids import SubscriptionId
from thyme.protocol.app_interface import (
    AppEvent,
    AppRequest,
    DropUpload,
    Failed,
    Finished,
    InsertBatch,
    InsertUploaded,
    MarkConsumed,
    Pause,
    RequestWithReply,
    Resume,
    SubscriptionEnded,
    SubscriptionStarted,
    Unsubscribe,
    UploadChunk,
)


class Handover:
    """The unanswered requests and attached subscriptions of the applications of one node."""

    def __init__(self, on_resume_failed: Callable[[SubscriptionId], None]) -> None:
        """`on_resume_failed` is called for a subscription that should be resumed again later."""
        self._on_resume_failed = on_resume_failed
        self._unanswered: dict[int, RequestWithReply] = {}
        """Requests that the node has handled and not answered."""
        self._attached: dict[SubscriptionId, None] = {}
        """Subscriptions whose events go to the application."""
        self._serial = 0
        self._resuming: dict[int, SubscriptionId] = {}
        """The own requests, by their negative id."""

    def count_request(self, request: AppRequest | InsertBatch) -> None:
        """Remembers a request until it is answered."""
        if isinstance(request, InsertBatch):
            for insert in request.inserts:
                self._unanswered[insert.request_id] = insert
        elif not isinstance(request, MarkConsumed | Pause):
            self._unanswered[request.request_id] = request

    def count_event(self, event: AppEvent) -> bool:
        """Records an event; returns False if it answers an own request."""
        if isinstance(event, Finished | Failed):
            self._unanswered.pop(event.request_id, None)
            if (sid := self._resuming.pop(event.request_id, None)) is not None:
                if isinstance(event, Failed) and event.code != NotFoundError.code:
                    self._on_resume_failed(sid)
                return False
            if isinstance(event, Finished) and isinstance(event.value, SubscriptionStarted):
                self._attached[event.value.sid] = None
        elif isinstance(event, SubscriptionEnded):
            self._attached.pop(event.sid, None)
        return True

    def make_resume(self, sid: SubscriptionId) -> Resume | None:
        """A request that resumes a subscription; None if the application has ended it."""
        if sid not in self._attached:
            return None
        self._serial -= 1
        self._resuming[self._serial] = sid
        return Resume(request_id=self._serial, sid=sid)

    def start_again(self) -> tuple[list[Resume], list[RequestWithReply]]:
        """For a new incarnation: requests that resume all subscriptions, and the requests of the
        application that its predecessor did not answer."""
        unanswered = [request for request in self._unanswered.values() if request.request_id >= 0]
        self._unanswered.clear()
        self._resuming.clear()
        resumes = [self.make_resume(sid) for sid in self._attached]
        return [request for request in resumes if request is not None], unanswered


def fail_unanswered(
    requests: Iterable[RequestWithReply], detail: str
) -> tuple[list[AppRequest], list[AppEvent]]:
    """Fails requests, none is repeated: nobody knows how they ended."""
    code = OperationTimeoutError.code
    return [], [Failed(request.request_id, code, detail) for request in requests]


def repeat_unanswered(
    requests: Iterable[RequestWithReply], detail: str
) -> tuple[list[AppRequest], list[AppEvent]]:
    """Repeats requests at another node. A subscription that was cancelled is gone already; parts of
    an upload are at the node before, so these requests fail."""
    repeated: list[AppRequest] = []
    answers: list[AppEvent] = []
    for request in requests:
        if isinstance(request, Unsubscribe):
            answers.append(Finished(request.request_id, None))
        elif isinstance(request, UploadChunk | InsertUploaded | DropUpload):
            answers.append(Failed(request.request_id, OperationTimeoutError.code, detail))
        else:
            repeated.append(request)
    return repeated, answers
