"""Clusters of tables with columns of all kinds, beside those of k-prototypes without privacy."""

import numpy as np
import pandas as pd
import pytest
from sklearn.metrics import adjusted_rand_score

from pkm import Schema
from pkm.methods import SynopsisKMeans

N_PERSONS = 6_000
N_LEVELS = 4
# Nobody knows the bounds of two columns.
SCHEMA = {
    "age": {"kind": "number", "low": 0, "high": 100},
    "spent": {"kind": "number", "low": 1, "high": 1e5, "log": True},
    "visits": {"kind": "number", "bounds": "private"},
    "minutes": {"kind": "number", "bounds": "private"},
    "plan": {"kind": "category", "levels": list("abcd"), "weight": 0.5},
    "region": {"kind": "category", "levels": list("wxyz"), "weight": 0.5},
    "since": {"kind": "date", "low": "2015-01-01", "high": "2026-01-01"},
}
NUMBERS = ["age", "spent", "visits", "minutes", "since"]


def draw_table(seed):
    """Persons of three or four groups, with 1 to 200 rows each, and a hole in 5 % of cells."""
    rng = np.random.default_rng(seed)
    k = 3 + seed % 2
    group_of = rng.integers(k, size=N_PERSONS)
    n_rows = np.clip(rng.lognormal(1.0, 1.0, N_PERSONS), 1, 200).astype(int)
    persons = np.repeat(np.arange(N_PERSONS), n_rows)
    groups = group_of[persons]

    # Middles of groups are apart in each column; who is in a group has its level mostly.
    def near(low, high, stddev):
        middles = rng.permutation(np.linspace(low, high, k))
        return middles[groups] + stddev * rng.standard_normal(len(groups))

    def levels(names):
        own = rng.permutation(N_LEVELS)[groups]
        others = rng.integers(N_LEVELS, size=len(groups))
        return np.array(names)[np.where(rng.random(len(groups)) < 0.7, own, others)]

    days = near(500, 3500, 900).clip(0, 4000).round()
    table = pd.DataFrame(
        {
            "age": near(20, 80, 18).clip(0, 100),
            "spent": np.exp(near(2, 9, 2)).clip(1, 1e5),
            "visits": near(10, 90, 24),
            "minutes": near(100, 5000, 1400),
            "plan": levels(list("abcd")),
            "region": levels(list("wxyz")),
            "since": pd.Timestamp("2015-01-01") + pd.to_timedelta(days, unit="D"),
        }
    )
    return table.mask(rng.random(table.shape) < 0.05), persons, groups, k


def encode(table):
    """Numbers in standard deviations and codes of categories; a hole has what most rows have."""
    numbers = table[NUMBERS].assign(spent=np.log(table["spent"]))
    numbers["since"] = (table["since"] - pd.Timestamp("2015-01-01")).dt.days
    numbers = numbers.fillna(numbers.median())
    texts = table[["plan", "region"]]
    texts = texts.fillna(texts.mode().iloc[0])
    categories = np.column_stack([pd.factorize(texts[name])[0] for name in texts])
    return ((numbers - numbers.mean()) / numbers.std()).to_numpy(), categories


def k_prototypes(numbers, categories, k, rng):
    """Labels and cost of one run of k-prototypes (Huang 1998), from k rows."""
    start = rng.choice(len(numbers), k, replace=False)
    means, modes = numbers[start], categories[start]
    for _ in range(20):
        # Half a standard deviation for each category that differs, as Huang proposes.
        squares = ((numbers[:, None] - means) ** 2).sum(axis=2)
        costs = squares + 0.5 * (categories[:, None] != modes).sum(axis=2)
        labels = costs.argmin(axis=1)
        for j in np.unique(labels):
            means[j] = numbers[labels == j].mean(axis=0)
            modes[j] = [np.bincount(column).argmax() for column in categories[labels == j].T]
    return labels, costs.min(axis=1).sum()


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(6))
def test_private_clusters_of_a_mixed_table_are_as_good_as_those_of_k_prototypes(seed):
    table, persons, groups, k = draw_table(seed)
    schema = Schema(SCHEMA)
    method = SynopsisKMeans(
        k, epsilon=1.0, bounds=schema.bounds, missing="middle", random_state=seed
    )
    rows = schema.transform(table)
    method.fit(rows, groups=persons)

    rng = np.random.default_rng(seed)
    encoded = encode(table)
    runs = [k_prototypes(*encoded, k, rng) for _ in range(10)]
    best = min(runs, key=lambda run: run[1])[0]
    # Both are scored on the rows without holes.
    whole = table.notna().all(axis=1)
    labels = method.predict(rows[whole])
    score = adjusted_rand_score(groups[whole], labels)
    rival = adjusted_rand_score(groups[whole], best[whole])
    print(f"{len(table)} rows, k = {k}: {score:.3f}, k-prototypes {rival:.3f}")
    assert score >= 0.9 * rival
