"""The MUFC report on synthetic rows: printed numbers, speed-ups in both ways, views, claims,
figures.
"""

import json
import math
from functools import partial

import numpy as np
import pandas as pd
import pytest
import reports
from fabricated.fastlloyd import small_rows
from fabricated.mufc import MEANS, RETRAIN, SIZES, all_rows, mufc_rows
from fabricated.studies import study_of
from reports import NO_GAPS

from pkm.analysis import claims, verdicts
from pkm.analysis.figures import figures_of
from pkm.analysis.removals import SPEEDUP_DEFINITIONS, View, curves, series, speedups
from pkm.analysis.tables import DESCRIPTION, OPTIONAL, Study
from pkm.analysis.verdicts import FAILS, HOLDS, INCONCLUSIVE, NOT_RUN

CONTENT = claims.load("mufc")
SPECS = {spec.name: spec for spec in figures_of("mufc")}


@pytest.fixture(scope="module")
def study():
    return study_of("mufc")


@pytest.fixture(scope="module")
def findings():
    return reports.by_claim(reports.verdicts_of("mufc"))


finding = partial(reports.finding, "mufc")
drawn = partial(reports.drawn, "mufc")
figure = partial(reports.figure_of, "mufc")


def changed(column, change, **where):
    """Copy of all rows in which one column of some rows is changed; `change` takes its values."""
    return reports.changed(all_rows(), column, lambda rows: change(rows[column]), **where)


# --- rows in the view of unlearning ---------------------------------------------------------------


def test_rows_have_the_schema(study):
    assert set(DESCRIPTION) <= set(all_rows().columns)
    names = {name for name, _ in OPTIONAL.values()}
    assert (
        {"removals", "batch", "requests", "clusters_per_client", "largest_client"}
        <= names
        <= set(study.cells)
    )
    assert {"server", "gamma", "client_clusters"} <= set(
        study.cells
    )  # parameters have columns of their own


def test_older_rows_hold_no_removals():
    old = Study(small_rows())
    assert (old.cells["removals"] == 0).all() and not len(series(old)) and not len(speedups(old))
    assert not len(View(old).panel("removals", "request_ms").cells)
    # Both kinds together, as a store that has grown gives them.
    both = Study(pd.concat([small_rows(), all_rows()], ignore_index=True))
    assert len(speedups(both)) == len(speedups(study_of("mufc"))) == 3 * len(SPEEDUP_DEFINITIONS)


def test_a_sweep_is_joined_from_its_parts_and_split_by_the_kind_of_requests(study):
    view = View(study)
    assert set(view.panel("table1", "loss_ratio").cells["dataset"]) == set(SIZES)
    for sweep, kind in (("removals", "random"), ("adversarial", "adversarial")):
        cells = view.panel(sweep, "reseeded").cells
        assert (
            len(cells) == 12 and set(cells["requests"]) == {kind} and set(cells["sweep"]) == {sweep}
        )
    apart = reports.without(all_rows(), requests="adversarial", sweep="removals")
    moved = mufc_rows("removals", "mufc", "celltype", removals=100, requests="adversarial").assign(
        sweep="adversarial"
    )
    panel = View(Study(pd.concat([apart, moved]))).panel("adversarial", "reseeded")
    assert "celltype" in set(panel.cells["dataset"])


def test_stacked_metrics_put_retraining_beside_requests(study):
    panel = View(study).panel("removals", "request_ms")
    means = dict(
        zip(
            zip(panel.cells["method"], panel.cells["dataset"], strict=True),
            panel.values.mean(axis=0),
            strict=True,
        )
    )
    rows = all_rows().query(
        "method == 'mufc' and dataset == 'celltype' and requests == 'random' and removals == 100"
    )
    for name, column in (
        ("mufc", "removal_mean_ms"),
        ("mufc, retraining", "retrain_ms"),
        ("mufc, full retraining", "retrain_full_ms"),
        ("mufc, untouched", "mean_untouched_ms"),
    ):
        assert means[name, "celltype"] == pytest.approx(rows[column].mean())
    # Full clients touch their model at every request: there is no untouched one.
    assert "dc_kmeans, untouched" not in set(panel.cells["method"])


