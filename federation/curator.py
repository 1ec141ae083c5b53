"""One client's door to the points of all clients: the same questions, answered by masked secure aggregation."""

import time
from dataclasses import dataclass, field

import numpy as np

from pkm.compute import Points
from pkm.federation.links import ClientLink
from pkm.federation.masks import Masks
from pkm.privacy import Curator, Ledger


@dataclass
class Clock:
    """Seconds that a client spent, over a run: masking (and unmasking), and exchanging messages."""

    masking: float = 0.0
    exchange: float = 0.0
    exchanges: int = 0


@dataclass(frozen=True)
class Replicates:
    """Public seeds of the replicates, for a party that draws no noise."""

    seeds: tuple[int, ...]


@dataclass(frozen=True)
class Membership:
    """What a client brings to a run: its link, its masks, the public number of all points."""

    link: ClientLink
    masks: Masks
    n_points: int
    clock: Clock = field(default_factory=Clock)


class FederatedCurator(Curator):
    """A client's curator: exact sums and counts of its own points go out masked, noisy ones of all points come back.

    It charges the same ledger with the same costs as the central curator. The noise is the server's, so there is no
    stream of noise in here. Only ``sums_and_counts`` is answered.

    Parameters
    ----------
    points : Points
        This client's; may be none at all.
    ledger : Ledger or None
    seeds : tuple of int
        Public, one per replicate.
    domain : array-like of shape (2, d), optional
    member : Membership
    """

    def __init__(
        self,
        points: Points,
        ledger: Ledger | None,
        seeds: tuple[int, ...],
        domain,
        member: Membership,
    ):
        super().__init__([points], ledger, Replicates(tuple(seeds)), domain)
        self.n_points = member.n_points
        self._member = member

    def counts_and_bounded_sums(self, *args, **kwargs):
        """Refused: see the class."""
        self._check_door("counts_and_bounded_sums")

    def grid_counts(self, *args, **kwargs):
        """Refused: see the class."""
        self._check_door("grid_counts")

    def _check_door(self, query: str) -> None:
        raise ValueError(
            f"{query} is not answered by a federated curator: it serves sums_and_counts alone"
        )

    def disclose(self):
        """Refused: a client's points stay with it."""
        self._check_door("disclose")

    def _release(self, sums, counts, sum_noise, count_noise, key):
        masks, link, clock = self._member.masks, self._member.link, self._member.clock
        before = time.perf_counter()
        message = masks.hide(np.concatenate([sums, counts[:, :, None]], axis=2))
        masked = time.perf_counter()
        link.send(message)
        reply = link.receive(message.nbytes)
        received = time.perf_counter()
        answer = masks.reveal(reply.view(message.dtype).reshape(message.shape))
        clock.exchange += received - masked
        clock.masking += masked - before + time.perf_counter() - received
        clock.exchanges += 1
        return np.ascontiguousarray(answer[:, :, :-1]), np.ascontiguousarray(answer[:, :, -1])
