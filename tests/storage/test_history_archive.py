"""Both histories, in memory and in a file, answer alike, whatever happened before: the catalogue is
driven through random lives on both, with kills in between (M11, M14, M17, M24, M29)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from operator import methodcaller
from pathlib import Path
from random import Random
from shutil import rmtree
from tempfile import mkdtemp

import pytest
from hypothesis import assume, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from tests.builders import BOB, conjunctions, frame, key, photo
from tests.query.twin_history_index import HistoryTwin
from tests.storage.files import crash_image, with_sql
from thyme.model.errors import OperationError, StoreError
from thyme.model.metadata import Limits, Metadata
from thyme.model.subscriptions import Conjunction
from thyme.model.tags import Tag
from thyme.model.time_frames import ALWAYS, TimeFrame
from thyme.query.cursor import Cursor, cursor_at
from thyme.storage.sqlite.history_archive import ArchivedHistory
from thyme.storage.sqlite.store import SqliteStore
from thyme.storage.store import MemoryStore, Store
from thyme.substrates.common.catalogue import OBJECTS, Catalogue, Retention

GOAL = conjunctions("goal")
CHUNK = 4


def a_catalogue(store: Store, retention: Retention | None = None) -> Catalogue:
    return Catalogue(store, Limits(), retention or Retention(), tombstone_age_us_max=10)


def filled(store: Store, objects: Sequence[Metadata]) -> Catalogue:
    """A catalogue that holds these, committed."""
    catalogue = a_catalogue(store)
    for metadata in objects:
        catalogue.add(metadata, b"", 0)
    store.commit()
    return catalogue


def photos(count: int) -> list[Metadata]:
    """Photo n, published at instant n, with the tag of its last digit."""
    return [photo(n, tags=["goal", f"t{n % 10}"], at_us=n, summary=b"xy") for n in range(count)]


def pages_of(catalogue: Catalogue, query: str, size: int) -> list[Metadata]:
    """All matches, read page by page."""
    found: list[Metadata] = []
    before: Cursor | None = None
    while page := catalogue.history.latest_matches(conjunctions(query), ALWAYS, size, before):
        found += page
        before = cursor_at(page[-1])
    return found


def test_m24_a_restart_reads_the_outlines_and_what_came_last(tmp_path: Path) -> None:
    many = photos(50)
    store = SqliteStore(tmp_path / "s.thyme", chunk_size=CHUNK)
    filled(store, many)
    store.close()

    store = SqliteStore(tmp_path / "s.thyme", chunk_size=CHUNK)
    history = store.open_history(OBJECTS)

    assert isinstance(history, ArchivedHistory)
    assert len(history._recent) < 2 * CHUNK
    assert list(history) == many
    assert (len(history), history.summary_bytes) == (50, 100)
    assert pages_of(a_catalogue(store), "goal & !t3", 7) == [
        metadata for metadata in many[::-1] if "t3" not in metadata.tags
    ]
    store.close()


def test_m24_what_a_kill_leaves_behind_is_archive_and_records_of_one_commit(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "s.thyme", chunk_size=CHUNK)
    catalogue = filled(store, photos(30))
    for number in range(0, 30, 2):
        catalogue.delete(key(number), BOB, 0)
    made = store.read("SELECT chunks_made FROM archived")
    image = crash_image(tmp_path / "s.thyme", tmp_path / "before")
    store.commit()
    later = crash_image(tmp_path / "s.thyme", tmp_path / "after")
    store.close()

    for path, left in ((image, photos(30)), (later, photos(30)[1::2])):
        store = SqliteStore(path, chunk_size=CHUNK)
        assert list(store.open_history(OBJECTS)) == left
        assert store.open_history(OBJECTS).count_matches(GOAL, ALWAYS) == len(left)
        if path is later:  # as it was left, not made anew
            assert store.read("SELECT chunks_made FROM archived") == made
        store.close()


def test_m24_records_that_changed_behind_the_archives_back_are_archived_anew(
    tmp_path: Path,
) -> None:
    """As DCS does when a node comes back in another cell."""
    many = photos(50)
    store = SqliteStore(tmp_path / "s.thyme", chunk_size=CHUNK)
    filled(store, many)
    for metadata in many[:45:2]:
        store.remove(OBJECTS, str(metadata.key))

    history = store.open_history(OBJECTS)

    assert list(history) == [*many[1:45:2], *many[45:]]
    assert history.count_matches(GOAL, ALWAYS) == 27
    store.close()


def test_m24_a_store_of_the_first_version_is_taken_over(tmp_path: Path) -> None:
    many = photos(50)
    path = tmp_path / "s.thyme"
    store = SqliteStore(path)
    for metadata in many:
        store.put(OBJECTS, str(metadata.key), metadata)
    store.commit()
    store.close()
    for statement in (
        "CREATE TABLE r (shelf TEXT NOT NULL, key TEXT NOT NULL, value BLOB NOT NULL, "
        "UNIQUE (shelf, key))",
        "INSERT INTO r SELECT shelf, key, value FROM record ORDER BY id",
        *(
            f"DROP TABLE {name}"
            for name in ("record", "archived", "chunk", "slots", "posting", "change")
        ),
        "DROP TABLE life_end",
        "ALTER TABLE r RENAME TO record",
        "PRAGMA user_version = 1",
    ):
        with_sql(path, statement)

    for _ in range(2):
        store = SqliteStore(path, chunk_size=CHUNK)
        assert list(store.open_history(OBJECTS)) == many
        store.commit()
        store.close()


def test_m14_chunks_that_are_mostly_gone_are_put_together(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "s.thyme", chunk_size=16)
    catalogue = filled(store, photos(400))
    rng = Random(2)
    kept = sorted(rng.sample(range(400), 40))
    for number in rng.sample(sorted(set(range(400)) - set(kept)), 360):
        catalogue.delete(key(number), BOB, 0)

    assert list(catalogue.history) == [photos(400)[number] for number in kept]
    assert len(store.read("SELECT number FROM chunk")) <= 12
    tagged = store.read(
        "SELECT count(*) FROM posting WHERE chunk NOT IN (SELECT number FROM chunk)"
    )
    assert tagged == [(0,)]
    store.close()


def test_m24_what_comes_after_everything_left_is_not_taken_for_archived(tmp_path: Path) -> None:
    """Numbers of records must not be given again, even if the highest are free."""
    store = SqliteStore(tmp_path / "s.thyme", chunk_size=CHUNK)
    catalogue = filled(store, photos(8))
    for number in range(8):
        catalogue.remove_without_tombstone(key(number))
    catalogue.add(photo(9), b"", 0)
    marks = store.read("SELECT * FROM archived")
    store.commit()
    store.close()

    store = SqliteStore(tmp_path / "s.thyme", chunk_size=CHUNK)
    assert list(store.open_history(OBJECTS)) == [photo(9)]
    assert store.read("SELECT * FROM archived") == marks != [], "nothing had to be made anew"
    store.close()


def test_m29_life_spans_end_for_what_is_archived_too(tmp_path: Path) -> None:
    many = [photo(n, at_us=n, expires_us=100 + n) for n in range(20)]
    store = SqliteStore(tmp_path / "s.thyme", chunk_size=CHUNK)
    catalogue = filled(store, many)
    assert catalogue.history.next_expiry_us() == 100
    catalogue.delete(key(0), BOB, 0)
    assert catalogue.history.next_expiry_us() == 101
    catalogue.expire(104)
    store.commit()
    store.close()

    store = SqliteStore(tmp_path / "s.thyme", chunk_size=CHUNK)
    catalogue = a_catalogue(store)
    assert list(catalogue.history) == many[5:]
    assert catalogue.history.next_expiry_us() == 105
    catalogue.expire(119)
    assert (len(catalogue), catalogue.history.next_expiry_us()) == (0, None)
    assert store.read("SELECT count(*) FROM life_end") == [(0,)]
    store.close()


@pytest.mark.parametrize("table", ["chunk", "slots", "posting"])
def test_m25_an_archive_that_changed_on_the_disk_is_told(tmp_path: Path, table: str) -> None:
    path = tmp_path / "s.thyme"
    store = SqliteStore(path, chunk_size=CHUNK)
    filled(store, photos(50))
    store.close()
    with_sql(path, f"UPDATE {table} SET value = substr(value, 1, length(value) - 1) || x'77'")

    store = SqliteStore(path, chunk_size=CHUNK)
    with pytest.raises(StoreError, match=r"s\.thyme"):
        a_catalogue(store).history.latest_matches(GOAL, frame(3, 40), 10)
    store.close()


def test_m25_a_large_file_is_checked_while_it_is_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An index that names another key than its table: nothing that the first look finds."""
    monkeypatch.setattr("thyme.storage.sqlite.store._FULL_CHECK_BYTES_MAX", 1)
    path = tmp_path / "s.thyme"
    store = SqliteStore(path)
    filled(store, photos(10))
    [(page,)] = store.read(
        "SELECT rootpage FROM sqlite_master WHERE name = 'sqlite_autoindex_record_1'"
    )
    store.close()
    octets = path.read_bytes()
    at = octets.index(b"photo9@", (page - 1) * 4_096)
    path.write_bytes(octets[:at] + b"photo9A" + octets[at + 7 :])

    store = SqliteStore(path)
    assert store._integrity_check is not None
    store._integrity_check._thread.join()
    with pytest.raises(StoreError, match="missing from index"):
        store.commit()
    store.close()


