"""k-means on synthetic records of a private model of the joint distribution.

The methods select contingency tables of columns, measure them with noise, and estimate
a model from them. Here are their schedule, and the releases of both kinds: selections
and measurements.
"""

import math
from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np

from pkm.methods.base import PrivateKMeans
from pkm.methods.constraints import Integer
from pkm.methods.schedule import Schedule, plan_release
from pkm.methods.weighted_kmeans import weighted_kmeans
from pkm.privacy import (
    SCALE,
    Charge,
    Curator,
    Exponential,
    Gaussian,
    Marginals,
    PrivacyClaim,
    Query,
    gaussian_mu,
    largest_multiple,
    selection_epsilon,
    snap_centers,
)

MAX_RECORDS = 20_000  # synthetic records


@dataclass(frozen=True)
class TablesSchedule(Schedule):
    """Counts of single columns, then rounds of choices and of the chosen tables.

    A choice is a selection of a table by the exponential mechanism.

    Attributes
    ----------
    choice : type
        Query of a choice.
    n_rounds : int
    n_choices : int
        Number of choices in each round.
    columns_mu : float
        Cost of all single columns together.
    choice_epsilon : float
        Cost of each choice.
    table_mu : float
        Cost of the tables of a round together.
    """

    choice: type[Query]
    n_rounds: int
    n_choices: int
    columns_mu: float
    choice_epsilon: float
    table_mu: float

    @property
    def releases(self) -> Sequence[Charge]:
        """The columns, then round by round the choices and the tables."""
        columns = plan_release(Marginals, Gaussian, mu=self.columns_mu)
        choice = plan_release(self.choice, Exponential, epsilon=self.choice_epsilon)
        tables = plan_release(Marginals, Gaussian, mu=self.table_mu)
        return [columns, *[*[choice] * self.n_choices, tables] * self.n_rounds]


class SyntheticKMeans(PrivateKMeans):
    """k-means on records that are drawn from a private model of all columns.

    Clustering the records costs nothing more.

    Attributes
    ----------
    max_features : int
        Largest number of columns.
    alternatives : str
        Methods for more columns, for the error message.
    choice : type
        Query that chooses a table of several columns.
    shares : tuple of float
        Shares of mu squared: of the single columns, all choices, and all chosen tables.
    """

    claims = {"sound": PrivacyClaim("approximate")}
    constraints = {"n_init": Integer(1)}
    supports_chunks = True
    batched = False  # each replicate has a model of its own
    max_features: ClassVar[int]
    alternatives: ClassVar[str]
    choice: ClassVar[type[Query]]
    shares: ClassVar[tuple[float, float, float]]

    epsilon: float = 1.0
    delta: float | Literal["auto"] = "auto"
    n_init: int = 10

    @abstractmethod
    def count_rounds(self, n_features: int) -> tuple[int, int]:
        """Number of rounds for two or more columns, and of choices in each round."""

    @abstractmethod
    def draw_records(
        self,
        curator: Curator,
        schedule: TablesSchedule,
        n_records: int,
        generator: np.random.Generator,
    ) -> np.ndarray:
        """Release a model, and draw records (n_records, d) from it, in grid steps."""

    def schedule(
        self,
        n_points: int,
        n_features: int,
    ) -> TablesSchedule:
        """All releases; see :meth:`PrivateKMeans.schedule`.

        Mu squared is divided by ``shares``. Then all costs are multiplied by the
        largest factor within the budget, because choices are charged by their epsilon.
        """
        delta = self.resolved_delta(n_points)
        mu = gaussian_mu(self.epsilon, delta)
        # A single column has no table beside its own counts.
        if n_features == 1:
            return TablesSchedule(self.choice, 0, 0, mu, 0.0, 0.0)
        # Divide mu squared evenly over the choices, and over the rounds of tables.
        n_rounds, n_choices = self.count_rounds(n_features)
        columns, choices, tables = self.shares
        columns_mu = math.sqrt(columns) * mu
        choice_mu = math.sqrt(choices / (n_rounds * n_choices)) * mu
        table_mu = math.sqrt(tables / n_rounds) * mu

        # Raise all costs until they spend the budget, composed exactly.
        choice_epsilon = selection_epsilon(choice_mu)
        factor = largest_multiple(
            [columns_mu, *[table_mu] * n_rounds],
            [choice_epsilon] * (n_rounds * n_choices),
            self.epsilon,
            delta,
        )
        return TablesSchedule(
            self.choice,
            n_rounds,
            n_choices,
            columns_mu=factor * columns_mu,
            choice_epsilon=factor * choice_epsilon,
            table_mu=factor * table_mu,
        )

    def check_features(self, n_features: int) -> None:
        """Refuse more than ``max_features`` columns."""
        if n_features > self.max_features:
            raise ValueError(
                f"d={n_features} features are too many: {type(self).__name__} compares "
                f"tables of at most {self.max_features}; take a method for more "
                f"features, such as {self.alternatives}"
            )

    def cluster(self, curator: Curator) -> tuple[np.ndarray, int]:
        """Draw synthetic records, cluster them; see :meth:`PrivateKMeans.cluster`."""
        generator = curator.public_rng()
        n_records = min(curator.n_points, MAX_RECORDS)
        schedule = self.schedule(curator.n_points, curator.n_features)
        records = self.draw_records(curator, schedule, n_records, generator)
        # k-means on the synthetic records: post-processing.
        weights = np.ones(len(records))
        k = self.n_clusters
        centers = weighted_kmeans(records, weights, k, self.n_init, generator)
        return snap_centers(centers)[None], 1


def select_table(
    curator: Curator,
    query: Query,
    epsilon: float,
) -> int:
    """Select one of a query's tables; return its index."""
    answer = curator.release(query, choices=Exponential(epsilon))
    return int(answer["choices"][0, 0])


def measure_tables(
    curator: Curator,
    tables: Sequence[tuple[int, ...]],
    edges: Sequence[np.ndarray],
    stddev: float,
) -> list[np.ndarray]:
    """Release the counts of tables of columns, with noise.

    Parameters
    ----------
    curator : Curator
    tables : sequence of tuple of int
        Columns of each table.
    edges : sequence of ndarray of int64
        Inner edges of the intervals of every column, in grid steps.
    stddev : float
        Standard deviation of the noise of a count, in records.

    Returns
    -------
    list of ndarray, float64
        In records.
    """
    query = Marginals(tables, edges)
    answer = curator.release(query, counts=Gaussian(stddev * SCALE))
    return query.split(answer["counts"][0] / SCALE)
