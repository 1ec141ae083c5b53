"""Embeddings of images: trained once, kept in the cache, loaded like any other data set.

Training needs torch (`pkm.datasets.embedding_training`); everything here does without. A stored set is two files in the
cache: the arrays, under a name with a hash of all that decides what is trained, and a note with the arrays' SHA-256.
Training is not the same to the last bit on every machine, so that the note, and not the recipe alone, says which
points a result belongs to.
"""

import hashlib
import importlib.util
import json
from dataclasses import asdict, dataclass
from io import BytesIO
from pathlib import Path

import numpy as np

from pkm.datasets import parsers, sources
from pkm.files import atomic_write, cache_folder
from pkm.source import code_of

TRAINER = Path(__file__).with_name("embedding_training.py")
EXTRA = "requirements-embeddings.txt"
CACHE_NAME = "embeddings"


@dataclass(frozen=True)
class Training:
    """What the network is and how it is trained; its fields and the trainer's source determine the embeddings.

    Attributes
    ----------
    epochs : int
        Passes over the images.
    penalty : float
        Weight of the mean squared embedding in the loss: the larger, the smaller and tighter the clusters.
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
        Sums are split among that many threads, whatever the machine has. One is enough for so small a network, and does
        not wait for cores that others use.
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


def key(entry):
    """SHA-256 of all that decides what is trained: the images, their parser, the recipe, the trainer's code."""
    declared = {
        "images": [file.sha256 for file in entry.files],
        "parser": parsers.source(entry.parse),
        "recipe": asdict(entry.trained),
        "trainer": code_of(TRAINER),
    }
    return hashlib.sha256(json.dumps(declared, sort_keys=True).encode()).hexdigest()


def places(entry):
    """Paths of the arrays and of the note in the cache."""
    stem = cache_folder() / CACHE_NAME / f"{entry.name}-{key(entry)[:16]}"
    return stem.with_suffix(".npz"), stem.with_suffix(".json")


def stored_sha256(entry):
    """SHA-256 of the stored arrays as noted when they were made; the arrays are not read.

    Raises
    ------
    DataUnavailable
        If nothing is stored; the message says how to train it.
    ChecksumMismatch
        If the note is damaged.
    """
    arrays, note = places(entry)
    if not (arrays.is_file() and note.is_file()):
        raise sources.DataUnavailable(missing(entry))
    try:
        noted = json.loads(note.read_bytes())
        if noted["recipe"] == key(entry):
            return str(noted["sha256"])
    except (ValueError, KeyError, TypeError):
        # Not JSON, or not a note: said below, for both.
        noted = None
    raise sources.ChecksumMismatch(f"{note} is damaged: {mend(entry)}")


def read_bytes(entry):
    """Bytes of the stored arrays, checked against the note.

    Raises
    ------
    DataUnavailable
        If nothing is stored.
    ChecksumMismatch
        If the arrays or the note are damaged.
    """
    expected = stored_sha256(entry)
    arrays = places(entry)[0]
    content = arrays.read_bytes()
    got = sources.sha256(content)
    if got != expected:
        raise sources.ChecksumMismatch(
            f"{arrays} has SHA-256 {got}, its note says {expected}: {mend(entry)}"
        )
    return content


def read(entry):
    """Points and labels of the stored arrays; see `read_bytes`."""
    with np.load(BytesIO(read_bytes(entry)), allow_pickle=False) as stored:
        return stored["points"].astype(np.float64), stored["labels"].astype(np.int64)


def missing(entry):
    """Say that a set has not been trained, and how to get it."""
    images = ", ".join(file.path for file in entry.files)
    return (
        f"data set {entry.name!r} is trained once from images ({images}) and is not in {places(entry)[0].parent} yet: "
        f"run 'make embeddings DATA=<mirror folder with the images>', which installs torch and trains for a few "
        f"minutes, or 'pip install -r {EXTRA}' and 'pkm data embeddings {entry.name}' "
        f"(after 'pkm data fetch {entry.name}' where there is no mirror but network access). torch is needed "
        "for the training only"
    )


def mend(entry):
    """Say how to replace a damaged set."""
    return f"run 'make embeddings' (or 'pkm data embeddings {entry.name}') to train it anew"


def train(entry, mirror=None, report=None):
    """Train one set and store it.

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
        If torch or the images are not at hand.
    """
    if importlib.util.find_spec("torch") is None:
        raise sources.DataUnavailable(
            f"data set {entry.name!r} needs torch for its training, and only for that: run 'make embeddings', or "
            f"'pip install -r {EXTRA}'"
        )
    found = [sources.obtain(file, entry.name, mirror) for file in entry.files]
    images, labels = entry.parse(*(each.content for each in found))
    # Imported here: only the training needs torch.
    from pkm.datasets.embedding_training import train_and_embed

    points = train_and_embed(images, labels, entry.trained, report)
    store(entry, points, labels)
    return points, labels


def store(entry, points, labels):
    """Write the arrays, then the note that vouches for them: a set without a note is no set."""
    content = BytesIO()
    np.savez(
        content,
        points=np.asarray(points, dtype=np.float32),
        labels=np.asarray(labels, dtype=np.int64),
    )
    arrays, note = places(entry)
    note.unlink(missing_ok=True)
    atomic_write(arrays, content.getvalue())
    noted = {"name": entry.name, "recipe": key(entry), "sha256": sources.sha256(content.getvalue())}
    atomic_write(note, json.dumps(noted, indent=2).encode() + b"\n")


def quality(points, labels, n_clusters):
    """Accuracy by majority label and inertia of a k-means clustering with ten starts.

    Examples
    --------
    >>> quality(np.array([[0.0], [1.0], [10.0], [11.0]]), np.array([0, 0, 1, 1]), 2)
    (1.0, 1.0)
    """
    # Imported here: only a look at fresh embeddings needs it.
    from sklearn.cluster import KMeans

    found = KMeans(n_clusters, n_init=10, random_state=0).fit(np.asarray(points, dtype=np.float64))
    counts = np.zeros((n_clusters, int(labels.max()) + 1), dtype=np.int64)
    np.add.at(counts, (found.labels_, labels), 1)
    return float(counts.max(axis=1).sum() / len(labels)), float(found.inertia_)
