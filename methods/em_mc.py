"""EM-MC: candidate centers by a private maximum cover in few dimensions (Nguyen, Chaturvedi, Xu, AAAI 2021).

Points are projected to about log10(n) dimensions. Grid points that cover many of them are picked by the exponential
mechanism on grids from fine to coarse; noisy counts make them a weighted set that k-means clusters in the projection,
at no further cost; the points of each of the k cells are then averaged privately in all dimensions.

The list of radii, the dimensions, the shares and the reach of a cover are those of the re-implementation in the DPM
study (its Section 6). Departures: scale and clipping are public (half of the domain's diagonal, with half as much again
for the projection's distortion); grids start at a fixed smallest radius, because on finer ones only a large part of all
points within that radius could outweigh the empty grid points, and every grid adds picks that ignore the data; cells
are averaged by noisy sums and counts about the middle of the domain, which needs less noise at the same budget than
averages whose noise is set by a noisy size; and no cell is dropped.
"""

import math
from dataclasses import KW_ONLY, dataclass
from typing import ClassVar

import numpy as np
from sklearn.cluster import KMeans
from threadpoolctl import threadpool_limits

from pkm.compute.lattice import lattice, scales
from pkm.methods.base import PrivateKMeans, inverse_n_root_n, is_integer, is_number
from pkm.methods.lloyd import TYPICAL_CENTER, truncate
from pkm.privacy import SCALE, Curator, Gaussian, Laplace, PrivacyClaim, gaussian_mu, snap_centers
from pkm.privacy.ledger import largest_multiple
from pkm.privacy.noise import INITIALIZATION, child
from pkm.privacy.projection import cover_weight

COUNT_SHARE, AVERAGE_SHARE, COVER_SHARE = 0.2, 0.6, 0.2  # of epsilon
COVER_DELTA = 0.5  # of delta, the rest goes to the averages
GAMMA = 0.99  # distortion of the projection, and how much finer than its covers a grid is
SLACK = 1.5  # what a projected point may be longer than half of the domain's diagonal before it is clipped
MATRIX_STEPS = (
    1 << 16
)  # entries of the projection are multiples of 2^-16, so that products are exact
MAX_DIMENSIONS = 6
SMALLEST_RADII = {1: 0.01, 2: 0.01, 3: 0.01, 4: 0.01, 5: 0.05, 6: 0.1}  # by projected dimensions
MIN_RADIUS = 0.002  # finer grids have tables that take seconds
N_INIT = 10  # starts of the k-means on candidates: free


@dataclass(frozen=True)
class Plan:
    """What is asked of the curator, from public quantities only.

    Attributes
    ----------
    scales : tuple of (side, radius)
        The grids.
    picks : int
        Grid points picked per grid.
    weight, delta : float
        Of the maximum cover.
    count_noise : Laplace
        On the candidates' counts.
    sum_noise, size_noise : Gaussian
        On the cells' sums and counts.
    """

    scales: tuple[tuple[float, float], ...]
    picks: int
    weight: float
    delta: float
    count_noise: Laplace
    sum_noise: Gaussian
    size_noise: Gaussian


