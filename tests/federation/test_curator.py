"""What the curator of a client serves."""

import numpy as np
import pytest
from protocol_runs import random_points

from pkm.federation import FederatedCurator
from pkm.federation.curator import ClientSession
from pkm.privacy import SCALE, Laplace
from pkm.privacy.mechanisms.additive import BoundedLaplace
from pkm.privacy.queries.sums import CountsAndBoundedSums, GapPercentile, GridCounts
from pkm.privacy.queries.tree import CellCounts, PartitionTree


def test_federated_curator_refuses_other_queries():
    """It answers sums and counts alone."""
    session = ClientSession(None, None, 400, [])
    curator = FederatedCurator(random_points(), None, (0,), None, session)
    assert curator.n_points == 400

    centers = np.zeros((1, 1, 2), np.int64)
    origin = np.zeros(2, np.int64)
    bounded = BoundedLaplace(1.0, 2.0 * SCALE)
    queries = (
        (GridCounts(4), {"counts": Laplace(1.0)}),
        (GapPercentile(50), {"percentile": None}),
        (CountsAndBoundedSums(centers, origin), {"counts": Laplace(1.0), "sums": bounded}),
    )
    for query, noise in queries:
        with pytest.raises(TypeError, match="is not served by FederatedCurator: SumsAndCounts"):
            curator.release(query, **noise)
    with pytest.raises(TypeError, match="is not served by FederatedCurator: SumsAndCounts"):
        PartitionTree(curator).release(CellCounts([0]), counts=Laplace(1.0))
