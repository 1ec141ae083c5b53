"""DP-Lloyd of the library that the DPM paper compared with (diffprivlib)."""

import numpy as np

from pkm.compute import middle_and_half_width
from pkm.methods.lloyd.lloyd import SuLloyd, count_weight
from pkm.methods.schedule import Schedule, plan_release
from pkm.privacy import (
    SCALE,
    BoundedLaplace,
    Budget,
    CountsAndBoundedSums,
    Curator,
    Laplace,
    PrivacyClaim,
    mirrored,
    snap_centers,
)


class DPLloyd(SuLloyd):
    """DP-Lloyd with Laplace noise, as in the library diffprivlib.

    Parameters
    ----------
    n_clusters : int, default=8
        Number of centers, at least 1.
    epsilon : float, default=1.0
        Declared total, zero-out adjacency, pure.
    variant : {"published", "sound"}, default="sound"
        ``published`` swaps the epsilons of a count and of a sum's coordinate, as the
        library does. So it spends (1 + d c) / (d + c) times epsilon, c = (4 d
        rho^2)^(1/3), which is the budget of its ledger. Sums are about the origin of
        the data's units, or the nearest end of the domain. Their sensitivity is the
        width of the domain, and their range is what the noisy counts allow. ``sound``
        is :class:`pkm.methods.SuLloyd`, with the right split.
    postprocessing : {"auto", "none", "truncate", "fold"}, default="auto"
        For ``sound`` only: the published sums cannot leave the domain.
    initialization, radius_search, n_iterations, missing
        As for :class:`pkm.methods.Lloyd`.
    bounds, clip, random_state, zoom, require_zoom, report, secure, adjacency
        As for :class:`pkm.methods.PrivateKMeans`.

    See Also
    --------
    SuLloyd : What ``sound`` runs.
    DiffprivlibKMeans : The library itself, as a control without a claim.
    FastLloyd : Gaussian noise on sums about the centers; needs a delta.

    Notes
    -----
    Counts have Laplace noise, in the library geometric noise. An empty cluster is
    released with noise like any other; the library keeps its center.
    """

    label = "DP-Lloyd"
    color = "#d55e00"
    marker = "s"
    claims = {
        "published": PrivacyClaim("pure", flaws=("F-09", "F-26")),
        "sound": PrivacyClaim("pure"),
    }

    def budget(
        self,
        n_points: int,
        n_features: int,
    ) -> Budget | None:
        """Budget of one run; for ``published`` with the epsilons swapped."""
        budget = super().budget(n_points, n_features)
        if self.variant == "sound":
            return budget
        c = count_weight(n_features)
        d = n_features
        epsilon = self.epsilon * (1 + d * c) / (d + c)
        return Budget(epsilon, 0.0, self.claim.adjacency)

    def schedule(
        self,
        n_points: int,
        n_features: int,
    ) -> Schedule:
        """All rounds; see :meth:`PrivateKMeans.schedule`."""
        if self.variant == "sound":
            return super().schedule(n_points, n_features)
        # Swapped, as in `cluster`.
        n_rounds, count_epsilon, sum_epsilon = self._split(n_points, n_features)
        epsilon = count_epsilon + n_features * sum_epsilon
        query = CountsAndBoundedSums
        cost = plan_release(query, Laplace, BoundedLaplace, epsilon=epsilon)
        return Schedule(*[cost] * n_rounds)

    def cluster(self, curator: Curator) -> tuple[np.ndarray, int]:
        """Run all rounds; see :meth:`PrivateKMeans.cluster`."""
        if self.variant == "sound":
            return super().cluster(curator)

        # The library's error: the epsilons of a coordinate and of the count are
        # swapped.
        shape = (curator.n_points, curator.n_features)
        n_rounds, count_epsilon, sum_epsilon = self._split(*shape)

        # Origin of the data's units on the grid, clipped to the domain.
        midpoint, half_width = middle_and_half_width(*curator.domain)
        origin = np.rint(-midpoint / half_width * SCALE)
        origin = np.clip(origin, -SCALE, SCALE).astype(np.int64)

        centers = self._starting_centers(curator)
        for _ in range(n_rounds):
            # Release noisy counts, then sums in the range that those counts allow.
            answer = curator.release(
                CountsAndBoundedSums(centers, origin, fill=self.missing is not None),
                counts=Laplace(SCALE / count_epsilon),
                sums=BoundedLaplace(sum_epsilon, 2.0 * SCALE),
            )

            # Move every center to the noisy mean.
            records = mirrored(answer["counts"])[:, :, None] / SCALE
            centers = snap_centers(origin + answer["sums"] / records)
        return centers, n_rounds
