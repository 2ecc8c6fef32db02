"""No message keeps a node busy for long: its lists are limited, and refused before they are read
(M25, B5)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any, get_args, get_origin, get_type_hints

import msgspec
import pytest

from tests.builders import photo
from thyme.model.errors import DecodeError
from thyme.model.ids import SubscriptionId
from thyme.model.subscriptions import Conjunction, SubscriptionRecord
from thyme.model.time_frames import ALWAYS
from thyme.protocol.messages.cells import CellState
from thyme.protocol.messages.common import MESSAGE_TYPES, RouteUpdate
from thyme.protocol.messages.list_limits import ITEMS_MAX, PART_RECORDS_MAX, RECORDS_MAX
from thyme.protocol.messages.replies import Page, PastMatches
from thyme.query.query import Query
from thyme.storage.store import MemoryStore
from thyme.substrates.common.broker import Broker, BrokerConfig
from thyme.wire.codec import decode, encode

CHECKED_THEMSELVES = {Conjunction, SubscriptionRecord, type(photo(1))}
"""Records that refuse too many tags or conjunctions when they are made."""


def unlimited_lists(kind: type[msgspec.Struct], seen: set[type]) -> Iterator[str]:
    """The fields of a type, and of those inside it, that are lists of any length."""
    seen.add(kind)
    for name, hint in get_type_hints(kind, include_extras=True).items():
        if name in kind.__struct_fields__:
            for found in unlimited_parts(hint, seen):
                yield f"{kind.__name__}.{name}{found}"


def unlimited_parts(hint: Any, seen: set[type]) -> Iterator[str]:
    limited = get_origin(hint) is Annotated
    inner = get_args(hint)[0] if limited else hint
    if get_origin(inner) is tuple and get_args(inner)[-1] is Ellipsis and not limited:
        yield ""
    for part in get_args(inner):
        yield from unlimited_parts(part, seen)
    is_record = isinstance(inner, type) and issubclass(inner, msgspec.Struct)
    if is_record and inner not in seen | CHECKED_THEMSELVES:
        yield from (f": {each}" for each in unlimited_lists(inner, seen))


@pytest.mark.parametrize("kind", MESSAGE_TYPES, ids=lambda kind: kind.__name__)
def test_b5_every_list_in_a_message_has_a_limit(kind: type[msgspec.Struct]) -> None:
    assert not list(unlimited_lists(kind, set()))


def past_matches(count: int) -> bytes:
    items = (photo(1),) * count
    return encode(PastMatches(SubscriptionId("sub"), count, items, has_more=False))


def test_b5_a_list_of_as_many_records_as_allowed_is_read_and_one_more_is_refused() -> None:
    assert isinstance(decode(past_matches(RECORDS_MAX)), PastMatches)
    with pytest.raises(DecodeError):
        decode(past_matches(RECORDS_MAX + 1))
    with pytest.raises(DecodeError):
        decode(encode(CellState(1, 0, 1, replicated=(photo(1),) * (PART_RECORDS_MAX + 1))))
    with pytest.raises(DecodeError):
        decode(encode(RouteUpdate(((photo(1).owner, 2, 1),) * (ITEMS_MAX + 1))))


def test_b5_a_list_that_is_too_long_is_refused_before_its_elements_are_read() -> None:
    whole = past_matches(RECORDS_MAX + 1)
    at = whole.index(msgspec.msgpack.encode(photo(1)))

    with pytest.raises(DecodeError) as refused:
        decode(whole[:at] + bytes(len(whole) - at))  # what follows is no record

    assert "length" in str(refused.value)


def test_m16_a_search_for_up_to_a_thousand_objects_is_one_page_that_can_be_read() -> None:
    broker = Broker(MemoryStore(), BrokerConfig(), 0)
    for number in range(RECORDS_MAX):
        item = photo(number, at_us=number)
        broker.insert(item, item.owner, b"", RECORDS_MAX)

    page = broker.read_page(Query("goal").conjunctions, ALWAYS, 1_000, None, RECORDS_MAX)

    assert (len(page.items), page.more) == (1_000, False)
    assert decode(encode(Page(1, page.total, page.items, page.more)))
