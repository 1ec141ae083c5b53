"""Cost of removals, from per-seed rows: times of requests and retraining, losses.

A metric of `STACKED` combines several stored metrics: the time of a retraining is that of a method
``"mufc, retraining"`` next to the time of a request of ``"mufc"``. So every check that compares
methods can compare the two.
"""

from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from itertools import product

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from pkm.analysis.tables.study import SeedMatrix, Study, concatenate, given_parameters
from pkm.arrow import TYPES

STACKED = {
    "request_ms": {
        "removal_mean_ms": "{}",
        "mean_untouched_ms": "{}, untouched",
        "retrain_ms": "{}, retraining",
        "retrain_full_ms": "{}, full retraining",
    },
    "reseed_share": {"reseeded": "{}", "reseeded_predicted": "{}, predicted"},
}
# A sweep as claims and figures name it: the stored sweeps that it consists of, with their parts
# (`table1_split`), and the kind of requests. The default bins of the search over their sides are
# those of Table 1.
SWEEPS = {
    "removals": (("removals",), "random"),
    "adversarial": (("removals", "adversarial"), "adversarial"),
    "gamma": (("gamma", "table1"), None),
    "sparse": (("sparse", "table1"), None),
}
#: A sweep of its own: the checkpoints of all runs with removals.
CHECKPOINTS = "checkpoints"


class RemovalStudy(Study):
    """A study with the sweeps of `SWEEPS`, the metrics of `STACKED` and comparable settings.

    Parameters
    ----------
    study : analysis.tables.study.Study
    """

    def __init__(self, study: Study):
        self._study = study
        self.cells = study.cells
        self._sweep_matrix = cache(self._build)

    def rows_with(self, metrics: Sequence[str]) -> pd.DataFrame:
        """Rows with all of the metrics, those of parts under the name of the sweep."""
        rows = self._study.rows_with(metrics)
        return rows.assign(sweep=rows["sweep"].map(family), gamma_factor=_gamma_factors(rows))

    def _build(self, sweep: str, metric: str) -> SeedMatrix:
        """SeedMatrix of a stored or stacked metric.

        Its cells have `gamma_factor`, the side of the bins over 1 / sqrt(n) (NaN without bins), and
        those of even splits have all clusters. A setting that two sweeps share is in it once, from
        an even split if one has it. The sweep `CHECKPOINTS` has cells by `request`.
        """
        if sweep == CHECKPOINTS:
            return _of_checkpoints(self._study, metric)
        bases, requests = SWEEPS.get(sweep, ((sweep,), None))
        stored_sweeps = [name for name in self._study.sweeps if family(name) in bases]

        # Collect the stored metrics, each under the names of its methods.
        parts = []
        templates = STACKED.get(metric, {metric: "{}"})
        for (stored_metric, template), name in product(templates.items(), stored_sweeps):
            matrix = self._study.matrix(name, stored_metric)
            if requests is not None:
                matrix = matrix.take((matrix.cells["requests"] == requests).to_numpy())
            if len(matrix.cells):
                methods = [template.format(method) for method in matrix.cells["method"]]
                cells = matrix.cells.assign(method=methods, sweep=sweep)
                parts.append(replace(matrix, metric=metric, cells=cells))
        if not parts:
            return _empty(self._study, metric)

        # Drop repeated settings; even splits come first.
        matrix = concatenate(parts)
        matrix = replace(matrix, cells=_comparable(matrix.cells))
        is_uneven = matrix.cells["split"] != "iid"
        matrix = matrix.take(np.argsort(is_uneven, kind="stable"))
        is_repeated = matrix.cells.duplicated(_SETTINGS).to_numpy()
        return matrix.take(~is_repeated)


_SETTINGS = [
    "method",
    "params",
    "dataset",
    "clients",
    "clusters_per_client",
    "removals",
    "requests",
    "batch",
]


def family(sweep: str) -> str:
    """Name of the sweep that a part belongs to.

    Examples
    --------
    >>> family("table1_split"), family("client_clusters")
    ('table1', 'client_clusters')
    """
    base = sweep.split("_")[0]
    return sweep if base == "client" else base


def _comparable(cells: pd.DataFrame) -> pd.DataFrame:
    """Add `gamma_factor`; a client of an even split sees all k clusters."""
    even = cells["split"] == "iid"
    n_clusters = np.where(even, cells["k"], cells["clusters_per_client"]).astype(float)
    return cells.assign(clusters_per_client=n_clusters, gamma_factor=_gamma_factors(cells))


def _gamma_factors(table: pd.DataFrame) -> list[float]:
    gammas = [given.get("gamma", "auto") for given in given_parameters(table)]
    return [_factor(gamma, n) for gamma, n in zip(gammas, table["n"], strict=True)]


def _factor(gamma: float | str | None, n: int) -> float:
    """Side of the bins over its default, to four digits; NaN without bins."""
    if gamma == "auto":
        return 1.0
    if gamma is None:
        return np.nan
    return float(f"{gamma * n**0.5:.4g}")


def series(study: Study) -> pd.DataFrame:
    """Checkpoints of all runs with removals, one line each.

    Returns
    -------
    DataFrame
        `dataset`, `method`, `requests`, `batch`, `seed`, `start` (loss ratio before any removal),
        `request`, `accumulated_s`, `retrain_s`, `loss_ratio`.
    """
    facts = ["dataset", "method", "requests", "batch", "seed"]
    columns = ["request", "accumulated_s", "retrain_s", "loss_ratio"]
    rows = study.rows_with(["series", "removals"])
    if not len(rows):
        return pd.DataFrame(columns=[*facts, "start", *columns])
    lists = pa.array(rows["series"], type=TYPES["checkpoints"])
    checkpoints = pc.list_flatten(lists)
    lines = rows[facts].assign(start=rows["loss_ratio"]).iloc[pc.list_parent_indices(lists)]
    values = {name: pc.struct_field(checkpoints, name).to_numpy() for name in columns}
    return lines.assign(**values).reset_index(drop=True).astype(dict.fromkeys(columns, float))


def _of_checkpoints(study: Study, metric: str) -> SeedMatrix:
    """Values of each run at every checkpoint; the loss ratio at its start is that at request -1."""
    lines = series(study)
    if not len(lines):
        return _empty(study, metric)
    if metric == "loss_ratio":
        lines = pd.concat([lines.assign(request=-1.0, loss_ratio=lines["start"]), lines])
    keys = ["dataset", "method", "requests", "batch", "request"]
    wide = lines.pivot_table(index="seed", columns=keys, values=metric)
    looks = study.cells.drop_duplicates("method")[["method", "label", "color", "marker"]]
    cells = wide.columns.to_frame(index=False).merge(looks, on="method", how="left")
    cells = cells.assign(sweep=CHECKPOINTS, epsilon=np.nan)
    none_left_out = np.zeros(len(cells), int)
    return SeedMatrix(metric, cells, wide.index.to_numpy(), wide.to_numpy(), none_left_out)


def _empty(study: Study, metric: str) -> SeedMatrix:
    return SeedMatrix(metric, study.cells.iloc[:0], np.empty(0), np.empty((0, 0)), np.empty(0, int))
