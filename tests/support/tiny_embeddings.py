"""A small set of embeddings, and its noisy images of two classes."""

import gzip

import numpy as np

from pkm.datasets import parsers, registry
from pkm.datasets.entry import Training
from pkm.datasets.sources import File
from pkm.files import sha256

RECIPE = Training(epochs=8, penalty=0.001, dimensions=4, channels=(4, 4), hidden=16, batch=20)


NAME = "tiny-embeddings"


PAPER_SETS = ("mnist-embeddings", "fashion-embeddings")


def images(n=120):
    """Noisy images of two classes, bright on the left or on the right, in the published format."""
    generator = np.random.default_rng(5)
    labels = generator.integers(0, 2, n).astype(np.uint8)
    pixels = generator.integers(0, 60, (n, 28, 28)).astype(np.uint8)
    for image, label in zip(pixels, labels, strict=True):
        left = 14 * label
        image[4:24, left : left + 14] += 150
    packed_images = gzip.compress(bytes(16) + pixels.tobytes(), mtime=0)
    packed_labels = gzip.compress(bytes(8) + labels.tobytes(), mtime=0)
    return packed_images, packed_labels


PACKED = images()


def tiny_entry(recipe=RECIPE, packed=PACKED):
    files = tuple(
        File(f"tiny/{part}.gz", sha256(content), urls=(f"http://example.org/{part}.gz",))
        for part, content in zip(("images", "labels"), packed, strict=True)
    )
    d = recipe.dimensions
    bounds = ((0.0,) * d, (recipe.upper,) * d)
    return registry.Entry(
        NAME, 120, d, 2, files, parsers.mnist, *bounds, ("clipped",) * d, "", "made", trained=recipe
    )
