"""Embeddings of images: trained once, kept in the cache, loaded as any other data set.

Training needs torch (`pkm.datasets.embedding_training`); this module does not. A stored
set is two files in the cache: the arrays, and a manifest with their SHA-256. Their
names have a hash of all that determines the training. Training differs in the last bits
between machines, so results are identified by the manifest, not by the recipe alone.
"""

import hashlib
import importlib.util
import json
from collections.abc import Callable
from dataclasses import asdict
from io import BytesIO
from os import PathLike
from pathlib import Path

import numpy as np

from pkm.datasets import downloads, parsers
from pkm.datasets.entry import Entry
from pkm.datasets.sources import ChecksumMismatch, DataUnavailable, sha256
from pkm.files import atomic_write, cache_folder
from pkm.source import read_code

TRAINER = Path(__file__).with_name("embedding_training.py")
EXTRA = "requirements-embeddings.txt"
CACHE_NAME = "embeddings"


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
    return hashlib.sha256(json.dumps(declared, sort_keys=True).encode()).hexdigest()


def locate(entry: Entry) -> tuple[Path, Path]:
    """Return the paths of the arrays and of the manifest in the cache."""
    stem = cache_folder() / CACHE_NAME / f"{entry.name}-{make_key(entry)[:16]}"
    return stem.with_suffix(".npz"), stem.with_suffix(".json")


def is_stored(entry: Entry) -> bool:
    """Tell whether the arrays and the manifest are in the cache, unchecked."""
    return all(path.is_file() for path in locate(entry))


def read_stored_sha256(entry: Entry) -> str:
    """Read the SHA-256 of the stored arrays from the manifest; the arrays are not read.

    Raises
    ------
    DataUnavailable
        If nothing is stored; the message says how to train it.
    ChecksumMismatch
        If the manifest is damaged.
    """
    arrays, manifest = locate(entry)
    if not is_stored(entry):
        images = ", ".join(file.path for file in entry.files)
        raise DataUnavailable(
            f"data set {entry.name!r} is trained once from images ({images}) and is "
            f"not in {arrays.parent} yet: run 'make embeddings DATA=<mirror folder "
            "with the images>', which installs torch and trains for a few minutes, or "
            f"'pip install -r {EXTRA}' and 'pkm data embeddings {entry.name}' (after "
            f"'pkm data fetch {entry.name}' where there is no mirror but network "
            "access). torch is needed for the training only"
        )
    try:
        recorded = json.loads(manifest.read_bytes())
        digest = str(recorded["sha256"])
        is_right = recorded["recipe"] == make_key(entry)
    except (ValueError, KeyError, TypeError):
        # Not JSON, or not a manifest.
        is_right = False
    if not is_right:
        raise ChecksumMismatch(f"{manifest} is damaged: {explain_retraining(entry)}")
    return digest


def read_bytes(entry: Entry) -> bytes:
    """Read the stored arrays as bytes, checked against the manifest.

    Raises
    ------
    DataUnavailable
        If nothing is stored.
    ChecksumMismatch
        If the arrays or the manifest are damaged.
    """
    expected = read_stored_sha256(entry)
    arrays, _ = locate(entry)
    content = arrays.read_bytes()
    actual = sha256(content)
    if actual != expected:
        raise ChecksumMismatch(
            f"{arrays} has SHA-256 {actual}, its manifest says {expected}: "
            f"{explain_retraining(entry)}"
        )
    return content


def read(entry: Entry) -> tuple[np.ndarray, np.ndarray]:
    """Read points and labels of the stored arrays; see `read_bytes`."""
    with np.load(BytesIO(read_bytes(entry)), allow_pickle=False) as arrays:
        return arrays["points"].astype(np.float64), arrays["labels"].astype(np.int64)


def explain_retraining(entry: Entry) -> str:
    """Say how to replace a damaged set."""
    return (
        f"run 'make embeddings' (or 'pkm data embeddings {entry.name}') to train it "
        "again"
    )


def train(
    entry: Entry,
    mirror: str | PathLike | None = None,
    report: Callable[[str], None] | None = None,
) -> tuple[np.ndarray, np.ndarray]:
    """Train a set and store it.

    Parameters
    ----------
    entry : Entry
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
        raise DataUnavailable(
            f"data set {entry.name!r} needs torch for its training, and only for that: "
            f"run 'make embeddings', or 'pip install -r {EXTRA}'"
        )
    assert entry.trained is not None
    copies = downloads.obtain_files(entry.files, entry.name, mirror)
    images, labels = entry.parse(*(copy.content for copy in copies))

    # Only the training needs torch.
    from pkm.datasets.embedding_training import train_and_embed

    points = train_and_embed(images, labels, entry.trained, report)
    store(entry, points, labels)
    return points, labels


def store(entry: Entry, points: np.ndarray, labels: np.ndarray) -> None:
    """Write the arrays, then the manifest, without which the set does not count."""
    stream = BytesIO()
    np.savez(
        stream,
        points=np.asarray(points, dtype=np.float32),
        labels=np.asarray(labels, dtype=np.int64),
    )
    content = stream.getvalue()
    arrays, manifest = locate(entry)
    manifest.unlink(missing_ok=True)
    atomic_write(arrays, content)
    recorded = {
        "name": entry.name,
        "recipe": make_key(entry),
        "sha256": sha256(content),
    }
    atomic_write(manifest, json.dumps(recorded, indent=2).encode() + b"\n")


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

    kmeans = KMeans(n_clusters, n_init=10, random_state=0)
    kmeans.fit(np.asarray(points, dtype=np.float64))
    counts = np.zeros((n_clusters, int(labels.max()) + 1), dtype=np.int64)
    np.add.at(counts, (kmeans.labels_, labels), 1)
    accuracy = float(counts.max(axis=1).sum() / len(labels))
    return accuracy, float(kmeans.inertia_)
