"""The curator of one client: queries about all points, answered by masked secure aggregation."""

import time
from collections.abc import Hashable
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from pkm.compute import Points
from pkm.federation.links import ClientLink
from pkm.federation.masks import Masks
from pkm.privacy import Curator, Gaussian, Laplace, Ledger


@dataclass
class ClientTimings:
    """Seconds that a client spent, over a run: masking (and unmasking), and exchanging messages."""

    masking: float = 0.0
    exchange: float = 0.0
    exchanges: int = 0


@dataclass(frozen=True)
class PublicSeeds:
    """Public seeds of the replicates, for a party that draws no noise."""

    seeds: tuple[int, ...]


@dataclass(frozen=True)
class ClientSession:
    """A client in one run: its link and masks, the public number of all points, its timings."""

    link: ClientLink
    masks: Masks
    n_points: int
    timings: ClientTimings = field(default_factory=ClientTimings)


class FederatedCurator(Curator):
    """Curator of one client, whose points are a part of all points.

    It serves :meth:`sums_and_counts` alone, the only query of the Lloyd family; every other
    query of :class:`pkm.privacy.Curator` raises ValueError. The exact sums and counts of the
    client's points are sent masked, and the noisy sums and counts of all clients' points come back.
    The ledger is charged as by the central curator. The noise is the server's, so no stream of
    noise is held here.

    Parameters
    ----------
    points : Points
        This client's; may be none at all.
    ledger : Ledger or None
    seeds : tuple of int
        Public, one per replicate.
    domain : array-like of shape (2, d), optional
    session : ClientSession
    """

    def __init__(
        self,
        points: Points,
        ledger: Ledger | None,
        seeds: tuple[int, ...],
        domain: npt.ArrayLike | None,
        session: ClientSession,
    ):
        super().__init__([points], ledger, PublicSeeds(tuple(seeds)), domain)
        self.n_points = session.n_points
        self._session = session

    def counts_and_bounded_sums(self, *args: object, **kwargs: object) -> None:
        """Not served: see the class."""
        self._check_supported("counts_and_bounded_sums")

    def grid_counts(self, *args: object, **kwargs: object) -> None:
        """Not served: see the class."""
        self._check_supported("grid_counts")

    def disclose(self) -> None:
        """Not served: a client's points stay with it."""
        self._check_supported("disclose")

    def _check_supported(self, query: str) -> None:
        raise ValueError(
            f"{query} is not answered by a federated curator: it serves sums_and_counts alone"
        )

    def _release(
        self,
        sums: np.ndarray,
        counts: np.ndarray,
        sum_noise: Gaussian | Laplace | None,
        count_noise: Gaussian | Laplace | None,
        key: Hashable,
    ) -> tuple[np.ndarray, np.ndarray]:
        """Send the exact sums and counts masked; return the noisy ones of all clients."""
        masks = self._session.masks
        link = self._session.link
        timings = self._session.timings

        # Mask the sums and counts of this client, (R, k, d + 1).
        started = time.perf_counter()
        message = masks.mask(np.concatenate([sums, counts[:, :, None]], axis=2))
        masked = time.perf_counter()

        # Send them, and wait for the noisy sum over all clients.
        link.send(message)
        reply = link.receive(message.nbytes)
        received = time.perf_counter()

        # Take off the sum of all clients' masks.
        answer = masks.unmask(reply.view(message.dtype).reshape(message.shape))
        unmasked = time.perf_counter()

        timings.exchange += received - masked
        timings.masking += (masked - started) + (unmasked - received)
        timings.exchanges += 1
        noisy_sums = np.ascontiguousarray(answer[:, :, :-1])
        noisy_counts = np.ascontiguousarray(answer[:, :, -1])
        return noisy_sums, noisy_counts
