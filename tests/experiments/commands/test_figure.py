"""Figures from the command line: one file, or all pictures and tables of a paper."""

import pandas as pd
import pytest
from fabricated.fastlloyd import small_rows
from PIL import Image

from pkm.analysis.figures.figure import find_figure
from pkm.analysis.render import plot
from pkm.experiments.backends.backends import run_cells
from pkm.experiments.commands import figure
from pkm.experiments.config.backend import Backend
from pkm.experiments.plan.plan import make_plan
from pkm.experiments.store.store import Store

pytestmark = pytest.mark.integration


@pytest.fixture
def fabricated(monkeypatch):
    monkeypatch.setattr(figure, "read_rows", lambda keys: small_rows())


@pytest.mark.slow
@pytest.mark.usefixtures("fabricated")
def test_one_figure_is_one_file(tmp_path):
    name = "fastlloyd/figure6"
    assert figure.main([name, "style=paper", f"out={tmp_path / 'fig6.pdf'}"]) == 0
    assert (tmp_path / "fig6.pdf").read_bytes().startswith(b"%PDF")
    assert figure.main([name, f"out={tmp_path / 'folder'}"]) == 0
    assert (tmp_path / "folder" / "fastlloyd-figure6.png").is_file()
    column = tmp_path / "column.png"
    assert figure.main([name, "style=paper", "width=3.3", f"out={column}"]) == 0
    with Image.open(column) as picture:
        # White margins are cut.
        assert 0.9 < picture.width / picture.info["dpi"][0] / 3.3 <= 1


@pytest.mark.slow
@pytest.mark.usefixtures("fabricated")
@pytest.mark.no_cover  # other tests run the same code
def test_a_paper_is_a_folder_of_pictures_and_tables(tmp_path, capsys):
    assert figure.main(["fastlloyd", "style=paper", f"out={tmp_path}"]) == 0
    source = Image.open(tmp_path / "fastlloyd-figure2.png").info[plot.SOURCE]
    spec = find_figure("fastlloyd/figure2")
    assert source == plot.digest(spec.in_style("paper"), "paper") != plot.digest(spec, "paper")
    assert "Synth" in pd.read_csv(tmp_path / "fastlloyd-table2.csv")["data set"].tolist()
    assert "fastlloyd/protocol_parts: no stored rows" in capsys.readouterr().out


def test_rows_are_those_of_the_store(tmp_path):
    paper = {
        "name": "mini",
        "epsilon": [1.0],
        "sweeps": {"one": {"datasets": ["iris"], "methods": ["mean"]}},
    }
    plan = make_plan(paper, {"name": "tiny", "seeds": 2})
    run_cells(plan.cells, Store(tmp_path), Backend())
    # Those cells are of no sweep of the paper.
    keys = {"paper": "pe-means", "profile": "smoke", "results": f"{tmp_path}"}
    assert figure.read_rows(keys).empty


@pytest.mark.usefixtures("fabricated")
def test_refusals_are_one_line(capsys):
    for words, message in (
        (["fastlloyd/figure2", "style=slides"], "style='slides' must be one of bench, paper"),
        (["fastlloyd/figure2", "width=1"], "width=1 is not allowed: width must be at least 1.3"),
        (["fastlloyd/figur2"], "did you mean 'fastlloyd/figure2'"),
        (["fastlloyd", "width=3.3"], "width must be left out, except for one figure"),
        ([], "one figure, such as fastlloyd/figure8"),
    ):
        assert figure.main(words) == 2
        assert message in capsys.readouterr().err
