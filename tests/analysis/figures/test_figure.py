"""Figures as data: keys are checked, captions name intervals, pictures of pages are not old."""

from pathlib import Path

import pandas as pd
import pytest
import record
import reports
import yaml
from fabricated.fastlloyd import small_rows
from fabricated.studies import ROWS, study_of
from figure_specs import drawn, spec_of
from matplotlib.figure import Figure
from PIL import Image

from pkm import analysis, catalogue
from pkm.analysis.figures import figure
from pkm.analysis.figures.figure import read_figures
from pkm.analysis.pages.audit_figure import read_spec
from pkm.analysis.render import plot
from pkm.catalogue import CONF
from pkm.experiments.config.groups import choices

#: Figures of the papers whose panels are all listed.
LISTED = [
    (paper, spec.name)
    for paper in ("distdp", "kaplan-stemmer", "mufc")
    for spec in read_figures(paper)
]
#: What a caption calls an interval.
INTERVALS = {
    "t95": ("95 %", "Bars:"),
    "bootstrap95": ("95 %",),
    "se3": ("standard error",),
    "deviation": ("deviation",),
}


@pytest.mark.parametrize("paper", choices("paper"))
def test_captions_name_the_intervals(paper):
    for spec in read_figures(paper):
        caption = " ".join(spec.caption)
        has_intervals = spec.kind in ("lines", "forest")
        specs = [spec, *map(spec.for_panel, spec.panels)] if has_intervals else []
        for interval in {each.interval for each in specs} - {"none"}:
            assert any(name in caption for name in INTERVALS[interval]), spec.name


@pytest.mark.slow
@pytest.mark.parametrize(("paper", "name"), LISTED)
def test_figures_without_rows_report_gaps(paper, name):
    result = reports.draw(paper, name, reports.foreign_rows())
    assert result.missing
    assert all(gap.endswith("not run: no stored rows") for gap in result.missing)


@pytest.mark.parametrize(
    ("paper", "name", "sweep"),
    [
        ("dpm", "matched", "timing"),
        ("fastlloyd", "table2", "ablation"),
        ("pe-means", "areas", "reference"),
    ],
)
def test_rows_of_one_sweep_alone_are_enough_for_every_figure(paper, name, sweep):
    rows = ROWS[paper]()
    result = reports.draw(paper, name, rows[rows["sweep"] == sweep])
    assert result.drawing is None


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"swep": "real"}, "'swep' is unknown; did you mean 'sweep'?"),
        ({"share_y": "yes"}, "share_y='yes' must be of type bool"),
        ({"kind": "pie"}, "kind: 'pie' is unknown; known are"),
        ({"panels": ["iris"]}, "panels=.* must be of type Mapping"),
        ({"panels": {"iris": {"titel": "Iris"}}}, "did you mean 'title'"),
        ({"frame": "missing"}, "no function 'missing' in pkm.analysis.papers.fastlloyd"),
        ({"caption": "on {stes}"}, r"field {stes} is unknown; did you mean 'sets'"),
    ],
)
def test_wrong_keys_are_refused(keys, message):
    with pytest.raises(ValueError, match=message):
        drawn(spec_of(**({"panel": "dataset", "methods": "lloyd_published"} | keys)))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("figures: {a: {kind: line}}", "kind: 'line' is unknown; did you mean 'lines'"),
        ("figures: {a: {titel: A}}", "figure a: 'titel' is unknown"),
        ("figures: [a]", r"figures=\['a'\] must be a Mapping"),
        ("figures: {a: {title: A}}\nfigure: 1", "did you mean 'figures'"),
        ("figures: {a", "figures.yaml"),
    ],
)
def test_wrong_files_are_refused(text, message, tmp_path, monkeypatch):
    search_path = (tmp_path,)
    monkeypatch.setattr(catalogue, "current", lambda: catalogue.Catalogue(search_path))
    folder = tmp_path / "paper" / "new"
    folder.mkdir(parents=True)
    (folder / "sweeps.yaml").write_text("sweeps: {}")
    (folder / "figures.yaml").write_text(text)
    with pytest.raises(ValueError, match=message):
        figure.read_figures.__wrapped__("new")


