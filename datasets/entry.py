"""Metadata of a published data set, known without reading it."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from pkm.datasets.dataset import check_domain
from pkm.datasets.sources import File


@dataclass(frozen=True)
class Training:
    """A network whose second-to-last layer embeds images, and how it is trained.

    The fields and the trainer's code determine the embeddings.

    Attributes
    ----------
    epochs : int
        Passes over the images.
    penalty : float
        Weight of the mean squared embedding in the loss: the larger, the smaller and
        tighter the clusters.
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
        Number of threads, fixed because it changes rounding errors of sums.
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


@dataclass(frozen=True)
class Entry:
    """An entry of the registry.

    Attributes
    ----------
    name : str
    n, d, n_clusters : int
        Shape and default number of clusters; the shape is checked when the data are
        read.
    files : tuple of File
        In the order in which the parser takes them.
    parse : callable
        From the files' published bytes to points and labels, and clients and persons
        if there are any (`pkm.datasets.parsers`).
    lower, upper : tuple of float
        Public bounds per column.
    reasons : tuple of str
        Why these bounds are public, per column.
    license, citation : str
    title : str
        What the set is, in one line.
    columns : tuple of str
        Names of the columns; empty if they have none.
    person : str or None
        Name under which `groups` asks for the person of each point; None if a point is
        a person.
    bundled_sha256 : str or None
        If the set comes with the code: `pkm.datasets.bundled.digest` of its content.
    common_range : (float, float) or None
        Bounds that a paper uses for all columns alike, if they differ from the domain;
        see `pkm.datasets.Dataset`.
    common_range_is_private : bool
        Whether that range was computed from the points.
    trained : Training or None
        If the points are embeddings: how the network is trained on the files' images.
        Then n, d and the domain are those of the embeddings, and the set is bundled.
    prescaled : bool
        Whether the source or the parser has scaled the points by bounds computed from
        them; see `pkm.datasets.Dataset`.
    is_transform_fitted : bool
        Whether the points are the output of a map fitted to these very records; see
        `pkm.datasets.Dataset`.
    restricted : bool
        Whether the records are somebody's own, or given on request only. Then the
        fingerprint is keyed (`pkm.files.keyed_digest`), and results are for the owner
        of the files alone.
    """

    name: str
    n: int
    d: int
    n_clusters: int
    files: tuple[File, ...]
    parse: Callable
    lower: tuple[float, ...]
    upper: tuple[float, ...]
    reasons: tuple[str, ...]
    license: str
    citation: str
    title: str = ""
    columns: tuple[str, ...] = ()
    person: str | None = None
    bundled_sha256: str | None = None
    common_range: tuple[float, float] | None = None
    common_range_is_private: bool = False
    trained: Training | None = None
    prescaled: bool = False
    is_transform_fitted: bool = False
    restricted: bool = False

    def __post_init__(self) -> None:
        if not len(self.lower) == len(self.upper) == len(self.reasons) == self.d:
            raise ValueError(
                f"{self.name}: bounds of {len(self.lower)} and {len(self.upper)} "
                f"columns with {len(self.reasons)} reasons, d={self.d}"
            )
        check_domain((self.lower, self.upper), self.d, self.name)

    @property
    def reason(self) -> str:
        """Why the bounds are public, each reason once."""
        return "; ".join(dict.fromkeys(self.reasons))

    def domain(self) -> np.ndarray:
        """Return the public bounds, (2, d) float64."""
        return np.array([self.lower, self.upper], dtype=np.float64)