def test_settings_are_comparable(study):
    cells = (
        View(study)
        .panel("gamma", "loss_ratio")
        .cells.query("method == 'mufc' and dataset == 'celltype'")
    )
    assert sorted(cells["gamma_factor"]) == [1 / 16, 1 / 4, 1 / 2, 1, 2, 4, 16]
    assert (
        View(study)
        .panel("table1", "loss_ratio")
        .cells.query("method == 'dc_kmeans'")["gamma_factor"]
        .isna()
        .all()
    )
    spread = View(study).panel("heterogeneity", "loss_ratio").cells
    assert sorted(spread["clusters_per_client"]) == list(range(1, 11))
    assert spread.loc[spread["split"] == "iid", "clusters_per_client"].item() == 10


def test_of_two_cells_with_the_same_settings_one_is_seen():
    # Ten clusters of ten a client, evenly split and not; the paper means the even split.
    extra = mufc_rows("heterogeneity", "mufc", "gaussian-10", clusters_per_client=10)
    panel = View(Study(pd.concat([all_rows(), extra], ignore_index=True))).panel(
        "heterogeneity", "loss_ratio"
    )
    assert len(panel.cells) == 10 and "iid" in set(panel.cells["split"])


def test_checkpoints_are_read_one_line_each(study):
    lines = series(study)
    assert len(lines) == 12 * (3 * 4 * 2 * 25 + 2 * 3 * 2 * 25)
    mine = lines.query(
        "dataset == 'celltype' and method == 'mufc' and requests == 'random'"
        " and batch == 1 and seed == 0"
    )
    row = all_rows().query(
        "method == 'mufc' and dataset == 'celltype' and requests == 'random' and removals == 100"
    )
    assert mine["accumulated_s"].iloc[-1] == pytest.approx(
        100 * row["removal_mean_ms"].iloc[0] / 1000
    )
    assert (mine["start"] == row["loss_ratio"].iloc[0]).all()
    means = curves(lines[lines["batch"] == 1], "retrain_s").set_index(
        ["dataset", "method", "requests", "request"]
    )
    line = means.loc[("celltype", "mufc", "random", 100.0)]
    assert line["mean"] == pytest.approx(100 * RETRAIN / 1000) and line["runs"] == 12


def test_speedups_are_ratios_of_means_in_every_reading():
    rows = all_rows().copy()
    rng = np.random.default_rng(0)
    rows["removal_mean_ms"] *= rng.lognormal(0, 0.5, len(rows))
    found = speedups(Study(rows)).set_index(["dataset", "definition"])
    random = rows.query(
        "requests == 'random' and removals == 100 and dataset == 'celltype'"
    ).groupby("method")
    lazy, exact = (random.mean(numeric_only=True).loc[name] for name in ("mufc_lazy", "mufc"))
    expected = {
        "best": lazy["retrain_full_ms"] / lazy["mean_untouched_ms"],
        "average": lazy["retrain_full_ms"] / lazy["removal_mean_ms"],
        "refit": exact["retrain_full_ms"] / exact["removal_mean_ms"],
        "exact": exact["retrain_ms"] / exact["removal_mean_ms"],
    }
    for reading, value in expected.items():
        line = found.loc["celltype", reading]
        assert (
            line["speedup"] == pytest.approx(value)
            and line["low"] <= value <= line["high"]
            and line["seeds"] == 12
        )
    assert expected["best"] > expected["average"] > expected["refit"] > expected["exact"]


# --- printed numbers and claims -------------------------------------------------------------------


def test_printed_numbers_are_complete():
    assert len(MEANS) == 28 and set(CONTENT["reported"]["speedups"]) == set(
        CONTENT["sets"]["seven"]
    )
    speeds = CONTENT["reported"]["speedups"].values()
    assert (
        min(speeds) == 53
        and max(speeds) == 2074
        and np.mean(list(speeds)) == pytest.approx(739, abs=1)
    )
    sizes = {
        line["dataset"]: int(line["n"].replace(",", "")) for line in CONTENT["reported"]["sizes"]
    }
    asked = next(claim for claim in CONTENT["claims"] if claim["id"] == "mufc/dataset-sizes")[
        "check"
    ]["expected"]
    assert sizes == {name: size[0] for name, size in asked.items()}


