"""Outcome of a batch of replicates, put together from its parts."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from pkm.compute import SCALE
from pkm.methods.zoom import Zoom
from pkm.privacy import Charge, Ledger, to_unit


@dataclass(frozen=True)
class Run:
    """Outcome of a batch of replicates.

    Attributes
    ----------
    centers : ndarray of shape (R, k, d), int64
        Released centers on the grid. Where a replicate has fewer than k, copies of its
        first center follow: ties go to the lower index, so a copy is nearest to no
        point.
    n_iter : int
        Number of iterations, a public quantity.
    ledger : Ledger or None
        Charges of each replicate; None where no privacy is claimed.
    seeds : tuple of int
    n_centers : ndarray of shape (R,), int64
        Number of centers that each replicate released.
    remainders : ndarray of shape (R, k, d), int64, or None
        What rounding to the grid took from centers that were found in a smaller domain,
        in units of 2**-16 grid steps; None without a zoom.
    zooms : tuple of Zoom or None
        The domain that each replicate found; None where it ran in the public one.
    """

    centers: np.ndarray
    n_iter: int
    ledger: Ledger | None
    seeds: tuple[int, ...]
    n_centers: np.ndarray
    remainders: np.ndarray | None = None
    zooms: tuple[Zoom | None, ...] = ()

    @property
    def positions(self) -> np.ndarray:
        """Centers (R, k, d) in half-widths of the public domain, float64."""
        if self.remainders is None:
            return to_unit(self.centers)
        return to_unit(self.centers + self.remainders / SCALE)


class Part(NamedTuple):
    """What one call of ``cluster`` released, for one or more replicates."""

    centers: Sequence[np.ndarray] | np.ndarray
    n_iter: int
    ledger: Ledger | None
    zoom: Zoom | None


def combine(parts: Sequence[Part], seeds: tuple[int, ...]) -> Run:
    """Put the parts of a batch together.

    Parameters
    ----------
    parts : sequence of Part
    seeds : tuple of int
        Of all replicates.

    Returns
    -------
    Run

    Raises
    ------
    RuntimeError
        If charges differ: a schedule that follows the data would release something
        itself.
    """
    charges = [part.ledger.charges for part in parts if part.ledger is not None]
    if not all([_cost_equally(other, charges[0]) for other in charges[1:]]):
        raise RuntimeError(
            "replicates were charged differently: a schedule must not depend on private data"
        )
    released = [centers for part in parts for centers in part.centers]
    zooms = [part.zoom for part in parts for _ in part.centers]
    n_centers = [len(centers) for centers in released]
    most = max(n_centers)
    remainders = None
    if any(zooms):
        released, rests = _place_on_public_grid(released, zooms)
        remainders = _pad(rests, most)
    return Run(
        _pad(released, most),
        max(part.n_iter for part in parts),
        parts[0].ledger,
        seeds,
        np.array(n_centers),
        remainders,
        tuple(zooms),
    )


def _cost_equally(charges: Sequence[Charge], others: Sequence[Charge]) -> bool:
    """Whether two lists of charges are for the same releases and costs, up to rounding."""
    # Notes of a charge may follow from released values, and so may the last bits of its
    # cost.
    same_length = len(charges) == len(others)
    return same_length and all(map(Charge.costs_like, charges, others))


def _place_on_public_grid(
    released: list[np.ndarray], zooms: list[Zoom | None]
) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """Centers of all replicates in public grid steps, and remainders in 2^-16 of them."""
    centers: list[np.ndarray] = []
    remainders: list[np.ndarray] = []
    for inner, zoom in zip(released, zooms, strict=True):
        if zoom is None:
            fine = inner * SCALE
        else:
            fine = np.rint(zoom.outward(inner) * SCALE * SCALE).astype(np.int64)
        steps = (fine + SCALE // 2) // SCALE
        centers.append(steps)
        remainders.append(fine - steps * SCALE)
    return centers, remainders


def _pad(released: list[np.ndarray], k: int) -> np.ndarray:
    """Stack sets of centers, each filled up to k with copies of its first."""
    if min(map(len, released)) == k:
        return np.array(released, np.int64)
    padded = np.empty((len(released), k, released[0].shape[1]), np.int64)
    for row, centers in zip(padded, released, strict=True):
        row[: len(centers)] = centers
        row[len(centers) :] = centers[0]
    return padded