def test_files_have_known_keys():
    for path in sorted(CONF.glob("paper/*/figures.yaml")):
        specs = figure.read_figures(path.parent.name)
        content = yaml.safe_load(path.read_text(encoding="utf-8"))
        assert [spec.name for spec in specs] == list(content["figures"])
        assert all(spec.title != spec.name for spec in specs)


PAPER_STYLES = [
    ("distdp", "figure1", ["dist_dp_printed", "dist_dp_random_points", "kmeans",
                           "lsh_splits_published"]),
    ("fastlloyd", "figure2", ["fastlloyd_published", "glloyd_published", "lloyd_published",
                              "sulloyd_published"]),
    ("mufc", "figure4_times", ["dc_kmeans", "mufc_lazy", "retraining"]),
]  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize(("paper", "name", "hues"), PAPER_STYLES)
def test_the_style_of_a_paper_has_its_own_curves_alone(paper, name, hues):
    spec = reports.figure_spec(paper, name).in_style("paper")
    drawing = reports.figures.draw(study_of(paper), spec).drawing
    shown = {hue for panel in drawing.panels for hue in panel.table["hue"]}
    assert sorted(shown) == hues
    bench = reports.figure_of(paper, name).drawing
    assert shown < {hue for panel in bench.panels for hue in panel.table["hue"]}


def test_distance_based_figure_has_the_colors_of_the_paper():
    spec = reports.figure_spec("distdp", "figure1").in_style("paper")
    drawing = reports.figures.draw(study_of("distdp"), spec).drawing
    colors = {hue: style.line["color"] for hue, style in drawing.styles.items()}
    assert colors["kmeans"] == "#1f77b4"  # blue
    assert colors["lsh_splits_published"] == "#2ca02c"  # green
    assert not any(panel.log for panel in drawing.panels)


def test_a_figure_is_drawn_for_python_from_rows():
    drawn = analysis.figure("fastlloyd/figure2", small_rows(), style="paper")
    assert isinstance(drawn, Figure)
    assert [axes.get_title() for axes in drawn.axes] == [
        "(a) Iris (log)",
        "(b) S1",
        "(c) Wine (log)",
    ]
    with pytest.raises(ValueError, match="did you mean 'fastlloyd/figure2'"):
        analysis.figure("fastlloyd/figur2", small_rows())
    with pytest.raises(ValueError, match="no picture: it is a table"):
        analysis.figure("fastlloyd/table2", small_rows())


#: Screenshots of other programs, which no declaration draws.
# Of the dashboard, and made from entries, as a test of the arena compares.
SCREENSHOTS = {"mlflow", "leaderboard-pure", "leaderboard-approximate"}
FOLDER = Path(__file__).parents[3] / "docs" / "figures"
PICTURES = sorted(FOLDER.glob("*.png"))
TABLES = sorted(FOLDER.glob("*.csv"))
#: Why pictures stay that today's code would draw otherwise.
OLDER = yaml.safe_load((FOLDER / "older.yaml").read_text())


@pytest.mark.parametrize("path", PICTURES, ids=lambda path: path.stem)
def test_pictures_older_than_figure_or_renderer_are_listed(path):
    """`make figures` and `make audit` draw them anew, from what is stored."""
    source = Image.open(path).info.get(plot.SOURCE)
    if path.stem in SCREENSHOTS:
        assert source is None
        return
    specs = {spec.file_name: spec for spec in all_figures()}
    spec = (specs | {"audit": read_spec()})[path.stem]
    style = "paper" if spec.in_paper else "bench"
    is_declared = source == plot.digest(spec.in_style(style), style)
    is_older = not is_declared or record.stored("pictures")[path.stem]["older"]
    assert is_older == (path.stem in OLDER)


@pytest.mark.parametrize("path", TABLES, ids=lambda path: path.stem)
def test_tables_of_pages_have_the_columns_of_their_figures(path):
    specs = {spec.file_name: spec for spec in all_figures()}
    spec = specs[path.stem]
    columns = list(pd.read_csv(path, nrows=0))
    if spec.print_lines:
        assert columns == list(spec.print_lines)
        return
    expected = [*spec.print_rows.values()]
    assert [column for column in columns if column in expected] == expected


def all_figures():
    """Figures of all papers."""
    for path in CONF.glob("paper/*/figures.yaml"):
        yield from figure.read_figures(path.parent.name)