def test_every_claim_has_a_verdict(findings):
    assert len(findings) == 43
    told = {name for name, found in findings.items() if found.verdict == NOT_RUN}
    assert told == {
        claim["id"].removeprefix("mufc/")
        for claim in CONTENT["claims"]
        if claim["check"]["type"] == "not_run"
    } | {"adversarial-fastest-tmi"}
    failed = {name for name, found in findings.items() if found.verdict == FAILS}
    assert failed == {"speedup-no-retraining"}  # a factor of 5.6 from the printed one on Covtype
    assert (
        "0 violated" in findings["table1-loss-values"].numbers
        or findings["table1-loss-values"].verdict == HOLDS
    )


@pytest.mark.parametrize(
    ("name", "column", "change", "where"),
    [
        ("table1-loss-values", "loss_ratio", lambda x: 1.1 * x, {"removals": 0}),
        ("table2-loss-values", "loss_ratio", lambda x: 1.1 * x, {"method": "mufc_full"}),
        (
            "best-on-imbalanced",
            "loss_ratio",
            lambda x: 1.5 * x,
            {"method": "mufc", "dataset": "celltype"},
        ),
        ("gaussian-dckm-better", "loss_ratio", lambda x: 1.5 * x, {"method": "dc_kmeans"}),
        (
            "competitive-elsewhere",
            "loss_ratio",
            lambda x: 1.2 * x,
            {"method": "mufc", "dataset": "covtype-52"},
        ),
        (
            "mufc-le-kfed",
            "loss_ratio",
            lambda x: 1.5 * x,
            {"method": "mufc", "dataset": "gaussian-10"},
        ),
        ("kfed-worse-than-dckm", "loss_ratio", lambda x: 1.5 * x, {"method": "dc_kmeans"}),
        ("full-client-best", "loss_ratio", lambda x: 1.1 * x, {"method": "mufc_full"}),
        ("full-client-improves", "loss_ratio", lambda x: 1.5 * x, {"method": "mufc_full"}),
        ("full-client-retrains-always", "reseeded", lambda x: x + 0.5, {"method": "mufc"}),
        ("full-client-retrains-always", "reseeded", lambda x: 0.8 * x, {"method": "mufc_full"}),
        ("speedup-average-84", "removal_mean_ms", lambda x: 10 * x, {"method": "mufc_lazy"}),
        ("random-fastest", "removal_mean_ms", lambda x: 2 * x, {"method": "mufc"}),
        ("adversarial-fastest-others", "retrain_ms", lambda x: x / 2, {"requests": "adversarial"}),
        ("adversarial-costs-more", "reseeded", lambda x: 0 * x, {"requests": "adversarial"}),
        ("batch-closer-to-retraining", "retrain_ms", lambda x: 5 * x, {"batch": 30}),
        ("batch-still-not-slower", "retrain_ms", lambda x: x / 2, {"batch": 30}),
        ("heterogeneity-helps", "loss_ratio", lambda x: x / 2, {"split": "iid"}),
        ("gamma-weak-on-gaussian", "loss_ratio", lambda x: 1.3 * x, {"sweep": "gamma_split"}),
        ("gamma-strong-on-real", "loss_ratio", lambda x: 0 * x + 1.14, {"sweep": "gamma"}),
        ("gamma-default-good", "loss_ratio", lambda x: 0.9 * x, {"sweep": "gamma"}),
        ("points-in-bins-better", "loss_ratio", lambda x: 1.1 * x, {"method": "mufc_points"}),
        ("approximation-bound", "loss_ratio", lambda x: 1e4 * x, {"method": "mufc_points"}),
        ("removal-time-free-of-n", "reseeded", lambda x: x + 0.1, {"method": "mufc", "batch": 1}),
        ("removal-time-linear-in-R", "removal_client_ms", lambda x: 20 * x, {"batch": 30}),
        ("assignments-differ", "loss_ratio_nearest", lambda x: 2 * x, {"method": "k_fed"}),
        ("dataset-sizes", "k", lambda x: x + 1, {"dataset": "covtype-52"}),
    ],
)
def test_every_judged_claim_can_fail(name, column, change, where):
    assert finding(name, changed(column, change, **where)).verdict == FAILS


