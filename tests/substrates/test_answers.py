"""Only the server answers for the server, and only the subscriber acknowledges for itself (B5)."""

from __future__ import annotations

from random import Random

import pytest
from msgspec import structs

from tests.builders import conjunctions
from thyme.live.keys.identity import Identity
from thyme.live.keys.pair_keys import X25519PairKeys
from thyme.live.keys.record_signer import Ed25519RecordSigner
from thyme.model.ids import Key, NodeId, ObjectId
from thyme.model.time_frames import ALWAYS
from thyme.protocol import app_interface as asked
from thyme.protocol.answer_auth import AnswerAuthenticator
from thyme.protocol.message_auth import MessageAuthenticator
from thyme.protocol.messages import common as wire
from thyme.protocol.node import (
    Action,
    AppRequested,
    Emit,
    Input,
    Received,
    Send,
    Started,
    TimerFired,
)
from thyme.protocol.request_tracker import RetryTimer
from thyme.storage.store import MemoryStore
from thyme.substrates.es import ROBUST, EsNode

ALICE, SERVER, MALLORY = (Identity(bytes([number]) * 32) for number in (1, 2, 3))
INSERT = asked.Insert(request_id=1, data=b"pixels", tags=("goal",), oid=ObjectId("photo1"))
SUBSCRIBE = asked.Subscribe(request_id=2, conjunctions=conjunctions("goal"), frame=ALWAYS, batch=20)


def authenticator(identity: Identity) -> MessageAuthenticator:
    keys = X25519PairKeys(identity, "w")
    return MessageAuthenticator(
        identity.node_id, Ed25519RecordSigner(identity, "w"), pair_keys=keys
    )


class Node:
    """A node of ES, and what its application was told."""

    def __init__(self, identity: Identity) -> None:
        self.name = identity.node_id
        self.node = EsNode(
            self.name,
            SERVER.node_id,
            MemoryStore(),
            Random(identity.node_id),
            ROBUST,
            authenticator(identity),
        )
        self.told: list[object] = []
        self.handle(Started())

    def handle(self, event: Input) -> list[Send]:
        actions: list[Action] = self.node.handle(event, 100)
        self.told += [action.event for action in actions if isinstance(action, Emit)]
        return [action for action in actions if isinstance(action, Send)]

    def ask(self, request: asked.AppRequest) -> list[Send]:
        return self.handle(AppRequested(request))

    def stored(self) -> int:
        assert self.node.broker is not None
        return len(self.node.broker.catalogue)


def carry(sent: list[Send], sender: Node, receiver: Node) -> None:
    """Carries messages to and fro until both are silent."""
    while sent:
        assert {send.to for send in sent} == {receiver.name}
        answers = [
            answer
            for send in sent
            for answer in receiver.handle(Received(sender.name, send.message))
        ]
        sent, sender, receiver = answers, receiver, sender


def content_of(message: wire.Message) -> wire.Message:
    """What a node on the way can read."""
    if isinstance(message, wire.Authenticated):
        opener = AnswerAuthenticator(X25519PairKeys(MALLORY, "w"), authenticator(MALLORY).dropped)
        opened = opener.open(ALICE.node_id, wire.Authenticated(b"", b"", message.content))
        assert opened is not None
        return opened
    return message


def forged_answers(to: NodeId, request_id: int) -> list[wire.Message]:
    """What a node between client and server can make of an answer."""
    done = wire.Done(request_id)
    own = X25519PairKeys(MALLORY, "w")
    own.learn(ALICE.node_id, ALICE.public_key)
    sealed = AnswerAuthenticator(own, authenticator(MALLORY).dropped).seal(to, done)
    assert isinstance(sealed, wire.Authenticated)
    return [
        done,
        sealed,
        wire.Authenticated(MALLORY.public_key, sealed.code, sealed.content),
        wire.Authenticated(SERVER.public_key, sealed.code, sealed.content),
        wire.Authenticated(SERVER.public_key, b"", sealed.content),
        wire.Authenticated(b"", bytes(8), sealed.content),
        wire.Authenticated(b"", b"", sealed.content),
    ]


def test_b5_a_node_between_client_and_server_cannot_answer_in_its_place() -> None:
    client, server = Node(ALICE), Node(SERVER)
    [request] = client.ask(INSERT)
    content = content_of(request.message)
    assert isinstance(content, wire.InsertObject)

    for answer in forged_answers(client.name, content.request_id):
        assert not client.handle(Received(server.name, answer))
    assert not client.told, "the insert is still under way"
    assert client.node.dropped.total() == 7

    carry([request], client, server)
    [finished] = client.told
    assert isinstance(finished, asked.Finished)
    assert server.stored() == 1


def test_b5_an_answer_to_one_is_no_answer_to_another_nor_an_earlier_one_to_a_later() -> None:
    client, server = Node(ALICE), Node(SERVER)
    [request] = client.ask(INSERT)
    [answer] = server.handle(Received(client.name, request.message))

    other = Node(MALLORY)
    other.ask(INSERT)
    other.handle(Received(server.name, answer.message))
    assert not other.told

    client.handle(Received(server.name, answer.message))
    client.ask(SUBSCRIBE)
    assert len(client.told) == 1
    client.handle(Received(server.name, answer.message))
    assert len(client.told) == 1, "the server did not answer this request yet"


