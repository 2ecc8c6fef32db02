"""Requests and answers for applications in another process: each comes out as it went in."""

from __future__ import annotations

from contextlib import suppress

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.builders import conjunctions, frame, key, photo
from thyme.model.errors import DecodeError
from thyme.model.ids import SubscriptionId
from thyme.model.subscriptions import Notification
from thyme.protocol import app_interface as asked
from thyme.wire.app_rpc import decode_event, decode_request, encode_event, encode_request

SID = SubscriptionId("sub1")
NOTE = Notification(SID, photo(1), 7, from_history=True)
GOAL = conjunctions("goal & !replay | eder")
REQUESTS: list[asked.AppRequest] = [
    asked.Insert(request_id=1, data=b"\x00\xff", tags=photo().tags, summary=b"s", ttl_us=5),
    asked.Delete(request_id=2, key=key()),
    asked.Subscribe(request_id=3, conjunctions=GOAL, frame=frame(None, 9), batch=20),
    asked.Resume(request_id=4, sid=SID),
    asked.CatchUp(request_id=5, sid=SID, refused=(key(1), key(2))),
    asked.FetchNextPage(request_id=6, sid=SID, count=3),
    asked.Unsubscribe(request_id=7, sid=SID),
    asked.Search(request_id=8, conjunctions=GOAL, frame=frame(1, 2), count=0),
    asked.Retrieve(request_id=9, metadata=photo(3)),
    asked.Lookup(request_id=10, key=key()),
    asked.ListSubscriptions(request_id=11),
    asked.MarkConsumed(sid=SID, key=key()),
    asked.Pause(sid=SID),
    asked.Resume(request_id=4, sid=SID, after=key()),
    asked.UploadChunk(request_id=12, upload="u", data=b"\x00"),
    asked.DropUpload(request_id=13, upload="u"),
    asked.InsertUploaded(request_id=14, data=b"", tags=photo().tags, upload="u"),
    asked.RetrieveChunk(request_id=15, metadata=photo(3), index=2),
]
VALUES: list[asked.ReplyValue] = [
    key(),
    asked.SubscriptionStarted(SID, 4),
    asked.SearchResult((NOTE,), 1),
    asked.LookupResult("there", photo()),
    (asked.SubscriptionInfo(SID, GOAL, frame(1, None), 20),),
    (),
    b"the object",
    3,
    None,
]
TOLD: list[asked.AppEvent] = [
    *(asked.Finished(5, value) for value in VALUES),
    asked.Failed(1, "timeout", "no answer"),
    asked.NotificationEvent(NOTE),
    asked.CaughtUp(SID, 3, "timeout"),
    asked.SubscriptionEnded(SID, "cancelled"),
    asked.NotificationsLost(SID, 7),
]


@pytest.mark.parametrize("request_", REQUESTS, ids=lambda request: type(request).__name__)
def test_a_request_comes_out_as_it_went_in(request_: asked.AppRequest) -> None:
    assert decode_request(encode_request(request_)) == request_


@pytest.mark.parametrize("told", TOLD, ids=str)
def test_what_is_told_comes_out_as_it_went_in(told: asked.AppEvent) -> None:
    assert decode_event(encode_event(told)) == told


def test_every_request_is_among_them() -> None:
    assert {type(request) for request in REQUESTS} == set(asked.AppRequest.__args__)


@pytest.mark.parametrize(
    "change",
    [{"tags": ()}, {"tags": ("A",)}, {"copies": 0}, {"life_us": 0}, {"data": "text"}],
)
def test_m25_what_an_interface_would_refuse_is_refused_here_too(change: dict[str, object]) -> None:
    fields = {"ask": 1, "data": b"", "tags": ("a",), **change}
    with pytest.raises(DecodeError):
        decode_request(msgspec.msgpack.encode(("Insert", fields)))


@given(st.binary(max_size=200), st.integers(0, len(REQUESTS) - 1), st.data())
def test_m25_garbage_is_a_sound_frame_or_refused(
    garbage: bytes, index: int, data: st.DataObject
) -> None:
    frame = bytearray(encode_request(REQUESTS[index]))
    for _ in range(data.draw(st.integers(1, 3))):
        frame[data.draw(st.integers(0, len(frame) - 1))] = data.draw(st.integers(0, 255))
    for read in (decode_request, decode_event):
        for bad in (garbage, bytes(frame)):
            with suppress(DecodeError):
                read(bad)