@dataclass(eq=False, repr=False)
class EMMC(PrivateKMeans):
    """EM-MC.

    Parameters
    ----------
    n_clusters : int, default=8
    epsilon : float, default=1.0
        Total, zero-out adjacency: 0.2 for the candidates' counts, 0.6 for the averages, 0.2 for the cover.
    delta : float or "auto", default="auto"
        ``auto`` is 1 / (n sqrt n) for ``published`` and 1e-6 for ``sound``. Half is for the cover.
    variant : {"published", "sound"}, default="sound"
        ``published`` weighs a covered point by the paper's epsilon / (2 ln(e / delta)) and adds the parts' budgets up;
        ``sound`` takes the largest weight that its part pays for, and composes the parts tightly.
    smallest_radius : float or "auto", default="auto"
        Radii below it are left out of the paper's list; 1 is half of the domain's diagonal and half as much again. In
        [0.002, 1]. ``auto`` is 0.01 in up to four projected dimensions, 0.05 in five, 0.1 in six: finer grids have so
        many points there that time and memory would follow from how the data lie.
    n_dimensions : int or "auto", default="auto"
        Of the projection, at most 6; ``auto`` is floor(log10(n) / 0.99^2).
    secure : bool, default=False
        Draw noise from the operating system's entropy instead of the seed.
    bounds, clip, random_state
        As for :class:`pkm.methods.base.PrivateKMeans`.

    Examples
    --------
    >>> X = np.repeat([[-0.5, 0.25], [0.5, 0.5]], 20_000, axis=0)
    >>> model = EMMC(n_clusters=2, epsilon=4.0, random_state=0).fit(X)
    >>> sorted(model.cluster_centers_.round(2).tolist())
    [[-0.5, 0.25], [0.5, 0.5]]
    """

    claims: ClassVar[dict[str, PrivacyClaim]] = {
        "published": PrivacyClaim("approximate", flaws=("F-09",)),
        "sound": PrivacyClaim("approximate"),
    }
    choices: ClassVar[dict[str, tuple]] = {
        **PrivateKMeans.choices,
        "variant": ("published", "sound"),
        "secure": (True, False),
    }
    batched: ClassVar[bool] = False
    published_delta = staticmethod(inverse_n_root_n)

    _: KW_ONLY
    epsilon: float = 1.0
    delta: float | str = "auto"
    variant: str = "sound"
    smallest_radius: float | str = "auto"
    n_dimensions: int | str = "auto"
    secure: bool = False

    def check_parameters(self, n_points=None):
        """Refuse bad parameters; see :meth:`PrivateKMeans.check_parameters`."""
        super().check_parameters(n_points)
        radius, dimensions = self.smallest_radius, self.n_dimensions
        if radius != "auto" and not (is_number(radius) and MIN_RADIUS <= radius <= 1):
            raise ValueError(
                f"smallest_radius={radius!r} must be 'auto' or a number in [{MIN_RADIUS}, 1]"
            )
        if dimensions != "auto" and not (
            is_integer(dimensions) and 1 <= dimensions <= MAX_DIMENSIONS
        ):
            raise ValueError(
                f"n_dimensions={dimensions!r} must be 'auto' or an integer from 1 to {MAX_DIMENSIONS}"
            )
        if n_points is not None:
            lattice(self.dimensions(n_points), self._scales(n_points)[0][0])

    def dimensions(self, n_points: int) -> int:
        """Number of dimensions that points are projected to."""
        if self.n_dimensions != "auto":
            return self.n_dimensions
        return min(max(int(math.log10(n_points) / GAMMA**2), 1), MAX_DIMENSIONS)

    def _scales(self, n_points: int) -> tuple[tuple[float, float], ...]:
        m, radius = self.dimensions(n_points), self.smallest_radius
        return tuple(scales(n_points, m, GAMMA, SMALLEST_RADII[m] if radius == "auto" else radius))

    def plan(self, n_points: int, n_features: int) -> Plan:
        """Everything that is asked, before the first question."""
        epsilon, delta = self.epsilon, self.resolved_delta(n_points)
        cover_delta = COVER_DELTA * delta
        count_epsilon, cover_epsilon = COUNT_SHARE * epsilon, COVER_SHARE * epsilon
        mu = gaussian_mu(AVERAGE_SHARE * epsilon, delta - cover_delta)
        if self.variant == "sound":
            stretch = largest_multiple(
                [mu], [count_epsilon, cover_epsilon], epsilon, delta - cover_delta
            )
            mu, count_epsilon, cover_epsilon = (
                stretch * mu,
                stretch * count_epsilon,
                stretch * cover_epsilon,
            )
        weight = cover_weight(cover_epsilon, cover_delta)
        if self.variant == "published":
            weight = min(weight, cover_epsilon / (2 * math.log(math.e / cover_delta)))
        # The error of a mean is the sum's, and the count's times the distance from the middle that is to be expected.
        sum_part, size_part = math.sqrt(n_features), 2 * TYPICAL_CENTER
        sum_mu = mu * math.sqrt(sum_part / (sum_part + size_part))
        size_mu = mu * math.sqrt(size_part / (sum_part + size_part))
        return Plan(
            self._scales(n_points),
            math.ceil(self.n_clusters * math.log(math.ceil(1 / GAMMA))),
            weight,
            cover_delta,
            Laplace(SCALE / count_epsilon),
            Gaussian(math.sqrt(n_features) * SCALE / sum_mu),
            Gaussian(SCALE / size_mu),
        )

    def cluster(self, curator: Curator) -> tuple[np.ndarray, int]:
        """Run one replicate: cover, counts, k-means on candidates, averages."""
        n, d = curator.n_points, curator.n_features
        plan = self.plan(n, d)
        generator = np.random.RandomState(
            np.random.MT19937(child(curator.seeds[0], INITIALIZATION))
        )
        m = self.dimensions(n)
        matrix = np.rint(generator.standard_normal((m, d)) * MATRIX_STEPS).astype(np.int64)
        length = SLACK * math.sqrt(d) * SCALE * math.sqrt(m) * MATRIX_STEPS
        projected = curator.projection(matrix, length)
        candidates = projected.maximum_cover(
            plan.scales, plan.picks, weight=plan.weight, delta=plan.delta
        )
        counts = projected.counts(candidates, plan.count_noise)
        weights = np.maximum(np.ceil(counts / SCALE), 0.0)
        weights[repeated(candidates)] = 0.0
        cells = weighted_centers(candidates, weights, self.n_clusters, generator)
        sums, sizes = projected.sums_and_counts(
            cells, sum_noise=plan.sum_noise, count_noise=plan.size_noise
        )
        return truncate(snap_centers(sums / np.maximum(sizes / SCALE, 1.0)[:, None]))[None], 1


def repeated(candidates: np.ndarray) -> np.ndarray:
    """Tell which candidates were picked before: their points went to the first of them.

    Examples
    --------
    >>> repeated(np.array([[0.0, 0.5], [0.5, 0.0], [0.0, 0.5]])).tolist()
    [False, False, True]
    """
    again = np.ones(len(candidates), bool)
    again[np.unique(candidates, axis=0, return_index=True)[1]] = False
    return again


def weighted_centers(candidates: np.ndarray, weights: np.ndarray, k: int, generator) -> np.ndarray:
    """Cluster weighted candidates into k centers.

    Parameters
    ----------
    candidates : ndarray of shape (c, m), float64
    weights : ndarray of shape (c,), float64
        Not negative.
    k : int
    generator : numpy.random.RandomState

    Returns
    -------
    ndarray of shape (k, m), float64
        By k-means where more than k candidates have weight; otherwise the k heaviest, the lightest of them repeated
        where there are too few.
    """
    heaviest = np.argsort(-weights, kind="stable")
    if np.count_nonzero(weights) <= k:
        return candidates[heaviest[np.minimum(np.arange(k), len(heaviest) - 1)]]
    some = weights > 0
    with threadpool_limits(
        limits=1
    ):  # sums of a few hundred candidates, in one order on every machine
        model = KMeans(k, n_init=N_INIT, random_state=generator).fit(
            candidates[some], sample_weight=weights[some]
        )
    return model.cluster_centers_
