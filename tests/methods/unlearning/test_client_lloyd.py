"""Lloyd's algorithm of one client against plain steps."""

import numpy as np
import pytest
from client_points import draw

from pkm.compute import SCALE, Points
from pkm.methods.unlearning.k_fed import client_centers
from pkm.methods.unlearning.unlearning import Unlearning


def lloyd_losses(points, centers, steps):
    """Return the losses of plain Lloyd's algorithm, step by step."""
    losses = []
    centers = np.array(centers, float)
    for _ in range(steps):
        squares = ((points[:, None] - centers) ** 2).sum(axis=2)
        losses.append(squares.min(axis=1).sum())
        labels = squares.argmin(axis=1)
        for j in range(len(centers)):
            if (labels == j).any():
                centers[j] = points[labels == j].mean(axis=0)
    return losses


def test_full_clients_train_until_the_loss_converges():
    """From the seeds on as plain Lloyd's algorithm goes, until a step changes the loss by less than
    a thousandth.
    """
    points = draw(9, n=400)
    parts = [Points.from_grid(points)]
    seeded = Unlearning(6).fit(parts, 0)._clients[0]
    full = Unlearning(6, client="full").fit(parts, 0)._clients[0]
    start = points[seeded.ids[seeded.seeds]].astype(float)
    losses = lloyd_losses(points, start, 300)
    steps = next(t for t in range(1, 300) if losses[t] >= (1 - 1e-3) * losses[t - 1])
    assert steps > 3  # the first step is not the last
    trained = lloyd_losses(points, full.centers, 1)[0]
    assert trained == pytest.approx(losses[steps + 1], rel=1e-9)
    assert trained < losses[1]


def test_k_fed_clients_train_until_the_loss_converges():
    points = draw(10, n=400) / SCALE
    centers, _ = client_centers(points, 6, np.random.default_rng(0))
    losses = lloyd_losses(points, centers, 2)
    assert losses[1] >= (1 - 2e-3) * losses[0]
