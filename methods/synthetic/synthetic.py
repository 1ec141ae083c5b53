"""k-means on synthetic records: what methods have in common that model the joint distribution."""

from abc import abstractmethod
from dataclasses import KW_ONLY, dataclass
from typing import ClassVar, Literal

import numpy as np

from pkm.methods.base import PrivateKMeans
from pkm.methods.constraints import Integer
from pkm.methods.weighted_kmeans import weighted_kmeans
from pkm.privacy import Budget, Curator, PrivacyClaim, snap_centers

MAX_RECORDS = 20_000  # synthetic ones


@dataclass(eq=False, repr=False)
class SyntheticKMeans(PrivateKMeans):
    """Records are drawn from a private model of all columns; k-means on them costs nothing more.

    Attributes
    ----------
    max_features : int
        Number of columns up to which tables of several can be compared.
    compared : str
        What is compared, in the plural, for the error.
    alternatives : str
        Methods for more columns, for the error.
    """

    claims = {"sound": PrivacyClaim("approximate")}
    constraints = {**PrivateKMeans.constraints, "n_init": Integer(1)}
    supports_chunks = True
    batched = False  # each replicate has a model of its own
    max_features: ClassVar[int]
    compared: ClassVar[str]
    alternatives: ClassVar[str]

    _: KW_ONLY
    epsilon: float = 1.0
    delta: float | Literal["auto"] = "auto"
    n_init: int = 10

    @abstractmethod
    def draw_records(
        self, curator: Curator, n_records: int, generator: np.random.Generator
    ) -> np.ndarray:
        """Spend the budget on a model, and draw records (n_records, d) from it, in grid steps."""

    def budget(self, n_points: int, n_features: int) -> Budget | None:
        """Budget of one run; refuses more columns than tables can be compared of."""
        if n_features > self.max_features:
            raise ValueError(
                f"d={n_features} features are too many: {type(self).__name__} compares all "
                f"{self.compared} of at most {self.max_features}; take a method for more features, "
                f"such as {self.alternatives}"
            )
        return super().budget(n_points, n_features)

    def cluster(self, curator: Curator) -> tuple[np.ndarray, int]:
        """Draw synthetic records, cluster them; see :meth:`PrivateKMeans.cluster`."""
        generator = curator.public_rng()
        records = self.draw_records(curator, min(curator.n_points, MAX_RECORDS), generator)
        seed = int(generator.integers(2**32))
        weights = np.ones(len(records))
        centers = weighted_kmeans(records, weights, self.n_clusters, self.n_init, seed)
        return snap_centers(centers)[None], 1
