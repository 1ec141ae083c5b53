"""Parameters of DistDP, their checks, and the public quantities that follow from them alone.

They are the first argument of the two variants (:mod:`pkm.methods.distance.published` and
:mod:`pkm.methods.distance.sound`), which :class:`pkm.methods.DistDP` runs.
"""

import math
from dataclasses import KW_ONLY, dataclass, replace
from typing import ClassVar, Literal

from pkm.methods.distance.rho_bounded import RhoBoundedMethod, noise_multiplier
from pkm.privacy import Budget, PrivacyClaim
from pkm.privacy.budget import Adjacency
from pkm.scalars import is_integer, is_number, is_positive

CELLS_PER_CLUSTER = 4


@dataclass(eq=False, repr=False)
class DistDPParameters(RhoBoundedMethod):
    """Parameters of :class:`pkm.methods.DistDP`, described there."""

    claims: ClassVar[dict[str, PrivacyClaim]] = {
        "published": PrivacyClaim("approximate", Adjacency.RHO_BOUNDED),
        "sound": PrivacyClaim("approximate", Adjacency.RHO_BOUNDED),
    }
    choices: ClassVar[dict[str, tuple]] = {
        **RhoBoundedMethod.choices,
        "variant": ("published", "sound"),
        "regions": ("true", "noised"),
        "replacement": ("charged", "uncharged"),
        "sizes": ("thresholded", "noisy"),
        "fine_counts": ("joint", "split"),
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
        if self.variant not in self.claims:
            raise ValueError(
                f"variant={self.variant!r} is unknown, choose one of 'published', 'sound'"
            )
        super().check_parameters(n_points)
        self._check_integer("quadtrees", 1, 64)
        self._check_integer("depth", 1, 60)
        self._check_integer("coarse", 0, 17)
        self._check_integer("finest", 1, 18)
        if not self.coarse < self.finest:
            raise ValueError(f"finest={self.finest} must be above coarse={self.coarse}")
        for name in ("cells", "coreset_clusters"):
            value = getattr(self, name)
            if value != "auto" and not (is_integer(value) and value >= 1):
                raise ValueError(f"{name}={value!r} must be 'auto' or an integer of at least 1")
        self._check_positive("ball", ("capped", "printed"))
        self._check_positive("least_region", ("auto",))
        for name in ("points_share", "size_share"):
            value = getattr(self, name)
            if not (is_number(value) and 0 < value < 1):
                raise ValueError(f"{name}={value!r} must be a number in (0, 1)")
        if self.variant == "published":
            # Delta does not depend on n: it is the parameter, or 1e-6.
            part = self.published_part(n_points or 1)
            noise_multiplier(self.calibration, part.epsilon, part.delta)

    def _check_integer(self, name: str, lowest: int, highest: int) -> None:
        value = getattr(self, name)
        if not (is_integer(value) and lowest <= value <= highest):
            raise ValueError(f"{name}={value!r} must be an integer from {lowest} to {highest}")

    def _check_positive(self, name: str, words: tuple[str, ...]) -> None:
        value = getattr(self, name)
        if value not in words and not is_positive(value):
            raise ValueError(
                f"{name}={value!r} must be a positive number or one of "
                f"{', '.join(map(repr, words))}"
            )

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
