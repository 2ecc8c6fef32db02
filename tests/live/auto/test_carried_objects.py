"""Own objects follow a node into other worlds, once, and stay deleted (B7)."""

from __future__ import annotations

from random import Random

from hypothesis import given
from hypothesis import strategies as st

from thyme.live.auto.carried_objects import WINDOW, CarriedObjects
from thyme.model.errors import NotFoundError, OperationTimeoutError, ThymeError
from thyme.model.ids import Key, NodeId, ObjectId
from thyme.protocol.app_interface import (
    AppEvent,
    AppRequest,
    Delete,
    Failed,
    Finished,
    Insert,
    InsertAt,
)
from thyme.storage.store import MemoryStore

ALICE = NodeId(b"alice")


class Application:
    """Records the events that it gets."""

    def __init__(self) -> None:
        self.events: list[AppEvent] = []

    def on_event(self, event: AppEvent) -> None:
        self.events.append(event)

    def on_node_failed(self, error: ThymeError) -> None:
        raise error


class Worlds:
    """A node in one world after the other; each world is a dict of the objects that it has."""

    def __init__(self, store: MemoryStore | None = None) -> None:
        self.application = Application()
        self.carried = CarriedObjects(store or MemoryStore(), ALICE, Random(1), self.application)
        self.carried.send = self.queue
        self.carried.try_later = self.later
        self.objects: dict[str, dict[ObjectId, tuple[bytes, int]]] = {}
        self.deleted: dict[str, set[ObjectId]] = {}
        self.here = ""
        self.waiting: list[AppRequest] = []
        self.again: list[ObjectId] = []
        self.serial = 0

    def queue(self, request: AppRequest) -> None:
        prepared = self.carried.prepare(request, 10)
        if prepared is not None:
            self.waiting.append(prepared)

    def later(self, oid: ObjectId) -> None:
        self.again.append(oid)

    def enter(self, world: str) -> None:
        self.here, self.waiting = world, []
        self.objects.setdefault(world, {})
        self.deleted.setdefault(world, set())
        self.carried.enter(world, 20)

    def insert(self, oid: str) -> None:
        self.serial += 1
        tags = ()
        self.queue(Insert(request_id=self.serial, data=oid.encode(), tags=tags, oid=ObjectId(oid)))

    def delete(self, oid: str) -> None:
        self.serial += 1
        self.queue(Delete(request_id=self.serial, key=Key(ObjectId(oid), ALICE)))

    def answer(self, count: int = 10**6) -> None:
        """The world answers the oldest requests."""
        for _ in range(count):
            if not self.waiting:
                return
            request = self.waiting.pop(0)
            there = self.objects[self.here]
            if isinstance(request, InsertAt):
                assert request.oid is not None
                assert request.oid not in self.deleted[self.here]
                there[request.oid] = request.data, request.published_us
                self.carried.on_event(Finished(request.request_id, Key(request.oid, ALICE)))
            elif isinstance(request, Delete) and request.key.oid in there:
                del there[request.key.oid]
                self.deleted[self.here].add(request.key.oid)
                self.carried.on_event(Finished(request.request_id, None))
            elif isinstance(request, Delete):
                self.carried.on_event(Failed(request.request_id, NotFoundError.code, ""))


def test_b7_an_object_keeps_its_key_bytes_and_time_in_another_world() -> None:
    worlds = Worlds()
    worlds.enter("ls")
    worlds.insert("photo")
    worlds.answer()
    worlds.enter("es")
    worlds.answer()
    assert worlds.objects["es"] == worlds.objects["ls"] == {"photo": (b"photo", 10)}
    assert [event.request_id for event in worlds.application.events] == [1]  # type: ignore[union-attr]


