"""Embeddings of images, by a network that is trained on them.

They are bundled data sets: training makes them anew, and needs torch
(`pkm.datasets.embedding_training`). It differs in the last bits between machines, so
that the digest of the bundled points identifies a set, not its recipe alone.
"""

import importlib.metadata
import importlib.util
from collections.abc import Callable
from dataclasses import asdict
from os import PathLike
from pathlib import Path

import numpy as np

from pkm.datasets import downloads, parsers
from pkm.datasets.bundled import Content
from pkm.datasets.entry import Entry
from pkm.datasets.sources import DataUnavailable
from pkm.files import record_digest
from pkm.source import read_code

TRAINER = Path(__file__).with_name("embedding_training.py")
EXTRA = "requirements-embeddings.txt"
#: Embeddings are rounded to this part of a unit, so that a byte holds each.
STEPS = 16
#: Seed of what is added to rounded embeddings.
DITHER_SEED = 0


def make_key(entry: Entry) -> str:
    """Hash what determines the embeddings (SHA-256).

    That is the images, the parser, the recipe and the trainer's code.
    """
    assert entry.trained is not None
    declared = {
        "images": [file.sha256 for file in entry.files],
        "parser": parsers.describe(entry.parse),
        "recipe": asdict(entry.trained),
        "trainer": read_code(TRAINER),
    }
    return record_digest(declared)


def train(
    entry: Entry,
    data_dir: str | PathLike | None = None,
    report: Callable[[str], None] | None = None,
) -> tuple[Content, dict[str, str]]:
    """Train a set.

    Parameters
    ----------
    entry : Entry
        With a recipe in its field `trained`.
    data_dir : path-like, optional
        Folder with the images.
    report : callable, optional
        Takes one line of text per epoch.

    Returns
    -------
    content : Content
        Points in multiples of 1/16, and labels.
    record : dict of str to str
        How they were made, and how well k-means with ten starts does on them.

    Raises
    ------
    DataUnavailable
        If torch or the images are not available.
    """
    if importlib.util.find_spec("torch") is None:
        raise DataUnavailable(
            f"data set {entry.name!r} needs torch for its training, and only for that: "
            f"run 'make embeddings', or 'pip install -r {EXTRA}'"
        )
    assert entry.trained is not None
    copies = downloads.obtain_files(entry.files, entry.name, data_dir)
    images, labels = entry.parse(*(copy.content for copy in copies))

    # Only the training needs torch.
    from pkm.datasets.embedding_training import train_and_embed

    embedded = train_and_embed(images, labels, entry.trained, report)
    points = np.rint(embedded.astype(np.float64) * STEPS) / STEPS
    accuracy, inertia = measure(points, labels, entry.n_clusters)
    record = {
        "seed": str(entry.trained.seed),
        "epochs": str(entry.trained.epochs),
        "torch": importlib.metadata.version("torch"),
        "accuracy": f"{accuracy:.3f}",
        "inertia": f"{inertia:.3g}",
        "recipe": make_key(entry),
    }
    return Content(points, labels), record


def dither(points: np.ndarray) -> np.ndarray:
    """Spread the positive values of rounded embeddings evenly over their steps.

    Rounding ties most values. Between tied values there is no gap, and DPM measures the
    gaps of a column. Zeros, which the network itself makes, stay.

    Parameters
    ----------
    points : ndarray of shape (n, d), float64
        Multiples of 1/16.

    Returns
    -------
    ndarray of shape (n, d), float64
        The same for every load: the noise has a fixed seed. Nothing exceeds the largest
        value before.

    Examples
    --------
    >>> bool((dither(np.zeros((2, 3))) == 0).all())
    True
    """
    generator = np.random.default_rng(DITHER_SEED)
    noise = generator.uniform(-0.5, 0.5, points.shape) / STEPS
    return np.minimum(points + noise * (points > 0), points.max())


def measure(
    points: np.ndarray, labels: np.ndarray, n_clusters: int
) -> tuple[float, float]:
    """Measure a k-means clustering with ten starts: accuracy by majority, inertia.

    Examples
    --------
    >>> points = np.array([[0.0], [1.0], [10.0], [11.0]])
    >>> measure(points, np.array([0, 0, 1, 1]), 2)
    (1.0, 1.0)
    """
    from sklearn.cluster import KMeans  # a second of imports
    from sklearn.metrics.cluster import contingency_matrix

    kmeans = KMeans(n_clusters, n_init=10, random_state=0)
    kmeans.fit(points)
    counts = contingency_matrix(kmeans.labels_, labels)
    accuracy = float(counts.max(axis=1).sum() / len(labels))
    return accuracy, float(kmeans.inertia_)
