"""Compact messages: shorter than the full ones, and the same to those who handle them (D28)."""

from __future__ import annotations

import pytest

from tests.builders import ALICE, BOB, CAROL, photo
from thyme.model.errors import DecodeError, InputError
from thyme.model.ids import SubscriptionId
from thyme.model.metadata import Metadata
from thyme.protocol.messages.cell_records import CellId, IndexedMetadata, MatchedObject, Replica
from thyme.protocol.messages.cells import CellNotifyBatch, CellPage
from thyme.protocol.messages.common import ReplyFromCell
from thyme.protocol.messages.compact import (
    CompactNotifyBatch,
    CompactObjects,
    compact_batch,
    compact_objects,
    compact_page,
)
from thyme.protocol.messages.traits import SmallObject
from thyme.wire.codec import decode, encode, size_of

MANY_TAGS = [f"hashtag{number}" for number in range(7)]
CROWD = tuple(
    IndexedMetadata(
        photo(number, tags=MANY_TAGS[: 4 + number % 3], at_us=10**15 + number, data=b"pixels"),
        (Replica(CellId(5)),),
        (Replica(CellId(7), CAROL),) if number % 2 else (),
    )
    for number in range(50)
)
MATCHED = [MatchedObject(each, (SubscriptionId("s1"), SubscriptionId("s2"))) for each in CROWD[:4]]


def nothing(metadata: Metadata) -> bytes | None:
    return None


def test_d28_a_page_in_compact_form_expands_to_the_same_page() -> None:
    page = CellPage(7, 900, CROWD, True)

    expanded = compact_page(page, nothing).expanded()

    assert expanded.message == page
    assert expanded.small_objects == ()


def test_d28_a_page_of_similar_objects_is_less_than_half_as_long() -> None:
    page = CellPage(7, 900, CROWD, True)

    assert size_of(compact_page(page, nothing)) < size_of(page) / 2


def test_d28_notifications_expand_with_the_subscriptions_of_each_object() -> None:
    other = MatchedObject(CROWD[9], (SubscriptionId("s3"),))

    expanded = compact_batch([*MATCHED, other], nothing, 1_500_000).expanded()

    assert expanded.message == CellNotifyBatch((*MATCHED, other))
    assert expanded.ack_delay_us == 1_500_000


def test_d28_a_small_object_travels_with_its_metadata_instead_of_digest_and_replicas() -> None:
    metadata = CROWD[3].metadata
    page = CellPage(7, 1, (CROWD[3],), False)
    sent = decode(encode(compact_page(page, lambda _: b"pixels")))

    expanded = sent.expanded()

    assert expanded is not None
    assert expanded.small_objects == (SmallObject(metadata, b"pixels"),)
    assert expanded.message == CellPage(7, 1, (IndexedMetadata(metadata, ()),), False)
    assert size_of(sent) < size_of(compact_page(page, nothing))


def test_d28_bytes_that_are_not_the_object_make_another_object() -> None:
    """B5: where metadata are signed, the signature then does not fit, and the record is dropped."""
    [content], small = compact_objects(CROWD[:1], lambda _: b"forged").expand()

    assert content.metadata.digest != CROWD[0].metadata.digest
    assert small[0].metadata == content.metadata


def test_d28_a_proof_stays_with_a_small_object() -> None:
    from msgspec.structs import replace

    proven = replace(CROWD[0].metadata, digest_and_proof=CROWD[0].metadata.digest + b"p" * 96)
    [content], _ = compact_objects([IndexedMetadata(proven, ())], lambda _: b"pixels").expand()

    assert content.metadata == proven


def test_d28_a_reply_of_a_cell_expands_with_the_page_in_it() -> None:
    page = CellPage(7, 50, CROWD, False)
    expanded = ReplyFromCell(CellId(3), compact_page(page, nothing)).expanded()

    assert expanded is not None
    assert expanded.message == ReplyFromCell(CellId(3), page)
    assert ReplyFromCell(CellId(3), page).expanded() is None


def test_an_empty_batch_and_objects_that_expire_keep_their_form() -> None:
    empty = CompactObjects(0, (), (), (), (), ())
    assert compact_batch([], nothing, 0) == CompactNotifyBatch(empty, (), (), 0)

    mortal = IndexedMetadata(photo(1, at_us=5, expires_us=90, summary=b"th"), (Replica(CellId(1)),))
    assert compact_objects([mortal], nothing).expand() == ([mortal], ())


@pytest.mark.parametrize("table", range(5))
def test_a_position_outside_its_table_is_refused(table: int) -> None:
    tables = [(ALICE, BOB), ("goal",), ((0,),), (((), ()),), ()]
    objects = compact_objects(CROWD[:1], nothing).objects
    tables[4] = objects
    wrong: list[object] = list(tables)
    if table < 4:
        wrong[table] = ()
    else:
        wrong[4] = (type(objects[0])("photo0", 0, 9, 0, 0, 3, b"d" * 32, b"", None),)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="no position"):
        CompactNotifyBatch(CompactObjects(5, *wrong), ((),), (0,), 0)  # type: ignore[arg-type]


def test_a_batch_needs_a_match_for_each_object_and_nothing_undecodable_gets_through() -> None:
    good = compact_batch(MATCHED, nothing, 0)
    with pytest.raises(ValueError, match="one match for each"):
        CompactNotifyBatch(good.content, good.sid_lists, (), 0)

    packet = bytearray(encode(good))
    refused = 0
    for position in range(1, len(packet)):
        broken = bytes(packet[:position]) + b"\x7f" + bytes(packet[position + 1 :])
        try:
            decode(broken).expanded()
        except (DecodeError, InputError):
            refused += 1
    assert refused > 0, "each byte that is wrong is refused, or makes another valid message"
