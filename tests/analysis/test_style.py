"""Styles of methods: one for every figure, told apart within a paper, read from the rows."""

import numpy as np
import pandas as pd
import pytest
from styles import style_of

from pkm.analysis.figures.style import MethodStyles
from pkm.experiments.configuration import choices, load
from pkm.experiments.rows import style_columns


def methods_of(paper):
    """Names of the methods of a paper's sweeps, read from conf/paper."""
    names = set()
    for sweep in load([f"paper={paper}"]).paper.sweeps.values():
        for method in sweep.methods if sweep else ():
            names.add(method if isinstance(method, str) else method.method)
    return sorted(names)


def styles_of(*names):
    return MethodStyles(cells_of(*names))


def cells_of(*names):
    """Cells of methods, with the columns that rows have."""
    return pd.DataFrame([{"method": name, **style_of(name)} for name in names])


@pytest.mark.parametrize("paper", choices("paper"))
def test_methods_of_a_paper_are_told_apart(paper):
    methods = methods_of(paper)
    styles = styles_of(*methods)
    looks = [(styles[name].color, styles[name].marker, styles[name].hollow) for name in methods]
    assert len(set(looks)) == len(methods) > 2
    assert len({styles[name].label for name in methods}) == len(methods)


def test_a_method_has_one_color_and_marker_in_all_papers():
    pairs = {}
    for paper in choices("paper"):
        methods = methods_of(paper)
        styles = styles_of(*methods)
        for name in methods:
            pairs.setdefault(name, set()).add((styles[name].color, styles[name].marker))
    assert len(pairs) > 40 and all(len(found) == 1 for found in pairs.values())


@pytest.mark.parametrize("name", [name for name in choices("method") if name != "external"])
def test_every_configured_method_has_label_and_color(name):
    style = style_of(name)
    assert style["label"] and style["color"].startswith("#") and len(style["color"]) == 7
    assert len(style["marker"]) <= 1


def test_variants_keep_the_color_and_are_dashed_and_hollow():
    names = ("sulloyd", "sulloyd_fold", "sulloyd_sound")
    styles = styles_of(*names)
    found = [styles[name] for name in names]
    assert len({style.color for style in found}) == 1
    assert len({str(style.linestyle) for style in found}) == 3
    assert [style.hollow for style in found] == [False, True, True]
    assert [style.label for style in found] == ["SuLloyd", "SuLloyd (fold)", "SuLloyd (sound)"]
    line = styles["sulloyd_sound"].line()
    assert line["markerfacecolor"] == "white" and line["markeredgecolor"] == found[0].color


def test_labels():
    styles = styles_of("mufc_lazy", "dc_kmeans", "kaplan_stemmer_search", "kaplan_stemmer_local")
    assert styles.label("mufc_lazy") == "MUFC (lazy server)"
    assert styles.label("dc_kmeans") == "DC-KMeans"
    assert styles.label("kaplan_stemmer_search") == "Kaplan-Stemmer (local search)"
    assert styles.label("kaplan_stemmer_local") == "Kaplan-Stemmer, local"


@pytest.mark.parametrize(
    ("target", "label"),
    [
        ("lloyd.SuLloyd", "SuLloyd (sound)"),
        ("em_mc.EMMC", "EM-MC (sound)"),
        ("lloyd.Lloyd", "Lloyd, non-private"),  # not private, whatever its variant
        ("eugkm.EUGkM", "EUGkM"),  # without a published variant
    ],
)
def test_the_label_of_a_sound_variant_says_so(target, label):
    assert style_columns(f"pkm.methods.{target}", "sound", {})["label"] == label
    assert "sound" not in style_columns(f"pkm.methods.{target}", "published", {})["label"]
    given = style_columns(f"pkm.methods.{target}", "sound", {"label": "a (b)", "marker": "s"})
    assert given["label"] == "a (b)" and given["marker"] == "s"


def test_baselines_are_thin_broken_lines_without_markers():
    styles = styles_of("mean", "packing")
    mean, packing = (styles[name].line() for name in ("mean", "packing"))
    assert mean["marker"] is packing["marker"] is None
    assert mean["linewidth"] == packing["linewidth"] == 1.0
    assert mean["linestyle"] != packing["linestyle"]


def test_rows_without_styles_get_names_and_different_colors():
    names = [f"own_method{i}" for i in range(8)]
    cells = pd.DataFrame({"method": [*names, "own_sound"]})
    styles = MethodStyles(cells)
    assert (
        styles.label("own_method0") == "own method0" and styles.label("own_sound") == "own (sound)"
    )
    assert len({(styles[name].color, styles[name].marker) for name in names}) == 8
    # The order of rows does not matter, and neither do columns that hold nothing.
    again = MethodStyles(cells.iloc[::-1].assign(label="", color="", marker=""))
    assert all(styles[name] == again[name] for name in names)
    mixed = MethodStyles(pd.concat([cells_of("em_mc"), cells], ignore_index=True).fillna(""))
    assert mixed.label("em_mc") == "EM-MC"


def test_styles_are_no_parameters_and_no_part_of_the_identity():
    from pkm.experiments.cell import Cell

    facts = ("a", "pkm.methods.lloyd.Lloyd", (), "iris", "minmax", 3, None, None, (0,), ("nicv",))
    plain = Cell(*facts)
    styled = Cell(*facts, style=(("label", "b"),))
    assert plain == styled and plain.identity() == styled.identity() and plain.key == styled.key


def test_rows_carry_the_style(tmp_path):
    from pkm.experiments.cell import Cell
    from pkm.experiments.execute import execute

    facts = ("a", "pkm.methods.baselines.DataMean", (), "iris", "minmax", 3, None, None, (0, 1))
    rows = execute(Cell(*facts, ("nicv",), style=(("marker", "s"),)))
    assert rows["label"].unique().tolist() == ["data mean as only center"]
    assert rows["color"].unique().tolist() == ["#8c8c8c"]
    assert rows["marker"].unique().tolist() == ["s"] and np.isfinite(rows["nicv"]).all()
