"""Cost of removals, from per-seed rows: times of requests and retraining, losses.

A metric of ``removals.yaml`` is made of several stored metrics, each under a method
name of its own: the time of a retraining is that of ``"mufc, retraining"``, the time of
a request that of ``"mufc"``. So every check that compares methods can compare the two.
"""

from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa

from pkm.analysis.tables.charges import flatten
from pkm.analysis.tables.study import SeedMatrix, Study, concatenate, parse_parameters
from pkm.arrow import TYPES
from pkm.yaml_files import read_file

_COMBINED = read_file(Path(__file__).with_suffix(".yaml"))
#: A sweep of its own: the checkpoints of runs with removals.
CHECKPOINTS = "checkpoints"
#: Columns that identify a run with checkpoints.
RUN = ["dataset", "method", "requests", "batch"]
#: Columns that identify a setting.
SETTING = ["params", "clients", "clusters_per_client", "removals", *RUN]


class RemovalStudy(Study):
    """A study with the sweeps and the metrics of ``removals.yaml``.

    Its cells have `gamma_factor`, the side of the bins over 1 / sqrt(n) (NaN without
    bins), and those of even splits have all clusters. A setting that two sweeps share
    is in a matrix once, from an even split if one has it. The sweep `CHECKPOINTS` has
    cells by `request`.

    Parameters
    ----------
    study : Study
    """

    def __init__(
        self,
        study: Study,
    ):
        self._study = study
        self.cells = study.cells
        self._sweep_matrix = cache(self._build)

    def rows_with(
        self,
        metrics: Sequence[str],
    ) -> pd.DataFrame:
        """Select rows that have all metrics, with parent sweeps in place of parts."""
        rows = self._study.rows_with(metrics)
        sweeps = rows["sweep"].map(parent_sweep)
        return rows.assign(sweep=sweeps, gamma_factor=_gamma_factors(rows))

    def _build(
        self,
        sweep: str,
        metric: str,
    ) -> SeedMatrix:
        if sweep == CHECKPOINTS:
            return self._checkpoints(metric)
        parents = find_parents(sweep)
        requests = _COMBINED["requests"].get(sweep)
        names = self._study.sweeps
        stored = [name for name in names if parent_sweep(name) in parents]

        # Collect the stored metrics, each under the names of its methods.
        matrices = []
        templates = _COMBINED["metrics"].get(metric, {metric: "{}"})
        for stored_metric, template in templates.items():
            matrix = self._study.matrix(stored or [sweep], stored_metric)
            if requests is not None:
                matrix = matrix.take(matrix.cells["requests"] == requests)
            methods = matrix.cells["method"].map(template.format)
            matrix = matrix.describe(method=methods, sweep=sweep)
            matrices.append(replace(matrix, metric=metric))
        matrix = concatenate(matrices)

        # A client of an even split sees all k clusters.
        cells = matrix.cells
        is_uneven = cells["split"] != "iid"
        n_clusters = cells["clusters_per_client"].where(is_uneven, cells["k"])
        matrix = matrix.describe(
            clusters_per_client=n_clusters.astype(float),
            gamma_factor=_gamma_factors(cells),
        )

        # Drop repeated settings; even splits come first.
        order = np.argsort(is_uneven, kind="stable")
        matrix = matrix.take(order)
        return matrix.take(~matrix.cells.duplicated(SETTING))

    def _checkpoints(
        self,
        metric: str,
    ) -> SeedMatrix:
        """Read values of runs at checkpoints; the start of a run has request -1."""
        lines = read_checkpoints(self._study)
        if not len(lines):
            return self._study.matrix(CHECKPOINTS, metric)
        if metric == "loss_ratio":
            start = lines.assign(request=-1.0, loss_ratio=lines["start"])
            lines = pd.concat([start, lines])
        columns = [*RUN, "request"]
        wide = lines.pivot_table(
            index="seed",
            columns=columns,
            values=metric,
        )
        styles = self.cells[["method", "label", "color", "marker"]]
        styles = styles.drop_duplicates("method")
        cells = wide.columns.to_frame(index=False)
        cells = cells.merge(
            styles,
            on="method",
            how="left",
        )
        cells = cells.assign(sweep=CHECKPOINTS, epsilon=np.nan)
        seeds = wide.index.to_numpy()
        left_out = np.zeros(len(cells), int)
        return SeedMatrix(
            metric,
            cells,
            seeds,
            wide.to_numpy(),
            left_out,
        )


def parent_sweep(sweep: str) -> str:
    """Name the sweep that a part belongs to: ``table1_split`` is a part of ``table1``.

    Examples
    --------
    >>> parent_sweep("table1_split"), parent_sweep("client_clusters")
    ('table1', 'client_clusters')
    """
    first_word = sweep.split("_")[0]
    return sweep if first_word == "client" else first_word


def find_parents(sweep: str) -> list[str]:
    """Name the stored sweeps, without their parts, that a sweep is made of.

    Examples
    --------
    >>> find_parents("gamma"), find_parents("table2")
    (['gamma', 'table1'], ['table2'])
    """
    return _COMBINED["sweeps"].get(sweep, [sweep])


def _gamma_factors(table: pd.DataFrame) -> pd.Series:
    """Compute the side of bins over its default, to four digits; NaN without bins."""
    gammas = [entry.get("gamma", "auto") for entry in parse_parameters(table)]
    gammas = pd.Series(gammas, table.index, dtype=object)
    sides = pd.to_numeric(gammas, errors="coerce")
    factors = sides * table["n"] ** 0.5
    factors = factors.where(gammas != "auto", 1.0)
    return factors.map("{:.4g}".format).astype(float)


def read_checkpoints(study: Study) -> pd.DataFrame:
    """Read the checkpoints of runs with removals, one line each.

    Returns
    -------
    DataFrame
        `dataset`, `method`, `requests`, `batch`, `seed`, `start` (loss ratio before any
        removal), `request`, `accumulated_s`, `retrain_s`, `loss_ratio`.
    """
    columns = ["request", "accumulated_s", "retrain_s", "loss_ratio"]
    rows = study.rows_with(["series", "removals"])
    parents = rows["sweep"].map(parent_sweep)
    rows = rows[parents.isin(find_parents(CHECKPOINTS))]
    if not len(rows):
        return pd.DataFrame(columns=[*RUN, "seed", "start", *columns])
    lists = pa.array(rows["series"], type=TYPES["checkpoints"])
    checkpoints = flatten(lists, columns).astype(float)
    runs = rows[[*RUN, "seed"]].assign(start=rows["loss_ratio"])
    runs = runs.reset_index(drop=True)
    return checkpoints.join(runs).reset_index(drop=True)
