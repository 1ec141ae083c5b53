"""Records that take the part of public data: which they are, and what the method gets."""

import numpy as np
import pytest

from pkm.datasets import FileOptions
from pkm.experiments.cell.cell import Cell
from pkm.experiments.fit.central import Central
from pkm.experiments.fit.execute import execute
from pkm.experiments.fit.inputs import prepare_cell_data, resolve_cell
from pkm.experiments.fit.public_records import choose_public, separate_public
from pkm.methods import FedDPKMeans

SETS = ("blobs-600-3-4", "iris")


def cell(kind, dataset="blobs-600-3-4", method="FedDPKMeans", factor=1.0, **changes):
    fields = {
        "method": "feddp",
        "target": f"pkm.methods.{method}",
        "params": {"public_data": kind},
        "dataset": dataset,
        "preprocessing": "public",
        "k": 3,
        "epsilon": 1.0,
        "delta": 1e-6,
        "seeds": (0, 1),
        "metrics": ("nicv",),
    }
    return Cell(**fields | changes, kind=Central(factor))


@pytest.mark.parametrize("dataset", SETS)
@pytest.mark.parametrize("kind", ["same", "shifted"])
@pytest.mark.parametrize("factor", [1.0, 10.0])
def test_public_and_private_records_make_all_of_them(dataset, kind, factor):
    data = prepare_cell_data(cell(kind, dataset, factor=factor), None)
    private, public = separate_public(data, kind)
    n, d = data.points.shape
    assert public.shape == (round(n / 20), d)
    assert private.points is data.points
    assert private.method_points.shape == (n - len(public), d)

    # In raw units public records are back on the grid where they were.
    lower, upper = data.method_domain
    steps = ((public - lower) / (upper - lower) * 2 - 1) * 2**16
    np.testing.assert_allclose(steps, np.rint(steps), atol=1e-6)
    both = np.concatenate([private.method_points.rows, np.rint(steps)])
    np.testing.assert_array_equal(np.sort(both, axis=0), np.sort(data.method_points.rows, axis=0))
    squares = (private.method_points.rows.astype(float) ** 2).sum(axis=1)
    np.testing.assert_array_equal(private.method_points.squared_norms, squares)
    assert private.method_points.remainders.shape == private.method_points.rows.shape


def test_shifted_records_are_mostly_of_the_upper_half():
    """With odds of nine to one: 0.9 of 500, but for what is drawn without replacement.

    Six standard deviations of a binomial number are 41.
    """
    rng = np.random.default_rng(0)
    rows = rng.standard_normal((10_000, 3)) * [1, 5, 2]
    is_upper = rows[:, 1] > np.median(rows[:, 1])
    upper = {kind: is_upper[choose_public(rows, kind)].sum() for kind in ("same", "shifted")}
    assert abs(upper["shifted"] - 445) < 41
    assert abs(upper["same"] - 250) < 68


def test_the_method_gets_the_other_records_and_the_public_ones():
    given = cell("same")
    data = prepare_cell_data(given, None)
    private, public = separate_public(data, "same")
    method = FedDPKMeans(3, epsilon=1.0, delta=1e-6, public_data=public)
    expected = method.fit_batch(private.method_points, given.seeds, domain=data.domain)
    ((run, _),), _ = given.kind.fit(resolve_cell(given, None))
    np.testing.assert_array_equal(run.centers, expected.centers)


def test_costs_are_of_all_records():
    rows = execute(cell("same", method="PublicKMeans", epsilon=None, delta=None))
    assert rows["notion"].unique() == ["none"]
    assert rows["n"].unique() == [600]
    # Four blobs in three clusters, from 30 of the records.
    assert rows["nicv"].between(0.01, 0.3).all()


@pytest.mark.parametrize("kind", ["all", True, 3])
def test_other_kinds_are_refused(kind):
    with pytest.raises(ValueError, match=r"public_data=.* must be null or one of same, shifted"):
        cell(kind)


def test_a_file_has_no_public_records():
    with pytest.raises(ValueError, match="null for a file, which is private"):
        cell("same", "file", file=FileOptions("own.csv"), bounds=(0, 1))


def test_kinds_are_in_the_key_and_no_kind_is_no_change():
    keys = {kind: cell(kind).key for kind in ("same", "shifted", None)}
    assert len(set(keys.values())) == 3
    rows = {kind: execute(cell(kind))["nicv"].tolist() for kind in keys}
    assert len({tuple(values) for values in rows.values()}) == 3
