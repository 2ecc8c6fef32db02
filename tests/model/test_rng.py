"""Random number generators: different for each purpose, and equal in every process."""

from __future__ import annotations

from thyme.model.rng import derive_rng


def test_a_stream_is_the_same_in_every_process_and_version() -> None:
    assert [derive_rng(1, "radio", 7).getrandbits(32) for _ in range(2)] == [508899087] * 2


def test_streams_of_different_purposes_differ() -> None:
    purposes = [("radio",), ("radio", 1), ("radio", 2), ("mobility", 1), ("radio", b"\x01")]
    drawn = {derive_rng(1, *purpose).getrandbits(64) for purpose in purposes}
    assert len(drawn | {derive_rng(2, "radio").getrandbits(64)}) == 6
