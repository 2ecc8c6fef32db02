"""Damage: a store file with bytes flipped or cut off is told of, and never believed (M25).

A single byte is flipped at hundreds of places of a sound file, the file is opened, and everything
in it is read as a node would. What the store promises:

- nothing but a `StoreError` is raised, it names the file, and the file is left as it was;
- whatever is read without an error is what was written: no record is lost or changed in silence.
  The bytes of objects may be wrong, since their digest is checked by whoever retrieves them (M19).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from random import Random

import pytest

from tests.builders import photo
from tests.storage.files import DATA, PHOTOS, RECORDS, a_store_file, contents, crash_image
from thyme.model.errors import StoreError
from thyme.model.metadata import Metadata
from thyme.storage.sqlite.store import SqliteStore

HEADER_BYTES = 100


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of some damage; `error` is None where everything could be read."""

    place: str
    error: type[Exception] | None
    words: str
    unchanged: bool
    records: list[tuple[str, Metadata]]
    data: dict[str, bytes | None]


def outcome_of(path: Path, damaged: bytes, place: str) -> Outcome:
    path.write_bytes(damaged)
    try:
        records, data = contents(path)
    except Exception as error:
        # Only words are kept: a traceback would keep the store open, and its lock held.
        return Outcome(place, type(error), str(error), path.read_bytes() == damaged, [], {})
    finally:
        for beside in path.parent.glob(f"{path.name}-*"):
            beside.unlink()
    return Outcome(place, None, "", path.read_bytes() == damaged, records, data)


def flips(sound: bytes) -> Iterator[tuple[int, int]]:
    """Where to flip which bits: all of the header, and some of everything else."""
    rng = Random(1974)
    yield from ((at, 1 << rng.randrange(8)) for at in range(HEADER_BYTES))
    # Most of a small file is free space; these are the places where something is written.
    written = [at for at in range(HEADER_BYTES, len(sound)) if sound[at]]
    yield from ((at, rng.choice([0x01, 0x80, 0xFF])) for at in rng.sample(written, 1000))


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory: pytest.TempPathFactory) -> list[Outcome]:
    folder = tmp_path_factory.mktemp("damage")
    sound = a_store_file(folder / "s.thyme").read_bytes()
    found = []
    for at, mask in flips(sound):
        damaged = sound[:at] + bytes([sound[at] ^ mask]) + sound[at + 1 :]
        found.append(outcome_of(folder / "s.thyme", damaged, f"byte {at} ^ {mask:#04x}"))
    return found


def test_m25_a_flipped_byte_raises_one_error_only(outcomes: list[Outcome]) -> None:
    strays = [
        (outcome.place, outcome.error, outcome.words)
        for outcome in outcomes
        if outcome.error not in (StoreError, None)
    ]

    assert strays == []
    assert any(outcome.error is not None for outcome in outcomes)


def test_m25_the_error_of_a_flipped_byte_names_the_file_and_leaves_it(
    outcomes: list[Outcome],
) -> None:
    told = [outcome for outcome in outcomes if outcome.error is StoreError]

    assert [outcome.place for outcome in told if "s.thyme" not in outcome.words] == []
    assert [outcome.place for outcome in told if not outcome.unchanged] == []


def test_m25_a_flipped_byte_loses_no_record_in_silence(outcomes: list[Outcome]) -> None:
    lost = [
        (outcome.place, f"{len(outcome.records)} of {len(RECORDS)} records")
        for outcome in outcomes
        if outcome.error is None and len(outcome.records) != len(RECORDS)
    ]

    assert lost == []


def test_m25_a_flipped_byte_changes_no_record_in_silence(outcomes: list[Outcome]) -> None:
    wrong = [
        (
            outcome.place,
            sum(one != other for one, other in zip(outcome.records, RECORDS, strict=True)),
        )
        for outcome in outcomes
        if outcome.error is None
        and len(outcome.records) == len(RECORDS)
        and outcome.records != RECORDS
    ]

    assert wrong == []


def test_m25_an_objects_bytes_are_bytes_or_missed_whatever_was_flipped(
    outcomes: list[Outcome],
) -> None:
    """They may be wrong, which the digest shows, but not anything else than bytes."""
    kinds = {type(data) for outcome in outcomes for data in outcome.data.values()}

    assert kinds <= {bytes, type(None)}
    assert any(outcome.data == DATA for outcome in outcomes)


def test_m25_a_file_that_was_cut_off_is_refused_and_left_alone(tmp_path: Path) -> None:
    sound = a_store_file(tmp_path / "s.thyme").read_bytes()
    sizes = {2, 15, 16, 99, 100, 101, 1000, *range(512, len(sound), 512), len(sound) - 1}

    found = [outcome_of(tmp_path / "s.thyme", sound[:size], f"{size} bytes") for size in sizes]

    assert [outcome.place for outcome in found if outcome.error is not StoreError] == []
    assert [outcome.place for outcome in found if not outcome.unchanged] == []


def test_m25_a_file_with_a_page_of_zeros_is_refused_or_right(tmp_path: Path) -> None:
    sound = a_store_file(tmp_path / "s.thyme").read_bytes()
    page = 4096

    for start in range(0, len(sound), page):
        damaged = sound[:start] + bytes(page) + sound[start + page :]
        outcome = outcome_of(tmp_path / "s.thyme", damaged, f"page at {start}")
        assert outcome.error in (StoreError, None), outcome
        assert outcome.error is not None or outcome.records == RECORDS, outcome.place


def test_m25_a_log_with_a_flipped_byte_gives_the_commits_before_it(tmp_path: Path) -> None:
    """After a crash the log counts up to its first damaged commit; never half of one."""
    path = tmp_path / "s.thyme"
    store = SqliteStore(path)
    histories: list[list[tuple[str, Metadata]]] = [[]]
    for number in range(6):
        store.put(PHOTOS, f"a{number}", photo(number))
        store.put(PHOTOS, f"b{number}", photo(number))
        store.commit()
        histories.append(list(store.load(PHOTOS)))
    image = crash_image(path, tmp_path / "image")
    store.close()
    database, log = image.read_bytes(), image.with_name("s.thyme-wal").read_bytes()
    rng = Random(1974)

    for at in [*range(32), *(rng.randrange(len(log)) for _ in range(150))]:
        damaged = log[:at] + bytes([log[at] ^ 1 << rng.randrange(8)]) + log[at + 1 :]
        image.write_bytes(database)
        image.with_name("s.thyme-wal").write_bytes(damaged)
        try:
            records, _ = contents(image)
        except StoreError:
            continue
        assert records in histories, f"byte {at} of the log"
