"""Graphical models of discrete columns, fitted to noisy tables by exact inference.

A model is a product of one factor for each measured table. Belief propagation on a
junction tree gives its expected tables, and mirror descent moves the factors until
these are near the noisy tables. All of it is post-processing of released tables. After
McKenna, Sheldon and Miklau, "Graphical-model based estimation and inference for
differential privacy" (2019): their Private-PGM.
"""

import itertools
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np

from pkm.methods.synthetic.triangulation import min_fill_cliques

#: Numbers of the columns of a table or a clique, increasing.
Columns = tuple[int, ...]

# Line search of mirror descent: halvings of a step, and the growth of the next one.
MAX_HALVINGS = 60
GROWTH = 1.2


@dataclass(frozen=True)
class Measurement:
    """A noisy table.

    Attributes
    ----------
    columns : tuple of int
        Increasing.
    counts : ndarray, float64
        One axis for each column.
    stddev : float or ndarray
        Standard deviation of the noise in each cell.
    """

    columns: Columns
    counts: np.ndarray
    stddev: float | np.ndarray


@dataclass(frozen=True)
class JunctionTree:
    """Junction tree: the cliques that contain a column form a connected subtree.

    Attributes
    ----------
    cliques : tuple of tuple of int
        Columns of each clique, increasing; a clique comes after its parent.
    parents : tuple of int
        Index of the parent of each clique; -1 for the first.
    shape : tuple of int
        Number of values of every column.
    """

    cliques: tuple[Columns, ...]
    parents: tuple[int, ...]
    shape: tuple[int, ...]

    @property
    def n_cells(self) -> int:
        """Number of cells of all cliques together."""
        return sum(math.prod(self.shape[h] for h in clique) for clique in self.cliques)

    @cached_property
    def separators(self) -> tuple[Columns, ...]:
        """Columns in common of each clique and its parent; none for the first."""
        return tuple(
            () if parent < 0 else tuple(h for h in clique if h in self.cliques[parent])
            for clique, parent in zip(self.cliques, self.parents, strict=True)
        )

    def find_clique(self, columns: Columns) -> int | None:
        """Index of the first clique that contains columns, or None."""
        for i, clique in enumerate(self.cliques):
            if set(columns) <= set(clique):
                return i
        return None


def join_columns(n_columns: int, tables: Iterable[Columns]) -> np.ndarray:
    """Graph of some tables: two columns are joined if a table contains both.

    Parameters
    ----------
    n_columns : int
    tables : iterable of tuple of int
        Columns of each table.

    Returns
    -------
    ndarray of shape (n_columns, n_columns), bool
        Every column is joined to itself.

    Examples
    --------
    >>> join_columns(3, [(0, 1), (1, 2)]).astype(int).tolist()
    [[1, 1, 0], [1, 1, 1], [0, 1, 1]]
    """
    joined = np.eye(n_columns, dtype=bool)
    for columns in tables:
        joined[np.ix_(columns, columns)] = True
    return joined


def junction_tree(shape: Sequence[int], tables: Iterable[Columns]) -> JunctionTree:
    """Junction tree of some tables, from elimination of columns in min-fill order.

    Parameters
    ----------
    shape : sequence of int
        Number of values of every column.
    tables : iterable of tuple of int
        Columns of each table, without repetition.

    Returns
    -------
    JunctionTree
        Every table is in a clique, and so is every column.

    Examples
    --------
    A cycle of four columns gets a chord:

    >>> tree = junction_tree((2, 2, 2, 2), [(0, 1), (1, 2), (2, 3), (0, 3)])
    >>> tree.cliques, tree.parents
    (((0, 1, 3), (1, 2, 3)), (-1, 0))
    """
    joined = join_columns(len(shape), tables)
    masks = min_fill_cliques(joined, np.array(shape, np.float64))
    cliques = sorted(tuple(np.flatnonzero(clique).tolist()) for clique in masks)

    # Prim's algorithm: a maximum spanning tree, by the size of the separators, is a
    # junction tree.
    ordered = [cliques.pop(0)]
    parents = [-1]
    while cliques:
        candidates = itertools.product(range(len(cliques)), range(len(ordered)))
        i, parent = max(
            candidates,
            key=lambda pair: len(set(cliques[pair[0]]) & set(ordered[pair[1]])),
        )
        ordered.append(cliques.pop(i))
        parents.append(parent)
    return JunctionTree(tuple(ordered), tuple(parents), tuple(shape))


