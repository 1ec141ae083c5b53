"""Embeddings of images: trained once, kept in the cache, loaded like any other data set.

Training needs torch (`pkm.datasets.embedding_training`); this module does not. A stored set is two
files in the cache: the arrays, under a name with a hash of all that determines the training, and a
manifest with the arrays' SHA-256. Training is not the same to the last bit on every machine, so the
manifest, and not the recipe alone, identifies the points that a result belongs to.
"""

import hashlib
import importlib.util
import json
from collections.abc import Callable
from dataclasses import asdict, dataclass
from io import BytesIO
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from pkm.datasets import downloads, parsers, sources
from pkm.files import atomic_write, cache_folder
from pkm.source import code_of

if TYPE_CHECKING:
    from pkm.datasets.registry import Entry

TRAINER = Path(__file__).with_name("embedding_training.py")
EXTRA = "requirements-embeddings.txt"
CACHE_NAME = "embeddings"


@dataclass(frozen=True)
class Training:
    """The network and how it is trained.

    The fields and the trainer's code determine the embeddings.

    Attributes
    ----------
    epochs : int
        Passes over the images.
    penalty : float
        Weight of the mean squared embedding in the loss: the larger, the smaller and tighter the
        clusters.
    dimensions : int
        Width of the second-to-last layer.
    upper : float
        That layer is clipped to [0, upper].
    channels : (int, int)
        Of the two convolutions.
    hidden : int
        Width of the layer between the convolutions and the embedding.
    dropout : (float, float)
        After the convolutions and after the hidden layer.
    batch : int
    learning_rate : float
    seed : int
    threads : int
        Sums are split among that many threads, whatever the machine has. One is enough for so small
        a network, and does not wait for cores that others use.
    """

    epochs: int
    penalty: float
    dimensions: int = 40
    upper: float = 13.0
    channels: tuple[int, int] = (16, 32)
    hidden: int = 128
    dropout: tuple[float, float] = (0.25, 0.5)
    batch: int = 256
    learning_rate: float = 0.002
    seed: int = 0
    threads: int = 1


def key(entry: "Entry") -> str:
    """SHA-256 of what determines the embeddings: images, parser, recipe, the trainer's code."""
    assert entry.trained is not None
    declared = {
        "images": [file.sha256 for file in entry.files],
        "parser": parsers.source(entry.parse),
        "recipe": asdict(entry.trained),
        "trainer": code_of(TRAINER),
    }
    return hashlib.sha256(json.dumps(declared, sort_keys=True).encode()).hexdigest()


def stored_paths(entry: "Entry") -> tuple[Path, Path]:
    """Paths of the arrays and of the manifest in the cache."""
    stem = cache_folder() / CACHE_NAME / f"{entry.name}-{key(entry)[:16]}"
    return stem.with_suffix(".npz"), stem.with_suffix(".json")


def stored_sha256(entry: "Entry") -> str:
    """SHA-256 of the stored arrays as recorded when they were made; the arrays are not read.

    Raises
    ------
    DataUnavailable
        If nothing is stored; the message says how to train it.
    ChecksumMismatch
        If the manifest is damaged.
    """
    arrays, manifest = stored_paths(entry)
    if not (arrays.is_file() and manifest.is_file()):
        raise sources.DataUnavailable(training_instructions(entry))
    damaged = sources.ChecksumMismatch(f"{manifest} is damaged: {retraining_instructions(entry)}")
    try:
        recorded = json.loads(manifest.read_bytes())
        recipe = recorded["recipe"]
        sha256 = str(recorded["sha256"])
    except (ValueError, KeyError, TypeError):
        # Not JSON, or not a manifest.
        raise damaged from None
    if recipe != key(entry):
        raise damaged
    return sha256


def read_bytes(entry: "Entry") -> bytes:
    """Bytes of the stored arrays, checked against the manifest.

    Raises
    ------
    DataUnavailable
        If nothing is stored.
    ChecksumMismatch
        If the arrays or the manifest are damaged.
    """
    expected = stored_sha256(entry)
    arrays = stored_paths(entry)[0]
    content = arrays.read_bytes()
    actual = sources.sha256(content)
    if actual != expected:
        raise sources.ChecksumMismatch(
            f"{arrays} has SHA-256 {actual}, its manifest says {expected}: "
            f"{retraining_instructions(entry)}"
        )
    return content


