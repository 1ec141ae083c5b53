"""Lloyd's algorithm with Laplace noise, from uniform starting centers."""

import numpy as np

from pkm.methods import PrivateKMeans
from pkm.methods.constraints import Integer
from pkm.privacy import SCALE, Laplace, PrivacyClaim, SumsAndCounts, snap_centers


class OwnMethod(PrivateKMeans):
    """Some steps, with equal shares of the budget."""

    label = "own method"
    claims = {"sound": PrivacyClaim("pure")}
    constraints = {"steps": Integer(1)}
    batched = False  # one replicate at a time

    epsilon: float = 1.0
    steps: int = 3

    def cluster(self, curator):
        """Query the curator for noisy sums and counts, step by step."""
        # A record changes one count by 1 and d sums by at most 1, in units of SCALE.
        # Noise of scale s on sums and t on counts costs d / s + 1 / t.
        d = curator.n_features
        noise = Laplace((d + 1) * self.steps / self.epsilon * SCALE)

        uniform = curator.public_rng().uniform(-SCALE, SCALE, (1, self.n_clusters, d))
        centers = snap_centers(uniform)
        for _ in range(self.steps):
            query = SumsAndCounts(centers)
            answer = curator.release(query, sums=noise, counts=noise)
            counts = np.maximum(answer["counts"] / SCALE, 1)[:, :, None]
            centers = snap_centers(np.clip(answer["sums"] / counts, -SCALE, SCALE))
        return centers, self.steps
