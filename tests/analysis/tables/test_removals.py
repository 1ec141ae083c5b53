"""Rows in the view of unlearning: sweeps, requests and checkpoints."""

import pandas as pd
import pytest
import reports
from fabricated.fastlloyd import small_rows
from fabricated.mufc import RANDOM_CELLTYPE, RETRAIN, SIZES, all_rows, mufc_rows
from fabricated.studies import study_of

from pkm.analysis.tables.removals import RemovalStudy, read_checkpoints
from pkm.analysis.tables.study import Study, matches


def test_older_rows_have_no_removals():
    old_rows = small_rows().query("sweep == 'g2'")
    old = Study(old_rows)
    assert (old.cells["removals"] == 0).all()
    assert not len(read_checkpoints(old))
    assert not len(RemovalStudy(old).matrix("removals", "request_ms").cells)
    # Both kinds together, as a store that has grown gives them.
    both = pd.concat([old_rows, all_rows()], ignore_index=True)
    counts = {len(reports.draw("mufc", "speedups", rows).table) for rows in (both, all_rows())}
    assert counts == {3 * 7}


def test_view_concatenates_sweeps_and_splits_requests():
    study = study_of("mufc")
    view = RemovalStudy(study)
    assert set(view.matrix("table1", "loss_ratio").cells["dataset"]) == set(SIZES)
    for sweep, kind in (("removals", "random"), ("adversarial", "adversarial")):
        cells = view.matrix(sweep, "reseeded").cells
        assert len(cells) == 15
        assert set(cells["requests"]) == {kind}
        assert set(cells["sweep"]) == {sweep}
    random = reports.without(all_rows(), requests="adversarial", sweep="removals")
    adversarial = mufc_rows("removals", "mufc", "celltype", removals=100, requests="adversarial")
    rows = pd.concat([random, adversarial.assign(sweep="adversarial")])
    panel = RemovalStudy(Study(rows)).matrix("adversarial", "reseeded")
    assert "celltype" in set(panel.cells["dataset"])


def test_stacked_metrics_include_retraining():
    study = study_of("mufc")
    panel = RemovalStudy(study).matrix("removals", "request_ms")
    mean_of_cell = pd.Series(panel.values.mean(axis=0))
    celltype = (panel.cells["dataset"] == "celltype").to_numpy()
    means = dict(zip(panel.cells["method"][celltype], mean_of_cell[celltype], strict=True))
    rows = all_rows().query(RANDOM_CELLTYPE + " and method == 'mufc'")
    for name, column in (
        ("mufc", "removal_mean_ms"),
        ("mufc, retraining", "retrain_ms"),
        ("mufc, full retraining", "retrain_full_ms"),
        ("mufc, untouched", "mean_untouched_ms"),
    ):
        assert means[name] == pytest.approx(rows[column].mean())
    # Full clients touch their model at every request: there is no untouched one.
    assert "dc_kmeans, untouched" not in set(panel.cells["method"])


def test_settings_are_comparable():
    study = study_of("mufc")
    view = RemovalStudy(study)
    cells = view.matrix("gamma", "loss_ratio").cells
    cells = cells.query("method == 'mufc' and dataset == 'celltype'")
    assert sorted(cells["gamma_factor"]) == [1 / 16, 1 / 4, 1 / 2, 1, 2, 4, 16]
    cells = view.matrix("table1", "loss_ratio").cells
    cells = cells.query("method == 'dc_kmeans'")
    assert cells["gamma_factor"].isna().all()
    cells = view.matrix("heterogeneity", "loss_ratio").cells
    assert sorted(cells["clusters_per_client"]) == list(range(1, 11))
    assert cells.loc[cells["split"] == "iid", "clusters_per_client"].item() == 10


def test_view_drops_cells_with_equal_settings():
    # Ten clusters of ten a client, evenly split and not; the paper means the even split.
    extra = mufc_rows("heterogeneity", "mufc", "gaussian-10", clusters_per_client=10)
    rows = pd.concat([all_rows(), extra], ignore_index=True)
    panel = RemovalStudy(Study(rows)).matrix("heterogeneity", "loss_ratio")
    assert len(panel.cells) == 10
    assert "iid" in set(panel.cells["split"])


def test_series_has_one_line_per_checkpoint():
    study = study_of("mufc")
    lines = read_checkpoints(study)
    assert len(lines) == 12 * (3 * 5 * 2 * 25 + 2 * 4 * 2 * 25)
    single = lines.query("batch == 1")
    subset = single.query("dataset == 'celltype' and method == 'mufc'")
    subset = subset.query("requests == 'random' and seed == 0")
    row = all_rows().query(RANDOM_CELLTYPE + " and method == 'mufc'").iloc[0]
    total_seconds = 100 * row["removal_mean_ms"] / 1000
    assert subset["accumulated_s"].iloc[-1] == pytest.approx(total_seconds)
    assert (subset["start"] == row["loss_ratio"]).all()
    panel = RemovalStudy(study).matrix("checkpoints", "retrain_s")
    last = {"dataset": "celltype", "method": "mufc", "requests": "random", "request": 100}
    panel = panel.take(matches(panel.cells, last | {"batch": 1}))
    assert panel.values.shape == (12, 1)
    assert panel.values.mean() == pytest.approx(100 * RETRAIN / 1000)