def read(entry: "Entry") -> tuple[np.ndarray, np.ndarray]:
    """Points and labels of the stored arrays; see `read_bytes`."""
    with np.load(BytesIO(read_bytes(entry)), allow_pickle=False) as stored:
        return stored["points"].astype(np.float64), stored["labels"].astype(np.int64)


def training_instructions(entry: "Entry") -> str:
    """Say that a set has not been trained, and how to train it."""
    images = ", ".join(file.path for file in entry.files)
    return (
        f"data set {entry.name!r} is trained once from images ({images}) and is not in "
        f"{stored_paths(entry)[0].parent} yet: run 'make embeddings DATA=<mirror folder with the "
        "images>', which installs torch and trains for a few minutes, or 'pip install -r "
        f"{EXTRA}' and 'pkm data embeddings {entry.name}' (after 'pkm data fetch {entry.name}' "
        "where there is no mirror but network access). torch is needed for the training only"
    )


def retraining_instructions(entry: "Entry") -> str:
    """Say how to replace a damaged set."""
    return f"run 'make embeddings' (or 'pkm data embeddings {entry.name}') to train it again"


def train(
    entry: "Entry",
    mirror: str | PathLike | None = None,
    report: Callable[[str], None] | None = None,
) -> tuple[np.ndarray, np.ndarray]:
    """Train a set and store it.

    Parameters
    ----------
    entry : registry.Entry
        With a recipe in its field `trained`.
    mirror : path-like, optional
        Folder with the images.
    report : callable, optional
        Takes one line of text per epoch.

    Returns
    -------
    points : ndarray of float32, shape (n, dimensions)
    labels : ndarray of int64, shape (n,)
        As stored.

    Raises
    ------
    DataUnavailable
        If torch or the images are not available.
    """
    if importlib.util.find_spec("torch") is None:
        raise sources.DataUnavailable(
            f"data set {entry.name!r} needs torch for its training, and only for that: run 'make "
            f"embeddings', or 'pip install -r {EXTRA}'"
        )
    assert entry.trained is not None
    earlier = downloads.Downloads()
    copies = [downloads.obtain(file, entry.name, mirror, downloads=earlier) for file in entry.files]
    images, labels = entry.parse(*(copy.content for copy in copies))

    # Only the training needs torch.
    from pkm.datasets.embedding_training import train_and_embed

    points = train_and_embed(images, labels, entry.trained, report)
    store(entry, points, labels)
    return points, labels


def store(entry: "Entry", points: np.ndarray, labels: np.ndarray) -> None:
    """Write the arrays, then the manifest that confirms them: without it the set is not stored."""
    content = BytesIO()
    np.savez(
        content,
        points=np.asarray(points, dtype=np.float32),
        labels=np.asarray(labels, dtype=np.int64),
    )
    arrays, manifest = stored_paths(entry)
    manifest.unlink(missing_ok=True)
    atomic_write(arrays, content.getvalue())
    recorded = {
        "name": entry.name,
        "recipe": key(entry),
        "sha256": sources.sha256(content.getvalue()),
    }
    atomic_write(manifest, json.dumps(recorded, indent=2).encode() + b"\n")


def quality(points: np.ndarray, labels: np.ndarray, n_clusters: int) -> tuple[float, float]:
    """Accuracy by majority label and inertia of a k-means clustering with ten starts.

    Examples
    --------
    >>> quality(np.array([[0.0], [1.0], [10.0], [11.0]]), np.array([0, 0, 1, 1]), 2)
    (1.0, 1.0)
    """
    from sklearn.cluster import KMeans  # a second of imports

    kmeans = KMeans(n_clusters, n_init=10, random_state=0)
    kmeans.fit(np.asarray(points, dtype=np.float64))
    counts = np.zeros((n_clusters, int(labels.max()) + 1), dtype=np.int64)
    np.add.at(counts, (kmeans.labels_, labels), 1)
    accuracy = float(counts.max(axis=1).sum() / len(labels))
    return accuracy, float(kmeans.inertia_)