@dataclass(frozen=True, eq=False)
class GraphicalModel:
    """Expected counts of records under a product of factors.

    Attributes
    ----------
    tree : JunctionTree
    factors : dict of tuple of int to ndarray
        Logarithm of the factor of each table, by its columns.
    tables : list of ndarray, float64
        Expected counts of each clique of the tree.
    total : float
        Number of records.
    """

    tree: JunctionTree
    factors: Mapping[Columns, np.ndarray]
    tables: list[np.ndarray]
    total: float

    def marginal(self, columns: Columns) -> np.ndarray:
        """Expected counts of a table of any columns, which increase.

        Returns
        -------
        ndarray, float64
            One axis for each column.
        """
        tree = self.tree
        i = tree.find_clique(columns)
        if i is not None:
            return _sum_out(self.tables[i], tree.cliques[i], columns)

        # Prune leaves that contain no wanted column outside of their separator.
        wanted = set(columns)
        kept = set(range(len(tree.cliques)))
        for i in reversed(range(len(tree.cliques))):
            held = wanted & set(tree.cliques[i])
            is_leaf = all(tree.parents[j] != i for j in kept)
            if is_leaf and held <= set(tree.separators[i]):
                kept.remove(i)

        # Prune the root likewise while it has a single child.
        root = min(kept)
        while True:
            children = [j for j in kept if tree.parents[j] == root]
            held = wanted & set(tree.cliques[root])
            if len(children) != 1 or not held <= set(tree.separators[children[0]]):
                break
            kept.remove(root)
            root = children[0]

        # Variable elimination from the leaves to the root: multiply the conditional
        # table of a clique, given its separator, by the messages of its children. Sum
        # over the columns that are neither wanted nor in the separator.
        messages: dict[int, tuple[np.ndarray, Columns]] = {}
        for i in sorted(kept, reverse=True):
            children = [j for j in messages if tree.parents[j] == i]
            table = self.tables[i] if i == root else self._conditional(i)
            above = wanted if i == root else wanted.union(tree.separators[i])
            needed = above.union(*(tree.separators[j] for j in children))
            axes = tuple(h for h in tree.cliques[i] if h in needed)
            table = _sum_out(table, tree.cliques[i], axes)
            for j in children:
                message, message_axes = messages[j]
                together = tuple(sorted({*axes, *message_axes}))
                table = np.einsum(table, axes, message, message_axes, together)
                axes = together
            kept_axes = tuple(h for h in axes if h in above)
            messages[i] = (_sum_out(table, axes, kept_axes), kept_axes)
        return messages[root][0]

    def draw(
        self,
        n_records: int,
        generator: np.random.Generator,
    ) -> np.ndarray:
        """Draw records from the model.

        Returns
        -------
        ndarray of shape (n_records, d), int64
            Values of every column.
        """
        tree = self.tree
        records = np.zeros((n_records, len(tree.shape)), np.int64)
        for i, clique in enumerate(tree.cliques):
            # Ancestral sampling: the new columns of a clique, given its separator.
            shared = tree.separators[i]
            new = tuple(h for h in clique if h not in shared)
            sizes = [tree.shape[h] for h in shared]
            new_sizes = [tree.shape[h] for h in new]
            order = [clique.index(h) for h in (*shared, *new)]
            weights = self.tables[i].transpose(order)
            weights = weights.reshape(math.prod(sizes), math.prod(new_sizes))
            rows = np.zeros(n_records, np.int64)
            if shared:
                values = tuple(records[:, h] for h in shared)
                rows = np.ravel_multi_index(values, sizes)
            drawn = _draw_rows(weights, rows, generator)
            for h, values in zip(new, np.unravel_index(drawn, new_sizes), strict=True):
                records[:, h] = values
        return records

    def _conditional(self, i: int) -> np.ndarray:
        """Table of a clique given its separator; 0 where that has probability 0."""
        table = self.tables[i]
        axes = _dropped_axes(self.tree.cliques[i], self.tree.separators[i])
        totals = table.sum(axis=axes, keepdims=True)
        return np.divide(table, totals, out=np.zeros_like(table), where=totals > 0)


