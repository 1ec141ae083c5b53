"""Data of cells on the grid: domains, clipping, wider bounds."""

import math

import numpy as np
import pytest
from small_plans import cells

from pkm.experiments.config.errors import ConfigurationError
from pkm.experiments.fit.execute import execute
from pkm.experiments.fit.inputs import prepare_cell_data


def test_points_outside_the_domain_are_counted_or_refused(file_entry):
    (cell,) = cells(datasets=[file_entry], methods=["mean"], k=1)
    assert (execute(cell)["clipped"] == 1).all()
    expected = "points of .* lie outside the declared domain"
    with pytest.raises(ConfigurationError, match=expected):
        cells(datasets=[file_entry], methods=["mean"], k=1, clip=False)
    # Domains of registered sets contain their points, so these are never refused.
    (iris,) = cells(preprocessing="public", clip=False)
    assert (execute(iris)["clipped"] == 0).all()


def test_public_domains_are_the_default(file_entry):
    def choose_preprocessing(**sweep):
        (cell,) = cells(methods=["mean"], k=1, **sweep)
        return cell.preprocessing

    without_bounds = file_entry | {"bounds": None}
    assert choose_preprocessing(datasets=[file_entry]) == "public"
    assert choose_preprocessing(datasets=["iris"], preprocessing=None) == "public"
    assert choose_preprocessing(datasets=[file_entry], preprocessing="public") == "public"

    # Bounds are never ignored.
    expected = r"bounds=\(0, 1\) is not allowed with preprocessing='minmax'"
    with pytest.raises(ConfigurationError, match=expected):
        choose_preprocessing(datasets=[file_entry], preprocessing="minmax")
    # The extremes of a file's points are private, and taken only where they are asked for.
    for preprocessing in ("minmax", "ball"):
        chosen = choose_preprocessing(datasets=[without_bounds], preprocessing=preprocessing)
        assert chosen == preprocessing
    for preprocessing in (None, "public", "range"):
        with pytest.raises(ConfigurationError, match="bounds must be given for a file"):
            choose_preprocessing(datasets=[without_bounds], preprocessing=preprocessing)


def test_half_width_is_missing_without_a_common_range():
    (cell,) = cells(datasets=["wine"])
    assert execute(cell)["half_width"].map(math.isnan).all()


def test_wider_bounds_change_the_domain_and_not_the_units():
    request = {"datasets": ["planted-600-2-4-0.05"], "methods": ["kmeans"], "metrics": ["nicv"]}
    (plain,) = cells(**request)
    same, wide = cells(**request, bounds_factor=[1, 8])
    assert same.key == plain.key != wide.key
    prepared = prepare_cell_data(wide, None)
    np.testing.assert_array_equal(prepared.method_domain, [[-8, -8], [8, 8]])
    np.testing.assert_array_equal(prepared.domain, [[-1, -1], [1, 1]])
    assert np.abs(8 * prepared.method_points.rows - prepared.points.rows).max() <= 4.5
    rows = execute(wide)
    assert (rows["bounds_factor"] == 8).all()
    assert (execute(plain)["bounds_factor"] == 1).all()
    # Without noise the same centers are found, on a grid eight times as coarse.
    np.testing.assert_allclose(rows["nicv"], execute(plain)["nicv"], rtol=1e-3)


def test_noise_grows_with_the_bounds():
    """A pure method's noise is in half-widths of what it gets: the same centers, as far apart."""
    request = {"datasets": ["planted-600-2-4-0.05"], "methods": ["sulloyd"], "epsilon": 1.0}
    tight, wide = (execute(cell) for cell in cells(**request, bounds_factor=[1, 100]))
    assert wide["nicv"].median() > 10 * tight["nicv"].median()
    np.testing.assert_allclose(wide["epsilon_spent"], tight["epsilon_spent"])
