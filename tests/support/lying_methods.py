"""Methods whose entries lie, or are honest about something unusual."""

from typing import ClassVar

import numpy as np
from planted_faults import HalfLaplace, broken, rows_of

from pkm.methods import PrivateKMeans, SuLloyd
from pkm.privacy import NO_CLAIM, SCALE, PrivacyClaim, snap_centers

#: Records of the set on which a method reads points: the audit and the conformance suite have none
#: with so many.
MANY = 400


class Quieter(broken(SuLloyd, mechanisms=[HalfLaplace])):
    """Half the noise that is charged."""


class PeeksAtMany(SuLloyd):
    """The first center is the exact mean, where there are many records."""

    claims: ClassVar = {"sound": PrivacyClaim("pure", flaws=("F-05",))}

    def cluster(self, curator):
        centers, n_iter = super().cluster(curator)
        if curator.n_points == MANY:
            centers[:, 0] = rows_of(curator).mean(axis=0)
        return centers, n_iter


class Unseeded(PrivateKMeans):
    """Noisy centers of random points, by noise that no seed repeats; it claims no privacy."""

    claims: ClassVar = {"sound": NO_CLAIM}

    epsilon: float = 1.0

    def cluster(self, curator):
        points = curator.disclose().astype(float) / SCALE
        rng = np.random.default_rng()
        shape = (curator.n_replicates, self.n_clusters)
        chosen = points[rng.integers(len(points), size=shape)]
        noise = rng.laplace(scale=0.1 / self.epsilon, size=chosen.shape)
        claim = {"notion": "pure", "epsilon": self.epsilon}
        return snap_centers((chosen + noise) * SCALE), 1, claim


class FailsOnWine(SuLloyd):
    """It fails on data of 13 columns."""

    def cluster(self, curator):
        if curator.n_features == 13:
            raise RuntimeError("13 columns are too many")
        return super().cluster(curator)


class RefusesManyRecords(SuLloyd):
    """It refuses many records before it is run."""

    def check_parameters(self, n_points=None):
        super().check_parameters(n_points)
        if n_points is not None and n_points >= MANY:
            raise ValueError(f"{MANY - 1} records at most")
