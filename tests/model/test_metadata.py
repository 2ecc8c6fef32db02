"""Metadata: the description of an object, and its limits (M1, M2, M19, M29)."""

from __future__ import annotations

from hashlib import sha256
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.builders import ALICE, key, photo
from thyme.model.errors import InstantError, MetadataError, TagError
from thyme.model.metadata import Limits, Metadata, make_metadata
from thyme.model.time_frames import INSTANT_MAX_US


def test_m2_metadata_is_the_tuple_of_the_paper_with_size_and_digest() -> None:
    made = make_metadata(key(7, by=ALICE), b"pixels", ["Goal", "eder"], 10, summary=b"thumb")

    assert made == Metadata(
        key=key(7, by=ALICE),
        tags=("eder", "goal"),  # type: ignore[arg-type]
        summary=b"thumb",
        published_us=10,
        size=6,
        digest_and_proof=sha256(b"pixels").digest(),
    )
    assert (made.oid, made.owner) == ("photo7", ALICE)


def test_m1_an_object_may_have_no_bytes() -> None:
    made = photo(data=b"")

    assert made.size == 0
    assert made.matches_content(b"")


def test_m1_an_object_may_have_64_mib_by_default() -> None:
    assert Limits().data_bytes_max >= 64 * 2**20


@given(st.binary(max_size=64), st.binary(max_size=64))
def test_m19_metadata_describes_its_own_object_and_no_other(data: bytes, other: bytes) -> None:
    made = photo(data=data)

    assert made.matches_content(data)
    assert made.matches_content(other) is (other == data)


def test_m19_bytes_that_were_flipped_or_cut_are_not_the_object() -> None:
    made = photo(data=b"pixels")

    assert not made.matches_content(b"pixelz")
    assert not made.matches_content(b"pixel")
    assert not made.matches_content(b"pixels\x00")


@pytest.mark.parametrize(("size", "fits"), [(0, True), (9, True), (10, True), (11, False)])
@pytest.mark.parametrize(
    ("part", "limits", "what"),
    [
        ("data", Limits(data_bytes_max=10), "an object"),
        ("summary", Limits(summary_bytes_max=10), "a summary"),
    ],
)
def test_m2_limits_hold_at_the_boundary(
    part: str, limits: Limits, what: str, size: int, fits: bool
) -> None:
    parts: dict[str, Any] = {"data": b"", "summary": b"", part: b"x" * size}
    if fits:
        made = make_metadata(key(), tags=["goal"], published_us=0, limits=limits, **parts)
        assert len(parts[part]) == size
        assert made.matches_content(parts["data"])
    else:
        with pytest.raises(MetadataError, match=f"^{what} has at most 10 bytes here, .* has 11$"):
            make_metadata(key(), tags=["goal"], published_us=0, limits=limits, **parts)


def test_m2_a_summary_has_64_kib_by_default() -> None:
    assert len(photo(summary=b"x" * 65_536).summary) == 65_536
    with pytest.raises(MetadataError, match="a summary has at most 65536 bytes"):
        photo(summary=b"x" * 65_537)


@pytest.mark.parametrize("thing", ["text", None, 7, [1, 2]])
def test_m25_an_object_and_its_summary_are_bytes(thing: Any) -> None:
    with pytest.raises(MetadataError, match=f"an object is bytes, not {type(thing).__name__}"):
        photo(data=thing)
    with pytest.raises(MetadataError, match=f"a summary is bytes, not {type(thing).__name__}"):
        photo(summary=thing)


def test_m25_an_object_needs_a_tag() -> None:
    with pytest.raises(TagError, match="at least one tag"):
        photo(tags=[])


@pytest.mark.parametrize("at_us", [INSTANT_MAX_US + 1, -INSTANT_MAX_US - 1, float("nan")])
def test_m25_an_object_is_published_at_an_instant(at_us: Any) -> None:
    with pytest.raises(InstantError, match="out of range"):
        photo(at_us=at_us)


@pytest.mark.parametrize("expires_us", [9, 10])
def test_m29_a_life_span_ends_after_publication(expires_us: int) -> None:
    with pytest.raises(MetadataError, match="must expire after its publication"):
        photo(at_us=10, expires_us=expires_us)


@pytest.mark.parametrize(("now_us", "expired"), [(10, False), (19, False), (20, True), (21, True)])
def test_m29_an_object_expires_at_the_end_of_its_life_span(now_us: int, expired: bool) -> None:
    assert photo(at_us=10, expires_us=20).has_expired(now_us) is expired


def test_m29_an_object_without_a_life_span_never_expires() -> None:
    assert not photo().has_expired(INSTANT_MAX_US)


@pytest.mark.parametrize(
    ("change", "error", "words"),
    [
        ({"size": -1}, MetadataError, "size is not negative: -1"),
        ({"digest_and_proof": b""}, MetadataError, "a digest has 32 bytes.*, not 0"),
        ({"digest_and_proof": b"x" * 31}, MetadataError, "a digest has 32 bytes.*, not 31"),
        ({"digest_and_proof": b"x" * 33}, MetadataError, "a digest has 32 bytes.*, not 33"),
        ({"tags": ()}, TagError, "at least one tag"),
        ({"tags": ("b", "a")}, TagError, "sorted"),
        ({"tags": ("a", "a")}, TagError, "distinct"),
        ({"tags": ("Goal",)}, TagError, "normalised"),
        ({"published_us": INSTANT_MAX_US + 1}, InstantError, "out of range"),
        ({"expires_us": INSTANT_MAX_US + 1}, InstantError, "out of range"),
    ],
)
def test_m25_metadata_that_exists_is_valid(
    change: dict[str, Any], error: type[Exception], words: str
) -> None:
    with pytest.raises(error, match=words):
        msgspec.structs.replace(photo(), **change)


def test_m1_metadata_cannot_be_changed() -> None:
    with pytest.raises(AttributeError):
        photo().published_us = 5  # type: ignore[misc]