def test_b5_only_the_subscriber_acknowledges_its_notifications() -> None:
    subscriber, server, publisher = Node(ALICE), Node(SERVER), Node(MALLORY)
    carry(subscriber.ask(SUBSCRIBE), subscriber, server)
    [request] = publisher.ask(INSERT)
    sent = server.handle(Received(publisher.name, request.message))
    [notice] = [send for send in sent if send.to == subscriber.name]
    content = content_of(notice.message)
    assert isinstance(content, wire.ReliableMessage)

    server.handle(Received(subscriber.name, wire.ReliableAck(content.number)))
    assert len(server.node._reliable_sender) == 1, "it is repeated until the subscriber has it"
    carry([notice], server, subscriber)
    assert len(server.node._reliable_sender) == 0


def test_b5_keys_are_sent_once() -> None:
    client, server = Node(ALICE), Node(SERVER)
    [first] = client.ask(INSERT)
    assert isinstance(first.message, wire.Authenticated)
    assert first.message.public_key == ALICE.public_key
    carry([first], client, server)

    [second] = client.ask(SUBSCRIBE)
    assert isinstance(second.message, wire.StartSubscription)
    [answer] = server.handle(Received(client.name, second.message))
    assert isinstance(answer.message, wire.Authenticated)
    assert (answer.message.public_key, len(answer.message.code)) == (b"", 8)


@pytest.mark.parametrize("restarted", ["client", "server"])
def test_b5_after_a_restart_the_keys_are_exchanged_again(restarted: str) -> None:
    client, server = Node(ALICE), Node(SERVER)
    carry(client.ask(INSERT), client, server)
    if restarted == "client":
        client = Node(ALICE)
    else:
        server = Node(SERVER)

    sent = client.ask(SUBSCRIBE)
    carry(sent, client, server)
    if restarted == "server":
        assert len(client.told) == 1, "a server that lost the key cannot show who it is"
        [again] = client.node._request_tracker._pending
        [sent_again] = client.handle(TimerFired(RetryTimer(again)))
        carry([sent_again], client, server)
    finished = [one for one in client.told if isinstance(one, asked.Finished)]
    assert finished[-1].request_id == SUBSCRIBE.request_id


def test_b5_a_node_that_forgot_a_key_is_sent_it_for_a_while() -> None:
    """Thousands of invented nodes can push a key out again and again: requests still work."""
    client, server = Node(ALICE), Node(SERVER)
    carry(client.ask(INSERT), client, server)
    client.handle(Received(server.name, wire.Done(1)))  # as of a server that lost the key

    with_key = 0
    for number in range(100):
        [sent] = client.ask(structs.replace(SUBSCRIBE, request_id=100 + number))
        with_key += isinstance(sent.message, wire.Authenticated)
        carry([sent], client, server)
    assert 16 <= with_key <= 40


def test_b5_a_key_of_another_identity_is_not_believed() -> None:
    keys = X25519PairKeys(ALICE, "w")
    assert not keys.learn(SERVER.node_id, MALLORY.public_key)
    assert not keys.learn(SERVER.node_id, b"short")
    assert keys.compute_code(SERVER.node_id, b"content", from_peer=False) is None
    assert keys.learn(SERVER.node_id, SERVER.public_key)
    assert not keys.learn(SERVER.node_id, MALLORY.public_key), "it has one already"


def test_b5_two_nodes_compute_the_same_code_in_each_direction_and_world() -> None:
    alice, server = X25519PairKeys(ALICE, "w"), X25519PairKeys(SERVER, "w")
    elsewhere = X25519PairKeys(SERVER, "another world")
    for keys in (server, elsewhere):
        keys.learn(ALICE.node_id, ALICE.public_key)
    alice.learn(SERVER.node_id, SERVER.public_key)

    code = alice.compute_code(SERVER.node_id, b"content", from_peer=False)
    assert code is not None
    assert server.is_code(ALICE.node_id, b"content", code)
    assert not server.is_code(ALICE.node_id, b"other content", code)
    assert not alice.is_code(SERVER.node_id, b"content", code), "nor is it sent back as an answer"
    assert not elsewhere.is_code(ALICE.node_id, b"content", code)


def test_b5_an_answer_that_is_repeated_until_it_came_needs_a_code_as_well() -> None:
    """Owners in LS answer a search so; what is no answer, such as a notification, needs none."""
    page = wire.ReliableMessage(5, wire.Page(1, 0, (), False))
    owner, reader = (
        AnswerAuthenticator(X25519PairKeys(identity, "w"), authenticator(identity).dropped)
        for identity in (SERVER, ALICE)
    )
    query = reader.introduce(wire.FetchStatus(1, Key(ObjectId("photo"), SERVER.node_id)))
    assert owner.open(ALICE.node_id, query) is not None

    assert reader.open(SERVER.node_id, page) is None
    sealed = owner.seal(ALICE.node_id, page)
    assert reader.open(SERVER.node_id, sealed) == page
    assert reader.open(MALLORY.node_id, sealed) is None
    other = wire.ReliableMessage(6, wire.Missed("sid", 1))  # type: ignore[arg-type]
    assert reader.open(SERVER.node_id, other) == other
