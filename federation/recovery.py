"""Sums that survive clients which disappear: secret-shared masks of every round.

Source: Bonawitz et al., "Practical secure aggregation for privacy-preserving machine learning" (CCS
2017), Sec. 4 and 5. In a round every client adds a mask of its own to its pairwise masks. The seed
of the own mask and the key of the pairwise masks are shared among all clients (Shamir), afresh for
every round. When the messages have arrived, the server says whose, and the clients reply with one
share for every client: of the seed, if its message has arrived, else of the key. More than half of
them must, so that the server never gets both of one client. The stream of the group, as in
:mod:`pkm.federation.masks`, hides the sum; here every client adds one, for nobody knows beforehand
who will be there.
"""

import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey

from pkm.federation.keys import pair_secrets
from pkm.federation.links import ClientLink, ProtocolError, ServerLink
from pkm.federation.masks import KeyStream, Masks, add_pairwise, derive_key
from pkm.federation.ring import Ring

PRIME = 2**255 - 19  # of the field of the secrets and their shares
SHARE_BYTES = 32
MIN_CLIENTS = 3  # of a run that recovers: one disappears, and more than half remain


def threshold_of(n_clients: int) -> int:
    """Clients that must remain: more than half, so that two sets of them have one in common."""
    return n_clients // 2 + 1


def split_secret(secret: int, n_shares: int, threshold: int) -> list[int]:
    """Shares 1, 2, ... of a secret below PRIME: any ``threshold`` of them determine it.

    Fewer of them tell nothing: they are uniform whatever the secret.

    Examples
    --------
    >>> shares = split_secret(42, 3, 2)
    >>> combine_shares({1: shares[0], 3: shares[2]})
    42
    """
    coefficients = [secrets.randbelow(PRIME) for _ in range(threshold - 1)]
    shares = []
    for x in range(1, n_shares + 1):
        value = 0
        for coefficient in reversed([secret, *coefficients]):
            value = (value * x + coefficient) % PRIME
        shares.append(value)
    return shares


def combine_shares(shares: Mapping[int, int]) -> int:
    """The secret of shares, given by their numbers: interpolation at 0."""
    secret = 0
    for x, share in shares.items():
        numerator = 1
        denominator = 1
        for other in shares:
            if other != x:
                numerator = numerator * other % PRIME
                denominator = denominator * (other - x) % PRIME
        secret += share * numerator * pow(denominator, -1, PRIME)
    return secret % PRIME


def _encode(numbers: Sequence[int]) -> bytes:
    return b"".join(number.to_bytes(SHARE_BYTES, "little") for number in numbers)


def _decode(message: bytes) -> list[int]:
    starts = range(0, len(message), SHARE_BYTES)
    return [int.from_bytes(message[i : i + SHARE_BYTES], "little") for i in starts]


def _own_stream(seed: int) -> KeyStream:
    """Stream of a client's own mask of a round."""
    return KeyStream(derive_key(_encode([seed]), "own mask"))


def _private_key(seed: int) -> X25519PrivateKey:
    """Private key of a client's pairwise masks of a round."""
    return X25519PrivateKey.from_private_bytes(derive_key(_encode([seed]), "pairwise masks"))


def _pair_streams(
    seed: int, public: Mapping[int, X25519PublicKey], salt: bytes
) -> dict[int, KeyStream]:
    """Streams that a client shares with some others in a round, by their number."""
    common = pair_secrets(_private_key(seed), public)
    return {
        peer: KeyStream(derive_key(secret, "mask stream", salt)) for peer, secret in common.items()
    }


@dataclass(frozen=True)
class RoundSecrets:
    """A client's secrets of all rounds: seeds of its own masks and of its keys, below PRIME."""

    mask_seeds: list[int]
    key_seeds: list[int]

    @classmethod
    def draw(cls, n_rounds: int) -> "RoundSecrets":
        """Fresh secrets."""
        mask_seeds = [secrets.randbelow(PRIME) for _ in range(n_rounds)]
        key_seeds = [secrets.randbelow(PRIME) for _ in range(n_rounds)]
        return cls(mask_seeds, key_seeds)

    def private_keys(self) -> list[X25519PrivateKey]:
        """The key of each round."""
        return [_private_key(seed) for seed in self.key_seeds]

    def shares(self, n_clients: int) -> dict[int, bytes]:
        """For each client its shares of the seeds of all masks, then of all keys."""
        threshold = threshold_of(n_clients)
        seeds = [*self.mask_seeds, *self.key_seeds]
        split = [split_secret(seed, n_clients, threshold) for seed in seeds]
        return {i + 1: _encode([shares[i] for shares in split]) for i in range(n_clients)}


