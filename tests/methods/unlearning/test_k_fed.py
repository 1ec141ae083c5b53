"""K-FED on points of which the centers are known."""

import numpy as np
import pytest

from pkm.compute import SCALE, Points
from pkm.methods.unlearning.k_fed import KFed, client_centers


def test_k_fed_by_hand():
    """Two far groups at each client: the centers are their means, and the server averages those of
    the clients.
    """
    groups = np.array([[-40000, 0], [-40000, 4000], [40000, 0], [40000, -4000]])
    centers, labels = client_centers(groups / SCALE, 2, np.random.default_rng(0))
    assert grid_steps(centers) == [[-40000, 2000], [40000, -2000]]
    assert labels.tolist() in ([0, 0, 1, 1], [1, 1, 0, 0])

    shifted = groups + np.array([0, 8000])
    empty = np.empty((0, 2), np.int64)
    parts = [Points.from_grid(part) for part in (groups, empty, shifted)]
    centers, labels = KFed(2).fit(parts, 0)
    assert grid_steps(centers) == [[-40000, 6000], [40000, 2000]]
    assert len(labels) == 8
    assert (labels[:4] == labels[4:]).all()


def grid_steps(centers):
    """Return centers in grid steps, in the order of their first coordinate."""
    order = np.argsort(centers[:, 0])
    return (centers[order] * SCALE).round(6).tolist()


def test_k_fed_continues_with_the_farthest_centers():
    """Clients with one cluster each: the first one's center, then the farthest, then the next."""
    coordinates = (0, 1000, 60000, 30000)
    parts = [Points.from_grid(np.full((5, 1), coordinate)) for coordinate in coordinates]
    centers, labels = KFed(3, client_clusters=1).fit(parts, 0)
    assert (centers * SCALE).round(6).ravel().tolist() == [500, 60000, 30000]
    assert labels[::5].tolist() == [0, 0, 1, 2]


def test_k_fed_with_as_many_seeds_as_points():
    """Every point is a core."""
    points = np.array([[0.0], [0.5], [1.0]])
    centers, labels = client_centers(points, 3, np.random.default_rng(1))
    assert sorted(centers.ravel().round(12).tolist()) == [0.0, 0.5, 1.0]
    assert len(set(labels.tolist())) == 3


@pytest.mark.parametrize("parameters", [{"n_clusters": 0}, {"n_clusters": 2, "client_clusters": 0}])
def test_k_fed_refuses_bad_parameters(parameters):
    with pytest.raises(ValueError, match="clusters=0 must be an integer of at least 1"):
        KFed(**parameters)