def test_speedup_claims_are_read_in_both_ways(findings):
    best = findings["speedup-no-retraining"]
    average = findings["speedup-average-84"]
    assert (
        "celltype" in best.numbers.lower()
        and "its own retraining, at least 50: fails as well" in best.numbers
    )
    assert average.verdict == HOLDS and "its own retraining: fails instead" in average.numbers
    assert "only 3 of 7" in average.missing
    near = changed("mean_untouched_ms", lambda x: 5 * x, method="mufc_lazy", dataset="covtype-52")
    found = finding("speedup-no-retraining", near)
    assert found.verdict == HOLDS and "reported 267" in found.numbers


def test_loss_must_stay_near_its_start_at_every_checkpoint(findings):
    found = findings["loss-stable-under-removal"]
    assert found.verdict == HOLDS and found.evidence["largest_change"].between(0.008, 0.011).all()

    def jump(texts):
        drifted = []
        for text in texts:
            curve = json.loads(text)
            curve["loss_ratio"][7] *= 1.2
            drifted.append(json.dumps(curve))
        return drifted

    rows = changed(
        "series",
        jump,
        method="mufc",
        dataset="covtype-52",
        requests="random",
        batch=1,
        removals=100,
    )
    found = finding("loss-stable-under-removal", rows)
    assert (
        found.verdict == FAILS
        and "covtype-52 19.2 %" in found.numbers
        and "lazy server: holds instead" in found.numbers
    )


def test_bins_far_from_the_default_do_not_count_and_the_default_alone_shows_nothing():
    far = mufc_rows("gamma", "mufc", "gaussian-10", params={"gamma": 0.4}).assign(loss_ratio=9.0)
    assert (
        finding("gamma-weak-on-gaussian", pd.concat([all_rows(), far], ignore_index=True)).verdict
        == HOLDS
    )
    none = all_rows()[~all_rows()["sweep"].str.startswith("gamma")]
    for name in ("gamma-weak-on-gaussian", "gamma-strong-on-real", "gamma-default-good"):
        assert finding(name, none).verdict == NOT_RUN


def test_equal_losses_are_not_called_different():
    rows = all_rows().assign(loss_ratio_nearest=all_rows()["loss_ratio"])
    assert finding("assignments-differ", rows).verdict == INCONCLUSIVE


def test_few_seeds_decide_nothing_about_means():
    found = {
        v.claim["id"]: v.finding.verdict
        for v in verdicts.evaluate(Study(all_rows().query("seed < 3")), "mufc", NO_GAPS)
    }
    for name in (
        "random-fastest",
        "speedup-average-84",
        "loss-stable-under-removal",
        "gamma-default-good",
    ):
        assert found[f"mufc/{name}"] == INCONCLUSIVE
    assert found["mufc/table1-loss-values"] == NOT_RUN and found["mufc/dataset-sizes"] == HOLDS


def test_claims_without_rows_give_the_recorded_reason():
    gap = {
        "sweep": "removals_split",
        "method": "mufc",
        "dataset": "tmi",
        "epsilon": math.nan,
        "reason": "no such file",
    }
    found = verdicts.evaluate(Study(small_rows()), "mufc", pd.DataFrame([gap]))
    found = {verdict.claim["id"].removeprefix("mufc/"): verdict.finding for verdict in found}
    judged = {name for name, finding in found.items() if finding.verdict != NOT_RUN}
    assert judged == {"scma-log-in-dimension"}  # computed from a formula
    assert "no such file" in found["random-fastest"].numbers


# --- figures and report ---------------------------------------------------------------------------


