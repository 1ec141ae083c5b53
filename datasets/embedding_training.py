"""Train a small network on labeled images and return its second-to-last layer.

The only module that needs torch. Its code counts for the identity of the embeddings
(`pkm.datasets.embeddings.make_key`): a change here means training them again.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import numpy as np
import torch
from torch import nn
from torch.nn import functional

from pkm.datasets.entry import Training

SIDE = 28
KERNEL = 5
EMBEDDING_BATCH = 1000


class Network(nn.Module):
    """Two convolutions of stride 2, a hidden, a clipped embedding and a class layer."""

    def __init__(self, recipe: Training, n_classes: int) -> None:
        super().__init__()
        first, second = recipe.channels
        side = (SIDE + 3) // 4
        self.body = nn.Sequential(
            nn.Conv2d(1, first, KERNEL, stride=2, padding=KERNEL // 2),
            nn.ReLU(),
            nn.Conv2d(first, second, KERNEL, stride=2, padding=KERNEL // 2),
            nn.ReLU(),
            nn.Flatten(),
            nn.Dropout(recipe.dropout[0]),
            nn.Linear(second * side * side, recipe.hidden),
            nn.ReLU(),
            nn.Dropout(recipe.dropout[1]),
            nn.Linear(recipe.hidden, recipe.dimensions),
            nn.Hardtanh(0.0, recipe.upper),
        )
        self.classes = nn.Linear(recipe.dimensions, n_classes)


@contextmanager
def reproducible(recipe: Training) -> Iterator[None]:
    """Fix random numbers, threads and algorithms, and restore them afterwards."""
    threads = torch.get_num_threads()
    deterministic = torch.are_deterministic_algorithms_enabled()
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(recipe.seed)
        torch.set_num_threads(recipe.threads)
        torch.use_deterministic_algorithms(True)
        try:
            yield
        finally:
            torch.use_deterministic_algorithms(deterministic)
            torch.set_num_threads(threads)


def train_and_embed(
    images: np.ndarray,
    labels: np.ndarray,
    recipe: Training,
    report: Callable[[str], None] | None = None,
) -> np.ndarray:
    """Train on images and return their embeddings.

    The loss is the cross-entropy of the classes plus `recipe.penalty` times the mean
    squared embedding. Without the penalty the embeddings grow as long as the training
    goes on.

    Parameters
    ----------
    images : ndarray of shape (n, 784)
        Bytes as numbers.
    labels : ndarray of int64, shape (n,)
    recipe : Training
    report : callable, optional
        Takes one line of text per epoch.

    Returns
    -------
    ndarray of float32, shape (n, recipe.dimensions)
        In [0, recipe.upper], in the order of the images.
    """
    pixels = torch.from_numpy((np.asarray(images) / 255).astype(np.float32))
    pixels = pixels.reshape(-1, 1, SIDE, SIDE)
    classes = torch.from_numpy(np.asarray(labels, dtype=np.int64))
    with reproducible(recipe):
        network = Network(recipe, int(classes.max()) + 1)
        optimizer = torch.optim.Adam(network.parameters(), lr=recipe.learning_rate)
        for epoch in range(recipe.epochs):
            n_correct = run_epoch(network, optimizer, pixels, classes, recipe)
            if report:
                report(
                    f"epoch {epoch + 1} of {recipe.epochs}: training accuracy "
                    f"{n_correct / len(classes):.4f}"
                )
        return embed(network, pixels)


def run_epoch(
    network: Network,
    optimizer: torch.optim.Optimizer,
    pixels: torch.Tensor,
    classes: torch.Tensor,
    recipe: Training,
) -> int:
    """Pass over all images in random order; count those that are classified well."""
    network.train()
    n_correct = 0
    for batch in torch.randperm(len(pixels)).split(recipe.batch):
        embedding = network.body(pixels[batch])
        scores = network.classes(embedding)
        loss = functional.cross_entropy(scores, classes[batch])
        loss = loss + recipe.penalty * embedding.square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        n_correct += int((scores.argmax(dim=1) == classes[batch]).sum())
    return n_correct


def embed(network: Network, pixels: torch.Tensor) -> np.ndarray:
    """Embed all images, without dropout."""
    network.eval()
    with torch.no_grad():
        batches = [network.body(batch) for batch in pixels.split(EMBEDDING_BATCH)]
        return torch.cat(batches).numpy()
