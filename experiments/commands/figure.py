"""Draw figures of papers from stored rows: ``pkm figure NAME``.

    pkm figure fastlloyd/figure2 style=paper out=fig2.pdf
    pkm figure fastlloyd/figure8 style=paper width=3.3 out=fig8.pdf
    pkm figure dpm/figure1 profile=paper results=results
    pkm figure all style=paper out=docs/figures

NAME is a paper and a figure's name; a paper alone stands for all figures and tables of
the paper, ``all`` for those of every paper, where ``style`` holds for what is in the
paper. ``style=bench``, the default, has our controls; ``style=paper`` has the paper's
own curves alone, in the width that the figure declares for its venue, or that of a page
of two columns; ``width`` is another one, in inches, of one figure. ``out`` is a file,
PNG or PDF, or a folder; tables become CSV. Further words are keys of `pkm reproduce`
(profile, results, data; the profile is quick by default).
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import pandas as pd
from matplotlib.figure import Figure

from pkm.analysis.figures.figure import FigureSpec, find_figure, read_figures
from pkm.analysis.render import plot
from pkm.analysis.render.draw import draw
from pkm.analysis.render.panel import MIN_WIDTH
from pkm.analysis.tables.study import Study
from pkm.experiments.applications.composition import load_config
from pkm.experiments.config.groups import ALL_PAPERS, choices
from pkm.experiments.config.settings import require
from pkm.experiments.console.console import make_main, require_one
from pkm.experiments.plan.plan import make_plan
from pkm.experiments.store.store import Store
from pkm.files import atomic_write
from pkm.scalars import is_positive
from pkm.yaml_files import read_value

SUFFIXES = (".png", ".pdf")


def figure(
    name: str,
    results: str | Path | pd.DataFrame = "results",
    *,
    profile: str = "quick",
    style: str = "bench",
    width: float | None = None,
) -> Figure:
    """Draw a figure of a paper from stored rows.

    Parameters
    ----------
    name : str
        ``PAPER/FIGURE``, such as ``"fastlloyd/figure2"``.
    results : path or DataFrame, default="results"
        The results folder, or rows with their sweeps.
    profile : str, default="quick"
        Whose rows are read from a folder.
    style : {"bench", "paper"}, default="bench"
        ``paper`` has the paper's own curves alone, in its size; ``bench`` also our
        controls.
    width : float, optional
        Inches. Default: what the figure declares for its venue, or the style's.

    Returns
    -------
    matplotlib.figure.Figure
        Its axes can be restyled. `savefig` writes it.

    Raises
    ------
    ValueError
        If there is no such figure, it is a table, none of its rows is stored, or the
        width is below that of a panel.
    """
    spec = find_figure(name)
    if width is not None:
        is_wide = is_positive(width) and width >= MIN_WIDTH
        require(is_wide, "width", width, f"at least {MIN_WIDTH} inches")
        spec = replace(spec, width=width)
    plot.style_path(style)
    rows = results
    if not isinstance(rows, pd.DataFrame):
        keys = {"paper": spec.paper, "profile": profile, "results": f"{results}"}
        rows = read_rows(keys)
    result = draw(Study(rows), spec.in_style(style)) if len(rows) else None
    if result is None or result.drawing is None:
        raise ValueError(
            f"figure {name} has no picture: it is a table, or no row is stored; "
            f"pkm reproduce paper={spec.paper} profile={profile} makes them"
        )
    return plot.plot(result.drawing, style)


def read_rows(keys: Mapping[str, str]) -> pd.DataFrame:
    """Return the stored rows of a profile of a paper, with their sweeps."""
    overrides = [f"{key}={value}" for key, value in keys.items() if key != "tracking"]
    config = load_config([*overrides, "tracking=none"])
    plan = make_plan(config.paper, config.profile, data_dir=config.data)
    return plan.read_rows(Store(config.results))


def run(names: Sequence[str], options: dict[str, str]) -> None:
    """Draw one figure, or all of a paper, and print the paths of the files."""
    rule = "one figure, such as fastlloyd/figure8, one paper, or all"
    name = require_one(names, "name", rule)
    style = options.pop("style", "bench")
    width = read_value(options.pop("width", ""))
    out = Path(options.pop("out", "."))
    plot.style_path(style)
    if "/" in name:
        spec = find_figure(name)
        if out.suffix not in SUFFIXES:
            out = out / f"{spec.file_name}.png"
        rows = read_rows(options | {"paper": spec.paper})
        drawn = figure(name, rows, style=style, width=width)
        picture = plot.save(drawn, out.suffix[1:])
        out.parent.mkdir(parents=True, exist_ok=True)
        atomic_write(out, picture)
        print(out)
        return
    require(width is None, "width", width, "left out, except for one figure")
    papers = choices("paper") if name == ALL_PAPERS else [name]
    out.mkdir(parents=True, exist_ok=True)
    for paper in papers:
        rows = read_rows(options | {"paper": paper})
        if rows.empty:
            print(f"{paper}: no stored rows")
            continue
        study = Study(rows)
        for spec in read_figures(paper):
            if spec.in_paper or spec.on_page:
                _write(study, spec, style if spec.in_paper else "bench", out)


def _write(
    study: Study,
    spec: FigureSpec,
    style: str,
    folder: Path,
) -> None:
    """Write the picture of a figure, or the table of one without."""
    spec = spec.in_style(style)
    result = draw(study, spec)
    path = folder / spec.file_name
    if result.drawing is not None:
        path = path.with_suffix(".png")
        drawn = plot.plot(result.drawing, style)
        atomic_write(path, plot.save(drawn, "png", plot.digest(spec, style)))
    elif spec.kind == "table" and len(result.formatted):
        path = path.with_suffix(".csv")
        atomic_write(path, result.formatted.to_csv(index=False).encode())
    else:
        print(f"{spec.paper}/{spec.name}: no stored rows")
        return
    print(path)


main = make_main("figure", __doc__, "NAME", (), run)