def test_table1_has_ours_printed_and_both_servers(study):
    shown = figure("table1")
    line = shown.formatted.set_index("data set").loc["Celltype"]
    assert line["MUFC"].endswith("| 1.14 ± 0.03: within") and line[
        "MUFC (points in bins)"
    ].endswith("within")
    assert line["speed-up of MUFC, no seed touched"] == "1,500x | 1535x"
    assert len(shown.gaps) == 4 and "another sample" in shown.caption
    assert shown.formatted.set_index("data set").loc["TMI", "MUFC"] == "– | 1.24 ± 0.10: not run"
    second = figure("table2").formatted.set_index("data set").loc["Covtype"]
    assert second["MUFC (full clients)"].endswith("within") and second["K-FED"].endswith(
        "| 1.60 ± 0.01: within"
    )


def test_figure3_has_the_papers_panels(study):
    shown = figure("figure3")
    titles = [axes.get_title() for axes in shown.figure.axes]
    assert titles[0].startswith("(a) clusters per client") and titles[11] == "(l) random, Covtype"
    assert set(shown.table["panel"]) == set("abcdghl") and len(shown.gaps) == 5
    assert len(shown.figure.axes[6].lines) == 4  # two servers, DC-KMeans, retraining
    assert (
        shown.table.query("panel == 'a' and quantity == 'loss_ratio'")["clusters_per_client"].max()
        == 10
    )


def test_the_table_of_servers_has_the_price_of_exactness(study):
    shown = figure("lazy")
    line = shown.formatted[
        (shown.formatted["data set"] == "Celltype")
        & (shown.formatted["requests"] == "random, 1 each")
    ]
    rows = (
        all_rows()
        .query("dataset == 'celltype' and requests == 'random' and removals == 100")
        .groupby("method")
    )
    means = rows["removal_mean_ms"].mean()
    assert line["exact over lazy"].item().startswith(f"{means['mufc'] / means['mufc_lazy']:.3g} [")
    assert "(0.0333)" in line["seed touched (predicted)"].item() and len(shown.formatted) == 6 + 4


def test_messages_stand_beside_the_literal_construction_and_the_open_ones(study):
    shown = figure("messages")
    line = shown.table.set_index("dataset").loc["celltype"]
    # 800 words of ceil(10 log2(2 · 110 + 1)) bits.
    assert line["literal_bytes"] == 800 * 78 / 8 and line["plain_bytes"] == 176
    assert shown.formatted["sparse over open"].iloc[0] == "69.3"


@pytest.mark.parametrize("name", SPECS)
def test_figures_without_rows_say_what_is_missing(name):
    reports.check_figure_without_rows("mufc", name, small_rows())


@pytest.mark.parametrize("name", SPECS)
def test_figures_of_other_data_sets_and_two_seeds_are_drawn(name):
    # As the smoke profile has them: one small set that the paper does not know.
    parts = [
        mufc_rows("table1", method, "gaussian-10", seeds=2)
        for method in ("mufc", "mufc_points", "k_fed")
    ]
    parts += [
        mufc_rows("sparse", "mufc", "gaussian-10", seeds=2),
        mufc_rows("table2", "mufc_full", "gaussian-10", seeds=2),
    ]
    for method, kind in (("mufc", "random"), ("mufc_lazy", "random"), ("mufc", "adversarial")):
        parts.append(
            mufc_rows("removals", method, "gaussian-10", seeds=2, removals=4, requests=kind)
        )
    rows = pd.concat(parts, ignore_index=True).assign(dataset="gaussians-600-3-4")
    shown = drawn(name, rows)
    assert shown.gaps and (len(shown.table) or name == "figure5")


def test_the_report_is_built(tmp_path, monkeypatch):
    some = ("table1", "figure3")
    page = reports.built("mufc", all_rows(), tmp_path, monkeypatch, some)
    html = page.read_text(encoding="utf-8")
    for name in some:
        assert f'id="{name}"' in html and (tmp_path / "tables" / f"{name}.csv").is_file()
    for topic in (
        "Seeding",
        "Server after a removal",
        "What the server learns",
        "Gaussian data",
        "Covtype",
    ):
        assert topic in html
    assert {"removal_p99_ms", "loss_ratio_nearest"} <= set(
        pd.read_csv(tmp_path / "tables" / "summary.csv")["metric"]
    )