# --- Random lives -----------------------------------------------------------------------------

WORDS = [Tag(word) for word in "abcd"]
stamps = st.integers(0, 12)
numbers = st.integers(0, 40)
word_sets = st.sets(st.sampled_from(WORDS), min_size=1, max_size=3)


@st.composite
def questions(draw: st.DrawFn) -> tuple[Sequence[Conjunction], TimeFrame]:
    """One to three conjunctions, inside a frame."""
    found = []
    for _ in range(draw(st.integers(1, 3))):
        wanted = draw(st.sets(st.sampled_from(WORDS), min_size=1, max_size=2))
        unwanted = draw(st.sets(st.sampled_from(WORDS), max_size=2)) - wanted
        found.append(Conjunction(tuple(sorted(wanted)), tuple(sorted(unwanted))))
    start_us, end_us = draw(st.none() | stamps), draw(st.none() | stamps)
    assume(start_us is None or end_us is None or start_us <= end_us)
    return found, TimeFrame(start_us, end_us)


class TwoLives(RuleBasedStateMachine):
    """Does the same to a catalogue in memory and to one in a file, and asks both the same."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(mkdtemp())
        self.memory = MemoryStore()
        self.now_us = 0

    @initialize(
        chunk_size=st.sampled_from([2, 3, 5]),
        retention=st.sampled_from(
            [Retention(), Retention(objects_max=9), Retention(age_us_max=8, bytes_max=60)]
        ),
    )
    def start(self, chunk_size: int, retention: Retention) -> None:
        self.chunk_size, self.retention = chunk_size, retention
        self.both = [a_catalogue(self.memory, retention)]
        self.open_file()

    def open_file(self) -> None:
        self.file = SqliteStore(self.folder / "s.thyme", chunk_size=self.chunk_size)
        self.both[1:] = [a_catalogue(self.file, self.retention)]

    def do(self, what: Callable[[Catalogue], object]) -> None:
        """To both, with the same outcome."""
        outcomes = []
        for catalogue in self.both:
            try:
                outcomes.append(what(catalogue))
            except OperationError as error:
                outcomes.append(str(error))
        assert outcomes[0] == outcomes[1]

    @rule(
        added=st.lists(st.tuples(numbers, word_sets, stamps), max_size=12),
        life_us=st.none() | st.integers(1, 20),
        summary=st.binary(max_size=9),
    )
    def add(
        self, added: list[tuple[int, set[str], int]], life_us: int | None, summary: bytes
    ) -> None:
        for number, words, at_us in added:
            expires_us = None if life_us is None else at_us + life_us
            metadata = photo(
                number, tags=words, at_us=at_us, summary=summary, expires_us=expires_us
            )
            self.do(methodcaller("add", metadata, b"", self.now_us))

    @rule(some=st.lists(numbers, max_size=15))
    def delete(self, some: list[int]) -> None:
        for number in some:
            self.do(methodcaller("delete", key(number), BOB, self.now_us))

    @rule(some=st.lists(numbers, max_size=9))
    def forget(self, some: list[int]) -> None:
        for number in some:
            self.do(methodcaller("remove_without_tombstone", key(number)))

    @rule(step_us=st.integers(1, 6))
    def expire(self, step_us: int) -> None:
        self.now_us += step_us
        self.do(lambda catalogue: catalogue.expire(self.now_us))
        for catalogue in self.both:
            end_us = catalogue.history.next_expiry_us()
            assert end_us is None or end_us > self.now_us, "it would be asked for ever"

    @rule()
    def stop_and_start(self) -> None:
        self.file.commit()
        self.file.close()
        self.both[0] = a_catalogue(self.memory, self.retention)
        self.open_file()

    @rule(lost=st.lists(numbers, max_size=12))
    def kill(self, lost: list[int]) -> None:
        """What was not committed never was."""
        self.file.commit()
        for number in lost:
            self.both[1].remove_without_tombstone(key(number))
            with suppress(OperationError):
                self.both[1].add(photo(number, tags=["a"], at_us=3), b"", self.now_us)
        self.file.close()
        self.both[0] = a_catalogue(self.memory, self.retention)
        self.open_file()

    @precondition(lambda self: hasattr(self, "both"))
    @rule(question=questions(), size=st.integers(1, 9))
    def send_request(self, question: tuple[Sequence[Conjunction], TimeFrame], size: int) -> None:
        twin = HistoryTwin()
        for metadata in self.both[0].history:
            twin.add(metadata)
        for catalogue in self.both:
            history = catalogue.history
            assert history.count_matches(*question) == twin.count_matches(*question)
            before: Cursor | None = None
            while True:
                page = history.latest_matches(*question, size, before)
                assert page == twin.latest_matches(*question, size, before)
                if not page:
                    break
                before = cursor_at(page[-1])
            after: Cursor | None = None
            while True:  # M34
                page = history.earliest_matches(*question, size, after)
                assert page == twin.earliest_matches(*question, size, after)
                if not page:
                    break
                after = cursor_at(page[-1])

    @invariant()
    def alike(self) -> None:
        if hasattr(self, "both"):
            self.do(lambda catalogue: list(catalogue.history))
            self.do(lambda catalogue: (len(catalogue), catalogue.stored_bytes))
            self.do(lambda catalogue: catalogue.history.oldest())
            self.do(lambda catalogue: catalogue.state(key(7)))
            for catalogue in self.both:
                catalogue.check()

    def teardown(self) -> None:
        if hasattr(self, "file"):
            self.file.close()
        rmtree(self.folder)


TestTwoLives = TwoLives.TestCase
TestTwoLives.settings = settings(max_examples=40, stateful_step_count=20, deadline=None)