def build_model(
    tree: JunctionTree,
    factors: Mapping[Columns, np.ndarray],
    total: float,
) -> GraphicalModel:
    """Compute the expected tables of all cliques by belief propagation.

    Parameters
    ----------
    tree : JunctionTree
    factors : dict of tuple of int to ndarray
        Logarithm of the factor of each table; each must be in a clique of the tree.
    total : float
        Number of records.

    Returns
    -------
    GraphicalModel

    Examples
    --------
    >>> tree = junction_tree((2, 3), [(0,), (1,)])
    >>> model = build_model(tree, {(0,): np.log([1.0, 3.0])}, 24.0)
    >>> model.marginal((0, 1)).round(6).tolist()
    [[2.0, 2.0, 2.0], [6.0, 6.0, 6.0]]
    """
    # Logarithms of the products of the factors in each clique.
    beliefs = [np.zeros([tree.shape[h] for h in clique]) for clique in tree.cliques]
    for columns, factor in factors.items():
        i = tree.find_clique(columns)
        if i is None:
            raise ValueError(
                f"columns={columns} of a factor must be in a clique: {tree.cliques}"
            )
        beliefs[i] += _expand(factor, columns, tree.cliques[i])

    # Collect: messages from the leaves to the root, the first clique.
    upward = {}
    for i in reversed(range(1, len(beliefs))):
        upward[i] = _log_sum_out(beliefs[i], tree.cliques[i], tree.separators[i])
        parent = tree.parents[i]
        beliefs[parent] += _expand(upward[i], tree.separators[i], tree.cliques[parent])
    log_total = float(_log_sum_out(beliefs[0], tree.cliques[0], ()))

    # Distribute: messages from the root to the leaves.
    for i in range(1, len(beliefs)):
        parent = tree.parents[i]
        downward = _log_sum_out(
            beliefs[parent], tree.cliques[parent], tree.separators[i]
        )
        beliefs[i] += _expand(downward - upward[i], tree.separators[i], tree.cliques[i])

    # Normalize the beliefs to the number of records.
    tables = [total * np.exp(belief - log_total) for belief in beliefs]
    return GraphicalModel(tree, factors, tables, total)


def fit_model(
    shape: Sequence[int],
    total: float,
    measurements: Sequence[Measurement],
    start: Mapping[Columns, np.ndarray] | None = None,
    n_steps: int = 1000,
    tolerance: float = 1e-6,
) -> GraphicalModel:
    """Fit a model to noisy tables by entropic mirror descent.

    Parameters
    ----------
    shape : sequence of int
        Number of values of every column.
    total : float
        Number of records, public.
    measurements : sequence of Measurement
    start : dict of tuple of int to ndarray, optional
        Logarithms of factors to start from. Default: those of the uniform distribution.
    n_steps : int, default=1000
        At most.
    tolerance : float, default=1e-6
        Smallest relative decrease of the loss in a step; a smaller one is the last.

    Returns
    -------
    GraphicalModel
        With one factor for each set of measured columns. The loss is convex in the
        tables, so that enough steps reach its minimum. Of all distributions with that
        loss the limit is the one of largest entropy, if the start is uniform.

    Notes
    -----
    Private-PGM, Algorithm 1: a step multiplies the distribution by the exponential of
    the negative gradient. By backtracking, the step size is halved until the loss falls
    by half of the decrease that the gradient predicts. That is so at the latest where
    the step size times the total times the sum of the precisions is at most 1.

    Examples
    --------
    >>> table = Measurement((0,), np.array([3.0, 1.0]), 1.0)
    >>> fit_model((2, 2), 4.0, [table]).marginal((0, 1)).round(2).tolist()
    [[1.5, 1.5], [0.5, 0.5]]
    """
    tree = junction_tree(shape, [m.columns for m in measurements])
    factors = {m.columns: np.zeros([shape[h] for h in m.columns]) for m in measurements}
    factors.update(start or {})
    fit = evaluate_loss(build_model(tree, factors, total), measurements)
    precision = sum(float(np.max(np.asarray(m.stddev) ** -2.0)) for m in measurements)

    step_size = 1 / precision
    for _ in range(n_steps):
        # Mirror descent step, with backtracking: at least half of the predicted
        # decrease.
        for _ in range(MAX_HALVINGS):
            moved = {
                columns: factor - step_size * fit.gradients[columns]
                for columns, factor in fit.model.factors.items()
            }
            candidate = evaluate_loss(build_model(tree, moved, total), measurements)
            decrease = fit.loss - candidate.loss
            predicted = 0.0
            for columns, gradient in fit.gradients.items():
                change = fit.expected[columns] - candidate.expected[columns]
                predicted += float((gradient * change).sum())
            if decrease >= predicted / 2:
                break
            step_size /= 2
        else:
            break  # a smaller decrease than rounding errors

        # Accept the step; stop where the loss hardly fell.
        fit = candidate
        step_size *= GROWTH
        if decrease <= tolerance * fit.loss:
            break
    return fit.model


