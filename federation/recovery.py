"""Secure sums that survive client dropout: secret-shared masks of every round.

In a round every client adds an individual mask to its pairwise masks. It has shared two
secrets among all clients (Shamir), fresh ones for every round: the seed of the
individual mask, and the seed of the key of the pairwise masks. When the messages have
arrived, the server announces which clients sent one. Each client then replies with one
share for every client. It is a share of the first secret if that client's message has
arrived, else of the second. The server needs replies of more than half of the clients,
so it never gets both secrets of one client.

The group's stream hides the sum, as in :mod:`pkm.federation.masks`. Here every client
adds a stream of its own that the group knows, because nobody knows beforehand which
clients will remain.

Source: Bonawitz et al., "Practical secure aggregation for privacy-preserving machine
learning" (CCS 2017), Sec. 4 and 5.
"""

import math
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from cryptography.hazmat.primitives.asymmetric.x25519 import (
    X25519PrivateKey,
    X25519PublicKey,
)

from pkm.federation.keys import exchange_secrets
from pkm.federation.links import (
    ClientLink,
    ProtocolError,
    ServerLink,
    announce_remaining,
    cut,
    receive_remaining,
)
from pkm.federation.masks import KeyStream, Masks, add_pairwise, derive_key
from pkm.federation.ring import Ring

PRIME = 2**255 - 19  # of the field of the secrets and their shares
SHARE_BYTES = 32
MIN_CLIENTS = 3  # of a run that recovers: one drops out, and more than half remain
#: Public keys by client, one per round.
RoundKeys = Mapping[int, Sequence[X25519PublicKey]]


def compute_threshold(n_clients: int) -> int:
    """Compute how many clients must remain: more than half.

    Two sets of so many clients have a client in common, which sends one share only.
    """
    return n_clients // 2 + 1


def split_secret(
    secret: int,
    n_shares: int,
    threshold: int,
) -> list[int]:
    """Split a secret below PRIME into shares 1, 2, ...

    Any ``threshold`` of the shares determine the secret. Fewer of them tell nothing:
    they are uniform whatever the secret.

    Examples
    --------
    >>> shares = split_secret(42, 3, 2)
    >>> combine_shares({1: shares[0], 3: shares[2]})
    42
    """
    # The secret is the value at 0 of a random polynomial; share x is its value at x.
    polynomial = [secret]
    polynomial += [secrets.randbelow(PRIME) for _ in range(threshold - 1)]
    return [
        sum(coefficient * x**i for i, coefficient in enumerate(polynomial)) % PRIME
        for x in range(1, n_shares + 1)
    ]


def combine_shares(shares: Mapping[int, int]) -> int:
    """Combine shares, by their numbers, to the secret: interpolate at 0."""
    # Lagrange: the coefficient of share x is the product of other / (other - x).
    secret = 0
    for x, share in shares.items():
        others = [other for other in shares if other != x]
        denominator = math.prod(other - x for other in others)
        secret += share * math.prod(others) * pow(denominator, -1, PRIME)
    return secret % PRIME


def _encode(numbers: Sequence[int]) -> bytes:
    return b"".join(number.to_bytes(SHARE_BYTES, "little") for number in numbers)


def _decode(message: bytes) -> list[int]:
    return [int.from_bytes(word, "little") for word in cut(message, SHARE_BYTES)]


def _derive_individual_stream(seed: int) -> KeyStream:
    """Derive the stream of a client's individual mask of a round."""
    return KeyStream(derive_key(_encode([seed]), "own mask"))


def _derive_private_key(seed: int) -> X25519PrivateKey:
    """Derive the private key of a client's pairwise masks of a round."""
    key = derive_key(_encode([seed]), "pairwise masks")
    return X25519PrivateKey.from_private_bytes(key)


def _derive_pair_streams(
    seed: int, public: Mapping[int, X25519PublicKey], salt: bytes
) -> dict[int, KeyStream]:
    """Derive the streams that a client shares with some others in a round."""
    common = exchange_secrets(_derive_private_key(seed), public)
    return {
        peer: KeyStream(derive_key(secret, "mask stream", salt))
        for peer, secret in common.items()
    }


@dataclass(frozen=True)
class RoundSecrets:
    """A client's secrets of all rounds, numbers below PRIME.

    Attributes
    ----------
    mask_seeds : list of int
        Seed of the individual mask of each round.
    key_seeds : list of int
        Seed of the key of the pairwise masks of each round.
    """

    mask_seeds: list[int]
    key_seeds: list[int]

    @classmethod
    def draw(cls, n_rounds: int) -> "RoundSecrets":
        """Draw fresh secrets."""
        seeds = [secrets.randbelow(PRIME) for _ in range(2 * n_rounds)]
        return cls(seeds[:n_rounds], seeds[n_rounds:])

    def derive_keys(self) -> list[X25519PrivateKey]:
        """Derive the key of each round."""
        return [_derive_private_key(seed) for seed in self.key_seeds]

    def share(self, n_clients: int) -> dict[int, bytes]:
        """Share the seeds of all masks, then of all keys, among all clients."""
        threshold = compute_threshold(n_clients)
        seeds = [*self.mask_seeds, *self.key_seeds]
        split = [split_secret(seed, n_clients, threshold) for seed in seeds]
        return {
            i + 1: _encode([shares[i] for shares in split]) for i in range(n_clients)
        }