def test_b7_a_delete_reaches_the_world_that_was_left_when_the_node_is_back() -> None:
    worlds = Worlds()
    worlds.enter("ls")
    worlds.insert("photo")
    worlds.answer()
    worlds.enter("es")
    worlds.answer()
    worlds.delete("photo")
    worlds.answer()
    assert worlds.objects == {"ls": {"photo": (b"photo", 10)}, "es": {}}
    worlds.enter("ls")
    worlds.answer()
    assert worlds.objects == {"ls": {}, "es": {}}
    assert len(worlds.carried) == 0


def test_b7_an_object_can_be_deleted_before_it_was_carried() -> None:
    worlds = Worlds()
    worlds.enter("ls")
    worlds.insert("photo")
    worlds.answer()
    worlds.enter("es")
    worlds.waiting.clear()  # under way
    worlds.delete("photo")
    worlds.answer()
    assert worlds.application.events[-1] == Finished(2, None)
    worlds.enter("ls")
    worlds.answer()
    assert worlds.objects == {"ls": {}, "es": {}}


def test_b7_an_object_id_stays_taken_in_a_world_that_does_not_have_it_yet() -> None:
    worlds = Worlds()
    worlds.enter("ls")
    worlds.insert("photo")
    worlds.answer()
    worlds.enter("es")
    worlds.insert("photo")
    [_, event] = worlds.application.events
    assert isinstance(event, Failed)
    assert event.code == "rejected"


def test_b7_an_insert_that_failed_is_not_carried() -> None:
    worlds = Worlds()
    worlds.enter("ls")
    worlds.insert("photo")
    worlds.carried.on_event(Failed(1, "store_full", ""))
    worlds.enter("es")
    assert worlds.waiting == []
    assert len(worlds.carried) == 0


def test_b7_a_carried_object_that_timed_out_is_tried_again() -> None:
    worlds = Worlds()
    worlds.enter("ls")
    worlds.insert("photo")
    worlds.answer()
    worlds.enter("es")
    [request] = worlds.waiting
    worlds.waiting.clear()
    assert isinstance(request, InsertAt)
    worlds.carried.on_event(Failed(request.request_id, OperationTimeoutError.code, ""))
    assert worlds.again == ["photo"]
    assert worlds.waiting == []
    worlds.carried.carry(ObjectId("photo"))
    worlds.answer()
    assert list(worlds.objects["es"]) == ["photo"]


def test_b7_a_restarted_node_carries_what_it_stored_and_few_objects_are_under_way() -> None:
    store = MemoryStore()
    worlds = Worlds(store)
    worlds.enter("ls")
    for number in range(3 * WINDOW):
        worlds.insert(str(number))
    worlds.answer()
    again = Worlds(store)
    again.enter("es")
    assert len(again.waiting) == WINDOW
    again.answer()
    assert again.objects["es"] == worlds.objects["ls"]


steps = st.one_of(
    st.tuples(st.just("insert"), st.sampled_from("abcdef")),
    st.tuples(st.just("delete"), st.sampled_from("abcdef")),
    st.tuples(st.just("enter"), st.sampled_from(["ls", "es", "dcs"])),
    st.tuples(st.just("answer"), st.integers(1, 5)),
)


@given(st.lists(steps, max_size=40))
def test_b7_in_the_end_every_world_that_is_entered_has_the_same_objects(
    taken: list[tuple[str, str | int]],
) -> None:
    worlds = Worlds()
    worlds.enter("ls")
    inserted: set[str] = set()
    deleted: set[str] = set()
    for what, value in taken:
        if what == "insert" and value not in inserted:
            inserted.add(str(value))
            worlds.insert(str(value))
            worlds.answer()
        elif what == "delete" and value in inserted - deleted:
            deleted.add(str(value))
            worlds.delete(str(value))
            worlds.answer()
        elif what == "enter":
            worlds.enter(str(value))
        elif what == "answer":
            worlds.answer(int(value))
    for world in ("ls", "es", "dcs"):
        worlds.enter(world)
        worlds.answer()
        assert worlds.objects[world].keys() == inserted - deleted