class Evaluation(NamedTuple):
    """Loss of a model on noisy tables, and its gradient.

    Attributes
    ----------
    model : GraphicalModel
    expected : dict of tuple of int to ndarray
        Its tables of each set of measured columns.
    loss : float
        Half of the squared differences, in standard deviations of the noise.
    gradients : dict of tuple of int to ndarray
        Gradient of the loss with respect to each expected table.
    """

    model: GraphicalModel
    expected: dict[Columns, np.ndarray]
    loss: float
    gradients: dict[Columns, np.ndarray]


def evaluate_loss(
    model: GraphicalModel, measurements: Sequence[Measurement]
) -> Evaluation:
    """Compute the loss of a model on noisy tables."""
    expected = {m.columns: model.marginal(m.columns) for m in measurements}
    loss = 0.0
    gradients: dict[Columns, np.ndarray] = {}
    for m in measurements:
        # Residuals in standard deviations of the noise.
        residual = (expected[m.columns] - m.counts) / m.stddev
        loss += 0.5 * float(np.vdot(residual, residual))
        gradient = residual / m.stddev
        gradients[m.columns] = gradients.get(m.columns, 0.0) + gradient
    return Evaluation(model, expected, loss, gradients)


def _dropped_axes(columns: Columns, kept: Columns) -> tuple[int, ...]:
    """Axes of the columns of a table that are not kept."""
    return tuple(a for a, h in enumerate(columns) if h not in kept)


def _sum_out(
    values: np.ndarray,
    columns: Columns,
    kept: Columns,
) -> np.ndarray:
    """Sum over the axes of columns that are not kept."""
    return values.sum(axis=_dropped_axes(columns, kept))


def _log_sum_out(
    values: np.ndarray,
    columns: Columns,
    kept: Columns,
) -> np.ndarray:
    """Logarithm of the sum of exponentials over the columns that are not kept."""
    axes = _dropped_axes(columns, kept)
    # Subtract the maximum, so that no exponential overflows.
    top = values.max(axis=axes, keepdims=True)
    sums = np.exp(values - top).sum(axis=axes)
    return np.log(sums) + top.squeeze(axis=axes)


def _expand(
    values: np.ndarray,
    columns: Columns,
    clique: Columns,
) -> np.ndarray:
    """Insert axes of length 1, so that a table broadcasts against that of a clique."""
    sizes = iter(values.shape)
    return values.reshape([next(sizes) if h in columns else 1 for h in clique])


def _draw_rows(
    weights: np.ndarray,
    rows: np.ndarray,
    generator: np.random.Generator,
) -> np.ndarray:
    """Draw an index for each given row of a matrix, in proportion to the row's weights.

    It is uniform for a row without weight.
    """
    cumulative = np.cumsum(weights, axis=1)
    n = weights.shape[1]
    empty = cumulative[:, -1] <= 0
    cumulative[empty] = np.arange(1, n + 1)
    cumulative /= cumulative[:, -1:]
    # One search for all rows: the cumulated probabilities of row i are in (i, i + 1].
    edges = (cumulative + np.arange(len(weights))[:, None]).ravel()
    uniform = rows + generator.random(len(rows))
    drawn = np.searchsorted(edges, uniform, side="right")
    return np.minimum(drawn - rows * n, n - 1)
