"""Estimates of running times, from stored cells or by the rough model."""

import pytest
from small_plans import cells

from pkm.experiments.config.backend import Backend
from pkm.experiments.fit.execute import execute
from pkm.experiments.plan.estimate import (
    count_max_centers,
    estimate_wall_time,
    estimate_without_timings,
    make_estimator,
)
from pkm.experiments.store.store import Store


def test_estimate_prefers_measured_times(tmp_path):
    store = Store(tmp_path)
    (cell,) = cells()
    assert make_estimator(store, Backend())(cell) == (estimate_without_timings(cell), False)
    rows = execute(cell).assign(fit_seconds=3.0, metric_seconds=2.0)
    store.write(cell, rows)
    seconds, measured = make_estimator(store, Backend())(cell)
    assert measured
    assert seconds == pytest.approx(2 * 5.0, abs=0.1)
    # Times of a cell without timing do not apply to a timing cell; a limit bounds the estimate.
    (timed,) = cells(timing=True)
    assert make_estimator(store, Backend())(timed) == (estimate_without_timings(timed), False)
    (limited,) = cells(time_limit=4)
    assert make_estimator(store, Backend())(limited) == (4, True)
    assert make_estimator(store, Backend(time_limit=3))(cell) == (3, True)
    assert make_estimator(store, Backend(time_limit=3))(limited) == (4, True)


def test_results_of_older_versions_give_estimates(tmp_path):
    store = Store(tmp_path)
    (cell,) = cells()
    rows = execute(cell).assign(fit_seconds=3.0, metric_seconds=2.0)
    store.write(cell, rows.drop(columns=["timing", "half_width", "n_centers", "references"]))
    assert make_estimator(store, Backend())(cell)[1]


def test_rough_estimate_depends_on_number_of_centers():
    def dpm_cell(**grid):
        (cell,) = cells(methods=[{"method": "dpm", "grid": grid}], epsilon=1.0)
        return cell

    merged = dpm_cell(merge=True)
    shallow = dpm_cell(depth=4)
    default = dpm_cell()
    assert count_max_centers(merged) == 3
    assert count_max_centers(shallow) == 16
    assert count_max_centers(default) == 128

    # The additional time is in proportion to the number of centers beyond the k = 3 merged ones.
    merged_seconds = estimate_without_timings(merged)
    ratio = (estimate_without_timings(default) - merged_seconds) / (
        estimate_without_timings(shallow) - merged_seconds
    )
    assert ratio == pytest.approx((128 - 3) / (16 - 3))

    # Seeds of Lloyd's algorithm are fitted as one batch, which is faster.
    (lloyd,) = cells()
    assert count_max_centers(lloyd) == 3
    assert estimate_without_timings(lloyd) < merged_seconds / 5


def test_timing_cells_are_estimated_in_sequence():
    both = [*cells(), *cells(timing=True)]
    seconds = {cell.key: 6.0 for cell in both}
    assert estimate_wall_time(seconds, both, jobs=2) == 3 + 6
