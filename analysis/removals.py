"""What forgetting costs, from per-seed rows: requests beside retraining, comparable settings,
curves over requests.

A metric of `STACKED` puts several stored ones on one axis: what a request takes stands beside what
a retraining would have taken, as if that were a method of its own (``"mufc, retraining"``). So
every check on methods serves here as well.
"""

import json
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd

from pkm.analysis.tables import (
    Panel,
    concatenate,
    percentile_interval,
    resampled_means,
    resampling_weights,
)

STACKED = {
    "request_ms": {
        "removal_mean_ms": "{}",
        "mean_untouched_ms": "{}, untouched",
        "retrain_ms": "{}, retraining",
        "retrain_full_ms": "{}, full retraining",
    },
    "reseed_share": {"reseeded": "{}", "reseeded_predicted": "{}, predicted"},
}
# What a claim or figure calls a sweep: the stored ones behind it, with parts of theirs
# (`table1_split`), and the kind of requests. The default bins of the search over their sides are
# those of Table 1.
SWEEPS = {
    "removals": (("removals",), "random"),
    "adversarial": (("removals", "adversarial"), "adversarial"),
    "gamma": (("gamma", "table1"), None),
    "sparse": (("sparse", "table1"), None),
}


@dataclass(frozen=True)
class Reading:
    """A way to write a speed-up: in words, and what is divided by what under the names of
    `STACKED`.
    """

    title: str
    above: str
    below: str


READINGS = {
    "best": Reading(
        "full retraining over a lazy request that touches no seed",
        "mufc_lazy, full retraining",
        "mufc_lazy, untouched",
    ),
    "average": Reading(
        "full retraining over a lazy request", "mufc_lazy, full retraining", "mufc_lazy"
    ),
    "refit": Reading("full retraining over an exact request", "mufc, full retraining", "mufc"),
    "honest": Reading("own retraining over an exact request", "mufc, retraining", "mufc"),
    "dc_kmeans": Reading(
        "DC-KMeans: own retraining over a request", "dc_kmeans, retraining", "dc_kmeans"
    ),
}


class View:
    """A study seen by who asks about unlearning: `SWEEPS`, `STACKED` metrics, and cells with
    comparable settings.

    Parameters
    ----------
    study : analysis.tables.Study
    """

    def __init__(self, study):
        self._study = study

    def panel(self, sweep, metric):
        """Panel of a stored or stacked metric; its cells have `gamma_factor` and, of even splits,
        all clusters.

        ``gamma_factor`` is the side of the bins over 1 / sqrt(n), NaN without bins. What two sweeps
        have alike stands there once; of an even split and one over as many clusters as there are
        the even one.
        """
        bases, requests = SWEEPS.get(sweep, ((sweep,), None))
        parts = []
        for stored, name in STACKED.get(metric, {metric: "{}"}).items():
            for place in (each for each in self._study.sweeps if family(each) in bases):
                panel = self._study.panel(place, stored)
                if requests is not None and len(panel.cells):
                    panel = panel.take((panel.cells["requests"] == requests).to_numpy())
                if len(panel.cells):
                    cells = panel.cells.assign(
                        method=[name.format(each) for each in panel.cells["method"]], sweep=sweep
                    )
                    parts.append(replace(panel, metric=metric, cells=cells))
        if not parts:
            return Panel(
                metric, self._study.cells.iloc[:0], np.empty(0), np.empty((0, 0)), np.empty(0, int)
            )
        panel = concatenate(parts)
        panel = replace(panel, cells=_comparable(panel.cells))
        panel = panel.take(np.argsort(panel.cells["split"] != "iid", kind="stable"))
        return panel.take(~panel.cells.duplicated(_SETTINGS).to_numpy())


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


def family(sweep):
    """Name of a sweep without that of the part of it.

    Examples
    --------
    >>> family("table1_split"), family("client_clusters")
    ('table1', 'client_clusters')
    """
    base = sweep.split("_")[0]
    return sweep if base == "client" else base


def _comparable(cells):
    """Add `gamma_factor`; a client of an even split sees all k clusters."""
    even = cells["split"] == "iid"
    gammas = [json.loads(text or "{}").get("gamma", "auto") for text in cells["params"]]
    factors = [_factor(gamma, n) for gamma, n in zip(gammas, cells["n"], strict=True)]
    return cells.assign(
        clusters_per_client=np.where(even, cells["k"], cells["clusters_per_client"]).astype(float),
        gamma_factor=factors,
    )


def _factor(gamma, n):
    if gamma == "auto":
        return 1.0
    return np.nan if gamma is None else float(f"{gamma * n**0.5:.4g}")


def series(study):
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
    curves = pd.DataFrame(
        [json.loads(text) for text in rows["series"]], columns=columns, index=rows.index
    )
    lines = (
        rows[facts]
        .assign(start=rows["loss_ratio"])
        .join(curves)
        .explode(columns, ignore_index=True)
    )
    return lines.astype(dict.fromkeys(columns, float))


def curves(lines, value):
    """Mean, standard deviation (n - 1) and runs of a column of `series` at every checkpoint."""
    keys = ["dataset", "method", "requests", "batch", "request"]
    grouped = lines.groupby(keys)[value].agg(mean="mean", deviation="std", runs="count")
    return grouped.reset_index().assign(quantity=value)


def speedup_draws(study, reading):
    """Ratio of means of a `Reading` on every data set that has both sides, over random requests.

    Returns
    -------
    tuple
        Data sets, ndarray of shape (repeats + 1, data sets) with the sample first, fewest seeds.
    """
    panel = View(study).panel("removals", "request_ms")
    places = [
        dict(zip(mine["dataset"], mine.index, strict=True))
        for mine in (
            panel.cells[panel.cells["method"] == name] for name in (reading.above, reading.below)
        )
    ]
    datasets = [name for name in places[0] if name in places[1]]
    if not datasets:
        return [], np.empty((1, 0)), 0
    above, below = ([place[name] for name in datasets] for place in places)
    means = resampled_means(panel, resampling_weights(len(panel.seeds)))
    seeds = np.isfinite(panel.values[:, above + below]).sum(axis=0).min()
    return datasets, means[:, above] / means[:, below], int(seeds)


def speedups(study):
    """Every `Reading` on every data set.

    Returns
    -------
    DataFrame
        `dataset`, `reading`, `title`, `speedup` (ratio of means), `low`, `high` (95 %, seeds
        resampled), `seeds`.
    """
    lines = []
    for key, reading in READINGS.items():
        datasets, draws, seeds = speedup_draws(study, reading)
        for name, value, low, high in zip(
            datasets, draws[0], *percentile_interval(draws), strict=True
        ):
            line = {"dataset": name, "reading": key, "title": reading.title, "speedup": value}
            lines.append(line | {"low": low, "high": high, "seeds": seeds})
    columns = ["dataset", "reading", "title", "speedup", "low", "high", "seeds"]
    return pd.DataFrame(lines, columns=columns)
