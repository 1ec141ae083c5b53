"""Methods with the values that the synopsis runs them with."""

import math

from pkm.methods import KaplanStemmer
from pkm.methods.synthetic.synopsis import refinement


class AveragedKaplanStemmer(KaplanStemmer):
    """Kaplan-Stemmer with the refinement of the synopsis."""

    def schedule(self, n_points, n_features, **options):
        return super().schedule(n_points, n_features, refinement=refinement(), **options)

    def cluster(self, curator):
        in_ball = self.resolved_radius(curator) < math.sqrt(curator.n_features)
        schedule = self.schedule(curator.n_points, curator.n_features, in_ball=in_ball)
        return self.run(curator, schedule).centers[None], schedule.rounds
