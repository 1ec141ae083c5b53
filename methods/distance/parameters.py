"""Parameters of DistDP, their checks, and the public quantities that follow from them alone.

They are the first argument of the two variants (:mod:`pkm.methods.distance.published` and
:mod:`pkm.methods.distance.sound`), which :class:`pkm.methods.DistDP` runs.
"""

import math
from dataclasses import KW_ONLY, dataclass, replace
from typing import Literal

from pkm.methods.constraints import AUTO, Integer, OneOf, Real
from pkm.methods.distance.rho_bounded import RhoBoundedMethod, noise_multiplier
from pkm.privacy import Budget, PrivacyClaim
from pkm.privacy.budget import Adjacency

CELLS_PER_CLUSTER = 4


@dataclass(eq=False, repr=False)
class DistDPParameters(RhoBoundedMethod):
    """Parameters of :class:`pkm.methods.DistDP`, described there."""

    claims = {
        "published": PrivacyClaim("approximate", Adjacency.RHO_BOUNDED),
        "sound": PrivacyClaim("approximate", Adjacency.RHO_BOUNDED),
    }
    constraints = {
        **RhoBoundedMethod.constraints,
        "variant": OneOf("published", "sound"),
        "regions": OneOf("true", "noised"),
        "ball": Real(0) | OneOf("capped", "printed"),
        "replacement": OneOf("charged", "uncharged"),
        "least_region": AUTO | Real(0),
        "sizes": OneOf("thresholded", "noisy"),
        "size_share": Real(0, 1),
        "fine_counts": OneOf("joint", "split"),
        "coreset_clusters": AUTO | Integer(1),
        "quadtrees": Integer(1, 64),
        "coarse": Integer(0, 17),
        "finest": Integer(1, 18),
        "cells": AUTO | Integer(1),
        "depth": Integer(1, 60),
        "points_share": Real(0, 1),
    }

    _: KW_ONLY
    variant: str = "sound"
    regions: str = "true"
    ball: float | Literal["capped", "printed"] = "capped"
    replacement: str = "charged"
    least_region: float | Literal["auto"] = "auto"
    sizes: str = "thresholded"
    size_share: float = 0.5
    fine_counts: str = "joint"
    coreset_clusters: int | Literal["auto"] = "auto"
    quadtrees: int = 5
    coarse: int = 5
    finest: int = 10
    cells: int | Literal["auto"] = "auto"
    depth: int = 20
    points_share: float = 0.9

    @property
    def claim(self) -> PrivacyClaim:
        """The claim of the variant; with the flaw where a move is charged as one record."""
        claim = self.claims[self.variant]
        flawed = self.variant == "published" and self.replacement == "uncharged"
        return replace(claim, flaws=("F-17",)) if flawed else claim

    def check_parameters(self, n_points: int | None = None) -> None:
        """Refuse bad parameters; see :meth:`PrivateKMeans.check_parameters`."""
        super().check_parameters(n_points)
        if not self.coarse < self.finest:
            raise ValueError(f"finest={self.finest} must be above coarse={self.coarse}")
        if self.variant == "published":
            # Delta does not depend on n: it is the parameter, or 1e-6.
            part = self.published_part(n_points or 1)
            noise_multiplier(self.calibration, part.epsilon, part.delta)

    def published_part(self, n_points: int) -> Budget:
        """Budget of each of the three equal parts of ``published``."""
        # For one feature, whatever their number: only epsilon and delta are read.
        return self.budget(n_points, 1).split([1, 1, 1])[0]

    @property
    def resolved_cells(self) -> int:
        """Number of fullest cells of each level of each tree that become crude centers."""
        return CELLS_PER_CLUSTER * self.n_clusters if self.cells == "auto" else self.cells

    def far_factor(self, n_points: int, n_features: int) -> float:
        """The paper's S: points farther than S rho from all crude centers are far.

        A matter of utility alone.
        """
        epsilon = self.epsilon / 6
        delta = self.resolved_delta(n_points) / 6
        return math.sqrt(2 * math.log(1.25 / delta) * n_features) / epsilon
