"""The agreement on keys: masks that belong together, sealed links, malformed keys and messages."""

import numpy as np
import pytest
from protocol_runs import make_identities, run_protocol

from pkm.federation import ProtocolError, Ring, agreement
from pkm.federation.agreement import agree_as_client, agree_as_server
from pkm.federation.keys import TAG_BYTES, count_hello_bytes
from pkm.federation.links import ThreadServerLink, view_bytes
from pkm.federation.masks import SECRET_BYTES

TERMS = {"n_points": 60}


def agree(n_clients, n_key_rounds=0, client_link=lambda link: link, **arguments):
    """Run the agreement on keys; return the links and masks of the clients (or their exceptions),
    those of the server, and the link that the messages passed.
    """
    identities, fingerprints = make_identities(n_clients)
    links = []

    def client(link):
        identity = identities[link.client]
        return agree_as_client(
            client_link(link), identity, fingerprints, TERMS, n_key_rounds, Ring(8)
        )

    def server(link):
        links.append(link)
        return agree_as_server(link, identities[0], fingerprints, TERMS, n_key_rounds)

    clients, server_result = run_protocol(n_clients, client, server, **arguments)
    return clients, server_result, links[0]


@pytest.mark.parametrize("n_clients", [1, 2, 5])
@pytest.mark.parametrize("n_key_rounds", [0, 2])
def test_agreed_masks_cancel_and_links_are_encrypted(n_clients, n_key_rounds):
    if n_key_rounds and n_clients < 3:
        return
    clients, (server_link, _), link = agree(n_clients, n_key_rounds)
    n_setup = n_clients * count_hello_bytes(1 + n_key_rounds, len(TERMS))
    n_boxes = n_clients * (n_clients - 1) * (SECRET_BYTES + 64 * n_key_rounds + TAG_BYTES)
    assert link.bytes_received == n_setup + n_boxes
    assert link.bytes_sent == n_clients * (n_setup + count_hello_bytes(1, len(TERMS))) + n_boxes

    # What the server gets is what a client sent, though not what was on the wire.
    message = np.arange(5)
    for client_link, _ in clients:
        client_link.send(message)
    received, _ = server_link.gather(message.nbytes)
    assert all((words.view(np.int64) == message).all() for words in received)
    for client_link, _ in clients:
        client_link.send(message)
    on_the_wire, _ = link.gather(message.nbytes + TAG_BYTES)
    assert (
        len(
            {words.tobytes() for words in [*(words[:-TAG_BYTES] for words in on_the_wire), message]}
        )
        == n_clients + 1
    )

    # The clients' masks belong together.
    masks = [mask for _, mask in clients]
    total = np.sum([mask.mask(message) for mask in masks], axis=0, dtype=np.uint64)
    if not n_key_rounds:
        for mask in masks:
            assert (mask.unmask(total) == n_clients * message).all()


def test_altered_box_is_refused(monkeypatch):
    deliver = ThreadServerLink.deliver

    def altering_deliver(self, messages):
        if len(messages[0]) == SECRET_BYTES + TAG_BYTES:
            messages = [view_bytes(message) ^ np.uint8(1) for message in messages]
        deliver(self, messages)

    monkeypatch.setattr(ThreadServerLink, "deliver", altering_deliver)
    (first, second), _, _ = agree(2)
    message = "client {} sent a malformed message: not encrypted for this client"
    assert str(first) == message.format(2)
    assert str(second) == message.format(1)


def test_degenerate_public_key_is_refused(monkeypatch):
    """The identity may well have signed it."""
    from pkm.federation import keys

    class NeutralKey:
        def public_key(self):
            return self

        def public_bytes_raw(self):
            return bytes(keys.PUBLIC_BYTES)

    def sign_hello(identity, party, n_clients, terms, own_keys):
        return keys.sign_hello(
            identity, party, n_clients, terms, [NeutralKey()] if party == 2 else own_keys
        )

    monkeypatch.setattr(agreement, "sign_hello", sign_hello)
    (client_error, _), server_error, _ = agree(2)
    assert isinstance(client_error, ProtocolError)
    assert "client 2 sent a malformed public key" in str(client_error)
    assert "client 2 sent a malformed public key" in str(server_error)