class RecoverableMasks(Masks):
    """The masks of one client, whose sum can be had although clients disappear.

    Parameters
    ----------
    client : int
    own : RoundSecrets
    round_keys : mapping of int to list of X25519PublicKey
        Of each other client, one per round.
    held : mapping of int to bytes
        Shares that this client has of the secrets of each client, itself included.
    group_key : bytes
        Known to all clients, not to the server.
    salt : bytes
        Of the run.
    ring : Ring
    """

    def __init__(
        self,
        client: int,
        own: RoundSecrets,
        round_keys: Mapping[int, Sequence[X25519PublicKey]],
        held: Mapping[int, bytes],
        group_key: bytes,
        salt: bytes,
        ring: Ring,
    ):
        super().__init__(client, {}, group_key, ring)
        self._own = own
        self._round_keys = round_keys
        self._held = {peer: _decode(shares) for peer, shares in held.items()}
        self._salt = salt
        self._round = 0
        self._revealed = True
        self._group = {
            member: KeyStream(derive_key(group_key, f"group stream {member}")) for member in held
        }

    def mask(self, values: np.ndarray) -> np.ndarray:
        """See :meth:`Masks.mask`."""
        peers = [member for member in self._group if member != self._client]
        public = {peer: self._round_keys[peer][self._round] for peer in peers}
        self._pairs = _pair_streams(self._own.key_seeds[self._round], public, self._salt)
        words = super().mask(values)
        words += _own_stream(self._own.mask_seeds[self._round]).next(words.shape, words.dtype)
        self._revealed = False
        return words

    def reveal(self, link: ClientLink) -> None:
        """Receive whose messages have arrived; send a share of the seed or of the key of each.

        Raises
        ------
        ProtocolError
            If the server names too few, or clients that were not there before.
        """
        if self._revealed or self._group_words is None:
            raise RuntimeError("there is no masked message whose shares were not revealed")
        self._revealed = True
        present = link.receive(link.n_clients).astype(bool)
        arrived = (np.flatnonzero(present) + 1).tolist()
        members = sorted(self._group)
        if (
            len(arrived) < threshold_of(link.n_clients)
            or self._client not in arrived
            or not set(arrived) <= set(members)
        ):
            raise ProtocolError(f"the server sent a malformed message: clients {arrived} of a sum")

        # Shares of the seeds of the masks come first, then those of the keys.
        n_rounds = len(self._own.mask_seeds)
        shares = [
            self._held[member][self._round + (0 if member in arrived else n_rounds)]
            for member in members
        ]
        link.send(np.frombuffer(_encode(shares), np.uint8))

        # Those who did not send take no part any longer.
        for member in set(members) - set(arrived):
            del self._group[member]
            del self._group_words[member]
        self._round += 1


class SurvivorSums:
    """The server's part: sums of the messages that arrive, round after round.

    Parameters
    ----------
    round_keys : mapping of int to list of X25519PublicKey
        Of each client, one per round.
    salt : bytes
        Of the run.
    """

    def __init__(self, round_keys: Mapping[int, Sequence[X25519PublicKey]], salt: bytes):
        self._round_keys = round_keys
        self._salt = salt
        self._round = 0
        self._members = sorted(round_keys)  # whose masks are in the messages
        self._arrived: list[int] = []
        self._seeds: dict[int, int] = {}

    def collect_shares(self, link: ServerLink) -> None:
        """Tell the clients whose messages have arrived, and combine the shares that they reply.

        Parameters
        ----------
        link : ServerLink
            Its lost clients are those whose messages have not arrived.

        Raises
        ------
        ProtocolError
            If too few clients remain.
        """
        self._arrived = remaining_clients(link, self._members)
        present = np.zeros(link.n_clients, np.uint8)
        present[np.array(self._arrived) - 1] = 1
        link.deliver([present] * len(self._arrived), self._arrived)

        # Each of them sends one share for each member.
        n_bytes = len(self._members) * SHARE_BYTES
        replies, _ = link.gather(n_bytes, self._arrived, recover=True)
        senders = remaining_clients(link, self._arrived)
        rows = [_decode(reply.tobytes()) for reply in replies]
        for i, member in enumerate(self._members):
            shares = {sender: row[i] for sender, row in zip(senders, rows, strict=True)}
            self._seeds[member] = combine_shares(shares)

    def unmask(self, total: np.ndarray) -> None:
        """Take the masks, but that of the group, off the sum of the messages, in place."""
        for member in self._members:
            seed = self._seeds[member]
            if member in self._arrived:
                total -= _own_stream(seed).next(total.shape, total.dtype)
                continue
            # What the others' masks have in common with this client's is not cancelled: add it.
            public = {peer: self._round_keys[peer][self._round] for peer in self._arrived}
            streams = _pair_streams(seed, public, self._salt)
            words = ((peer, pair.next(total.shape, total.dtype)) for peer, pair in streams.items())
            add_pairwise(total, member, words)
        self._members = self._arrived
        self._round += 1


def remaining_clients(link: ServerLink, clients: Sequence[int]) -> list[int]:
    """Those of the clients that are not lost; raise ProtocolError if they are too few."""
    remaining = [client for client in clients if client not in link.lost]
    threshold = threshold_of(link.n_clients)
    if len(remaining) < threshold:
        reasons = "; ".join(link.lost.values())
        raise ProtocolError(
            f"{reasons}: {len(remaining)} of n_clients={link.n_clients} remain, and {threshold} "
            "must"
        )
    return remaining
