"""The curator of one client, which answers queries about the points of all clients."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from pkm.compute import Points
from pkm.federation.links import ClientLink
from pkm.federation.masks import Masks
from pkm.privacy import BaseCurator, Ledger, Query, Sensitivity, SumsAndCounts
from pkm.privacy.ledger import StreamKey


@dataclass
class ClientTimings:
    """Seconds that a client spent in a run.

    Attributes
    ----------
    masking : float
        For masking and unmasking.
    communication : float
        For exchanging messages.
    communication_rounds : int
    """

    masking: float = 0.0
    communication: float = 0.0
    communication_rounds: int = 0


@dataclass(frozen=True)
class PublicSeeds:
    """Public seeds of the replicates: noise streams of a party that draws no noise."""

    public_seeds: tuple[int, ...]


@dataclass(frozen=True)
class ClientSession:
    """A client in one run: its link, masks, public values of the run, and timings.

    Attributes
    ----------
    link : ClientLink
    masks : Masks
    n_points : int
        Number of records of all clients together.
    rounds : sequence
        The schedule by which the server draws noise: for each round its radius and the
        mechanisms for sums and counts.
    timings : ClientTimings
    """

    link: ClientLink
    masks: Masks
    n_points: int
    rounds: Sequence[Any]
    timings: ClientTimings = field(default_factory=ClientTimings)


class FederatedCurator(BaseCurator):
    """Curator of one client, which holds some of the points.

    It serves the query of Lloyd's algorithm, whose answers are sums over records. The
    client sends its exact answer masked, and receives the noisy sum over all clients.
    The ledger is charged as by the central curator. The server draws the noise, so the
    client has no noise stream.

    Parameters
    ----------
    points : Points
        This client's; there may be none.
    ledger : Ledger or None
    public_seeds : tuple of int
        One per replicate.
    domain : array-like of shape (2, d), optional
    session : ClientSession
    """

    serves: ClassVar[tuple[type[Query], ...]] = (SumsAndCounts,)

    def __init__(
        self,
        points: Points,
        ledger: Ledger | None,
        public_seeds: tuple[int, ...],
        domain: npt.ArrayLike | None,
        session: ClientSession,
    ):
        super().__init__([points], ledger, PublicSeeds(public_seeds), domain)
        self.n_points = session.n_points
        self._session = session

    def _draw(
        self,
        query: Query,
        exact: Mapping[str, np.ndarray],
        sensitivities: Mapping[str, Sensitivity],
        noise: Mapping[str, Any],
        key: StreamKey,
    ) -> dict[str, np.ndarray]:
        """Return the server's total of the clients' sums and its noise."""
        # The server has drawn its noise by the schedule: no query may differ from it.
        expected = self._session.rounds[key[1]]
        if isinstance(query.radius, np.ndarray):
            raise ValueError(
                f"radius of round {key[1]} has one number for each center: the server "
                "draws noise by one radius; release with one"
            )
        released = (query.radius, noise["sums"], noise["counts"])
        scheduled = (expected.radius, expected.sum_noise, expected.count_noise)
        if released != scheduled:
            raise ValueError(
                f"round {key[1]} releases {released}, but the server draws noise by "
                f"the schedule: {expected}"
            )
        return self._exchange(exact)

    def _collect(
        self, query: Query, exact: Mapping[str, np.ndarray]
    ) -> dict[str, np.ndarray]:
        """Return the server's total of the clients' sums, without noise."""
        return self._exchange(exact)

    def _exchange(self, exact: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Send the exact sums and counts masked; return the noisy ones of all clients.

        A message holds sums and counts in one array of shape (R, k, d + 1).
        """
        masks = self._session.masks
        link = self._session.link
        timings = self._session.timings

        # Mask the exact answer.
        started = time.perf_counter()
        counts = exact["counts"][:, :, None]
        message = masks.mask(np.concatenate([exact["sums"], counts], axis=2))
        masked = time.perf_counter()

        # Send the message, and wait for the noisy sum over all clients.
        link.send(message)
        masks.send_shares(link)
        reply = link.receive(message.nbytes)
        received = time.perf_counter()

        # Take off the group's mask.
        answer = masks.unmask(reply.view(message.dtype).reshape(message.shape))
        unmasked = time.perf_counter()

        timings.communication += received - masked
        timings.masking += (masked - started) + (unmasked - received)
        timings.communication_rounds += 1
        return {
            "sums": np.ascontiguousarray(answer[:, :, :-1]),
            "counts": np.ascontiguousarray(answer[:, :, -1]),
        }
