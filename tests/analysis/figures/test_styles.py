"""Styles of methods: one for every figure, distinct within a paper."""

from collections import defaultdict

import pandas as pd
import pytest
from styles import style_of

from pkm.analysis.figures.styles import MethodStyles
from pkm.experiments.applications.composition import load_config
from pkm.experiments.config.groups import choices


def methods_of(paper):
    """Names of the methods of a paper's sweeps, read from conf/paper."""
    names = set()
    for sweep in load_config([f"paper={paper}"]).paper.sweeps.values():
        for method in sweep.methods if sweep else ():
            names.add(method if isinstance(method, str) else method.method)
    return sorted(names)


def styles_of(*names):
    return MethodStyles(cells_of(*names))


def cells_of(*names):
    """Cells of methods, with the columns that rows have."""
    return pd.DataFrame([{"method": name, **style_of(name)} for name in names])


@pytest.mark.slow
@pytest.mark.parametrize("paper", choices("paper"))
def test_methods_of_a_paper_have_distinct_styles(paper):
    methods = methods_of(paper)
    styles = styles_of(*methods)
    method_styles = [styles[name] for name in methods]
    markers = {(style.color, style.marker, style.hollow) for style in method_styles}
    labels = {style.label for style in method_styles}
    assert len(methods) > 2
    assert len(markers) == len(methods)
    assert len(labels) == len(methods)


@pytest.mark.slow
def test_methods_have_the_same_style_in_all_papers():
    markers = defaultdict(set)
    for paper in choices("paper"):
        methods = methods_of(paper)
        styles = styles_of(*methods)
        for name in methods:
            style = styles[name]
            markers[name].add((style.color, style.marker))
    assert len(markers) > 40
    assert all(len(pairs) == 1 for pairs in markers.values())


@pytest.mark.parametrize("name", choices("method"))
def test_configured_methods_have_label_and_color(name):
    style = style_of(name)
    assert style["label"]
    assert style["color"].startswith("#")
    assert len(style["color"]) == 7
    assert len(style["marker"]) <= 1


def test_variants_share_the_color():
    names = ("sulloyd_published", "sulloyd_published_fold", "sulloyd")
    styles = styles_of(*names)
    variants = [styles[name] for name in names]
    assert len({style.color for style in variants}) == 1
    assert len({str(style.linestyle) for style in variants}) == 3
    assert [style.hollow for style in variants] == [False, True, True]
    assert [style.label for style in variants] == ["SuLloyd", "SuLloyd (fold)", "SuLloyd (sound)"]
    line = styles["sulloyd"].line()
    assert line["markerfacecolor"] == "white"
    assert line["color"] == variants[0].color


def test_labels():
    styles = styles_of("mufc_lazy", "dc_kmeans", "kaplan_stemmer_search", "kaplan_stemmer_local")
    assert styles.label("mufc_lazy") == "MUFC (lazy server)"
    assert styles.label("dc_kmeans") == "DC-KMeans"
    assert styles.label("kaplan_stemmer_search") == "Kaplan-Stemmer (local search)"
    assert styles.label("kaplan_stemmer_local") == "Kaplan-Stemmer, local"


def test_baselines_have_thin_lines_without_markers():
    styles = styles_of("mean", "packing")
    mean = styles["mean"].line()
    packing = styles["packing"].line()
    assert mean["marker"] is None
    assert packing["marker"] is None
    assert mean["linewidth"] == 1.0
    assert packing["linewidth"] == 1.0
    assert mean["linestyle"] != packing["linestyle"]


def test_default_styles_are_distinct():
    names = [f"new_method{i}" for i in range(8)]
    cells = pd.DataFrame({"method": names})
    styles = MethodStyles(cells)
    assert styles.label("new_method0") == "new method0"
    assert len({(styles[name].color, styles[name].marker) for name in names}) == 8
    # The order of rows does not matter, and neither do empty columns.
    reversed_cells = cells.iloc[::-1].assign(label="", color="", marker="")
    reversed_styles = MethodStyles(reversed_cells)
    assert all(styles[name] == reversed_styles[name] for name in names)
    mixed_cells = pd.concat([cells_of("em_mc"), cells], ignore_index=True).fillna("")
    assert MethodStyles(mixed_cells).label("em_mc") == "EM-MC (sound)"


def test_a_method_with_a_label_alone_gets_a_color():
    """A method from outside may declare no more."""
    row = {"method": "own", "label": "own method", "color": "", "marker": ""}
    style = MethodStyles(pd.DataFrame([row]))["own"]
    assert style.label == "own method"
    assert style.color
    assert style.marker