class RecoverableMasks(Masks):
    """The masks of one client, which the server can remove although clients drop out.

    Parameters
    ----------
    client : int
    own : RoundSecrets
    round_keys : mapping of int to list of X25519PublicKey
        Public keys of each other client, one per round.
    received_shares : mapping of int to bytes
        Shares that this client holds of the secrets of each client, itself included.
    group_key : bytes
        Key that all clients know, and the server does not.
    salt : bytes
        Salt of all keys of the run.
    ring : Ring
    """

    def __init__(
        self,
        client: int,
        own: RoundSecrets,
        round_keys: RoundKeys,
        received_shares: Mapping[int, bytes],
        group_key: bytes,
        salt: bytes,
        ring: Ring,
    ):
        super().__init__(client, {}, group_key, ring)
        self._own = own
        self._round_keys = round_keys
        self._received_shares = {
            peer: _decode(shares) for peer, shares in received_shares.items()
        }
        self._salt = salt
        self._round = 0
        self._shares_sent = True
        # One stream of the group for each client that remains.
        self._group = {
            member: KeyStream(derive_key(group_key, f"group stream {member}"))
            for member in received_shares
        }

    def mask(self, values: np.ndarray) -> np.ndarray:
        """See :meth:`Masks.mask`."""
        # Pairwise masks with the clients that remain, under this round's keys.
        peers = [member for member in self._group if member != self._client]
        public = {peer: self._round_keys[peer][self._round] for peer in peers}
        key_seed = self._own.key_seeds[self._round]
        self._pairs = _derive_pair_streams(key_seed, public, self._salt)
        words = super().mask(values)

        # The individual mask, which the server can remove by the shares alone.
        own = _derive_individual_stream(self._own.mask_seeds[self._round])
        words += own.next(words.shape, words.dtype)
        self._shares_sent = False
        return words

    def send_shares(self, link: ClientLink) -> None:
        """Receive which messages have arrived; send a share of a secret per client.

        Raises
        ------
        ProtocolError
            If the server names too few clients, or some that had dropped out before.
        """
        if self._shares_sent or self._group_words is None:
            raise RuntimeError("there is no masked message whose shares were not sent")
        self._shares_sent = True
        arrived = receive_remaining(link)
        members = sorted(self._group)
        if (
            len(arrived) < compute_threshold(link.n_clients)
            or self._client not in arrived
            or not set(arrived) <= set(members)
        ):
            raise ProtocolError(
                f"the server sent a malformed message: clients {arrived} of a sum"
            )

        # Shares of the seeds of the masks come first, then those of the keys.
        n_rounds = len(self._own.mask_seeds)
        shares = [
            self._received_shares[member][
                self._round + (0 if member in arrived else n_rounds)
            ]
            for member in members
        ]
        link.send(_encode(shares))

        # Clients that did not send take no part any longer.
        for member in set(members) - set(arrived):
            del self._group[member]
            del self._group_words[member]
        self._round += 1


class DropoutRecovery:
    """Dropout recovery at the server: takes masks off the sum of a round's messages.

    Parameters
    ----------
    round_keys : mapping of int to list of X25519PublicKey
        Public keys of each client, one per round.
    salt : bytes
        Salt of all keys of the run.
    """

    def __init__(
        self,
        round_keys: RoundKeys,
        salt: bytes,
    ):
        self._round_keys = round_keys
        self._salt = salt
        self._round = 0
        self._members = sorted(round_keys)  # whose masks are in the messages
        self._arrived: list[int] = []
        self._seeds: dict[int, int] = {}

    def collect_shares(self, link: ServerLink) -> None:
        """Announce which messages have arrived, and combine the clients' shares.

        Parameters
        ----------
        link : ServerLink
            The messages of its dropped clients have not arrived.

        Raises
        ------
        ProtocolError
            If too few clients remain.
        """
        self._arrived = require_majority(link)
        announce_remaining(link)

        # Each of them sends one share for each member; shares are numbered by sender.
        n_bytes = len(self._members) * SHARE_BYTES
        replies, _ = link.gather(n_bytes, recover=True)
        senders = require_majority(link)
        rows = [_decode(reply.tobytes()) for reply in replies]
        for i, member in enumerate(self._members):
            pairs = zip(senders, rows, strict=True)
            self._seeds[member] = combine_shares({x: row[i] for x, row in pairs})

    def unmask(self, total: np.ndarray) -> None:
        """Take all masks but the group's off the sum of the messages, in place."""
        for member in self._members:
            seed = self._seeds[member]
            if member in self._arrived:
                total -= _derive_individual_stream(seed).next(total.shape, total.dtype)
                continue
            # Pairwise masks with a client that dropped out do not cancel: add its part.
            keys = {peer: self._round_keys[peer][self._round] for peer in self._arrived}
            streams = _derive_pair_streams(seed, keys, self._salt)
            words = (
                (peer, stream.next(total.shape, total.dtype))
                for peer, stream in streams.items()
            )
            add_pairwise(total, member, words)
        self._members = self._arrived
        self._round += 1


def require_majority(link: ServerLink) -> list[int]:
    """Return the remaining clients; raise ProtocolError if they are too few."""
    remaining = link.remaining
    threshold = compute_threshold(link.n_clients)
    if len(remaining) < threshold:
        reasons = "; ".join(link.dropped.values())
        raise ProtocolError(
            f"{reasons}: {len(remaining)} of n_clients={link.n_clients} remain, and "
            f"{threshold} must"
        )
    return remaining
