"""What cannot be run is a gap, a substitute or a refusal before the run."""

import pytest
from small_plans import PROFILE, cells, paper

from pkm import datasets
from pkm.experiments.config.errors import ConfigurationError
from pkm.experiments.fit.execute import execute
from pkm.experiments.fit.inputs import prepare_cell_data
from pkm.experiments.plan.plan import make_plan
from pkm.experiments.reports.overview import describe_gaps, describe_substitutions
from pkm.experiments.store.store import Store


def test_missing_data_are_a_gap(monkeypatch, tmp_path):
    monkeypatch.delenv("PKM_DATA", raising=False)
    monkeypatch.setenv("PKM_CACHE", str(tmp_path))
    content = paper(datasets=["iris", "texture"], methods=["glloyd"], epsilon=[0.1, 1.0])
    plan = make_plan(content, PROFILE, data_dir=str(tmp_path))
    assert {cell.dataset for cell in plan.cells} == {"iris"}
    assert [(gap.dataset, gap.method, gap.epsilon) for gap in plan.gaps] == [
        ("texture", "glloyd", 0.1),
        ("texture", "glloyd", 1.0),
    ]
    missing = plan.list_missing(Store(tmp_path / "results"))
    assert list(missing.columns) == ["sweep", "method", "dataset", "epsilon", "reason"]
    assert missing["reason"].str.contains("texture.dat").sum() == 2
    assert (missing["reason"] == "not run").sum() == 2


def test_substitute_replaces_missing_data(tmp_path, monkeypatch):
    monkeypatch.delenv("PKM_DATA", raising=False)
    monkeypatch.setenv("PKM_CACHE", str(tmp_path / "cache"))
    (tmp_path / "empty").mkdir()
    pattern = {"pattern": "g2-{d}-20", "fallback": "g2-{d}-20-generated", "d": [128, 256]}
    plan = make_plan(paper(datasets=[pattern]), PROFILE, data_dir=str(tmp_path / "empty"))
    assert [cell.dataset for cell in plan.cells] == ["g2-128-20-generated", "g2-256-20-generated"]
    # A substituted set is not a gap, and the report does not count it as missing.
    assert plan.gaps == ()
    missing = plan.list_missing(Store(tmp_path / "results"))
    assert set(missing["reason"]) == {"not run"}
    assert [pair.dataset for pair in plan.substitutions] == ["g2-128-20", "g2-256-20"]
    (family,) = describe_substitutions(plan.substitutions)
    expected = "g2-{d}-20 as g2-{d}-20-generated, because the file is not available: "
    assert family == f"{expected}g2-128-20, g2-256-20"


@pytest.fixture
def damaged_folder(tmp_path, monkeypatch):
    """Return a data folder in which the file of g2-128-20 differs from the published file."""
    monkeypatch.delenv("PKM_DATA", raising=False)
    monkeypatch.setenv("PKM_CACHE", str(tmp_path / "cache"))
    (tmp_path / "files" / "g2").mkdir(parents=True)
    (tmp_path / "files" / "g2" / "g2-128-20.txt").write_text("1 2\n")
    return str(tmp_path / "files")


@pytest.mark.parametrize("options", [{}, {"fallback": "g2-{d}-20-generated"}])
def test_damaged_file_is_refused_not_replaced(damaged_folder, options):
    pattern = {"pattern": "g2-{d}-20", "d": [128]} | options
    content = paper(datasets=["iris", pattern])
    expected = r"g2-128-20\.txt has SHA-256 .* delete it and fetch it again"
    with pytest.raises(ConfigurationError, match=expected):
        make_plan(content, PROFILE, data_dir=damaged_folder)


def test_missing_files_of_a_family_share_a_line(tmp_path, monkeypatch):
    monkeypatch.delenv("PKM_DATA", raising=False)
    monkeypatch.setenv("PKM_CACHE", str(tmp_path / "cache"))
    (tmp_path / "empty").mkdir()
    names = [{"pattern": "g2-128-{sd}", "sd": list(range(10, 101, 10))}, "g2-256-20", "femnist"]
    plan = make_plan(paper(datasets=names), PROFILE, data_dir=str(tmp_path / "empty"))
    family, other = describe_gaps(plan.gaps)
    assert family.startswith("g2-128-10, g2-128-20, ")
    assert "and 1 more (11 cells): data set 'NAME' needs the file g2/NAME.txt" in family
    assert other.startswith("femnist (1 cells): data set 'femnist' needs")


def test_range_preprocessing_needs_one_common_range(file_entry):
    metrics = ["inertia", "accuracy"]
    (cell,) = cells(
        datasets=["blobs-200-3-2"],
        methods=["kmeans"],
        preprocessing="range",
        metrics=metrics,
    )
    prepared = prepare_cell_data(cell, None)
    # The box of the centers; points may lie outside.
    assert prepared.domain.tolist() == [[-100.0] * 3, [100.0] * 3]
    rows = execute(cell)
    assert (rows["half_width"] == 100).all()
    assert not rows["private_bounds"].any()
    # In raw units the points have variance 1 in each of three columns around their clusters'
    # centers.
    raw_inertia = rows["inertia"] * rows["half_width"] ** 2
    assert raw_inertia.between(0.5 * 200 * 3, 2 * 200 * 3).all()
    assert (rows["accuracy"] == 1).all()

    # A file with the same bounds in all columns has a range; with different bounds it has none.
    (file_cell,) = cells(datasets=[file_entry], methods=["mean"], k=1, preprocessing="range")
    assert execute(file_cell)["half_width"].tolist() == [0.5] * 2
    bounds_by_column = file_entry | {"bounds": [[0, 0], [1, 7]]}
    expected = "preprocessing='range' needs one range that all columns share"
    for dataset in ("wine", bounds_by_column, "synth-2-2-0"):
        with pytest.raises(ConfigurationError, match=expected):
            cells(datasets=[dataset], k=1, preprocessing="range")

    # Points outside the range may be refused instead of clipped.
    with pytest.raises(ConfigurationError, match="lie outside the declared range"):
        cells(datasets=["blobs-1000-10-8"], preprocessing="range", clip=False)


def test_k_is_bounded_by_random_sizes():
    n = len(datasets.load("ablation-2-2-0.25").points)
    assert cells(datasets=["ablation-2-2-0.25"], k=n)
    expected = f"k={n + 1} is not allowed: k must be at most n={n}"
    with pytest.raises(ConfigurationError, match=expected):
        cells(datasets=["ablation-2-2-0.25"], k=n + 1)


def test_k_is_not_bounded_by_a_secret_size():
    hidden = {"method": "fastlloyd", "grid": {"adjacency": ["add_remove"]}}
    assert cells(datasets=["iris"], methods=[hidden], k=151)


def test_missing_method_is_a_gap():
    missing_method = {"name": "missing", "_target_": "no_such_package.Missing"}
    plan = make_plan(paper(methods=["lloyd", missing_method]), PROFILE)
    assert [cell.method for cell in plan.cells] == ["lloyd"]
    assert plan.gaps[0].method == "missing"
    assert "no_such_package" in plan.gaps[0].reason


def test_restricted_records_are_no_public_data(monkeypatch):
    monkeypatch.setattr("pkm.experiments.plan.feasibility.why_unavailable", lambda *_: None)
    assert cells(datasets=["yeast"], methods=["feddp_same"])
    with pytest.raises(ConfigurationError, match="null for 'tmi', whose records are not public"):
        cells(datasets=["tmi"], methods=["feddp_same"])
