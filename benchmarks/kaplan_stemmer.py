"""Kaplan and Stemmer's method and that of Balcan et al.: time and memory."""

from collections.abc import Iterator
from functools import partial

import numpy as np

from pkm.benchmarks.inputs import draw_mixture
from pkm.benchmarks.measurement import Measurement, measure_memory, measure_time
from pkm.compute import Points
from pkm.methods import Balcan, KaplanStemmer
from pkm.privacy import snap

N_POINTS = 100_000
N_CLUSTERS = 16
MAX_BYTES_PER_VALUE = 32
DEFAULT = KaplanStemmer(N_CLUSTERS, radius=1.0)
SEARCH = KaplanStemmer(N_CLUSTERS, radius=1.0, select="local_search")
#: Method, number of columns, and the CPU seconds that a fit may take.
FITS = {
    "Kaplan-Stemmer, 10 columns": (DEFAULT, 10, 2),
    "Kaplan-Stemmer, 100 columns": (DEFAULT, 100, 5),
    "Kaplan-Stemmer, local search": (SEARCH, 10, 10),
    "Balcan et al.": (Balcan(N_CLUSTERS, radius=1.0), 10, 10),
}


def measure_kaplan_stemmer(scale: float) -> Iterator[Measurement]:
    """Measure fits of sixteen clusters in the unit ball."""
    labels = np.arange(round(scale * N_POINTS)) % N_CLUSTERS
    for name, (method, d, max_seconds) in FITS.items():
        # Norms are about 0.8; the method projects those above 1 to the ball.
        spread = 0.15 / np.sqrt(d)
        max_mean = 1.4 / np.sqrt(d)
        X = draw_mixture(labels, d, spread=spread, max_mean=max_mean)
        fit = partial(method.fit_batch, Points.from_grid(snap(X)), [0], secure=False)
        title = f"{name}, {len(X):,} points"
        yield measure_time(title, fit, max_seconds)
        yield measure_memory(title, fit, X.size, MAX_BYTES_PER_VALUE)
