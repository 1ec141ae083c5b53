"""Tables as files to cite: CSV with all digits, and LaTeX."""

from pathlib import Path

import pandas as pd


def latex(table: pd.DataFrame, caption: str, label: str) -> str:
    """Set a table in LaTeX with booktabs rules; special characters are escaped."""
    texts = table.map(_latex_cell).rename(columns=lambda name: _latex_escape(str(name)))
    text = texts.to_latex(index=False, caption=_latex_escape(caption), label=label)
    return text.replace(r"\caption", "\\centering\\small\n\\caption", 1)


def _latex_cell(value: object) -> str:
    return _latex_escape(f"{value:.4g}" if isinstance(value, float) else str(value))


_LATEX = {
    "\\": r"\textbackslash{}",
    "&": r"\&",
    "%": r"\%",
    "$": r"\$",
    "#": r"\#",
    "_": r"\_",
    "{": r"\{",
    "}": r"\}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "±": r"$\pm$",
    "ε": r"$\varepsilon$",
    "δ": r"$\delta$",
    "α": r"$\alpha$",
    "–": "--",
    "≤": r"$\leq$",
    "≥": r"$\geq$",
    "²": r"$^2$",
    "↑": r"$\uparrow$",
    "↓": r"$\downarrow$",
    "→": r"$\rightarrow$",
    "·": r"$\cdot$",
    "√": r"$\surd$",
    "×": r"$\times$",
}


def _latex_escape(text: str) -> str:
    return "".join(_LATEX.get(character, character) for character in text)


def write(
    table: pd.DataFrame,
    folder: Path,
    name: str,
    *,
    formatted: pd.DataFrame | None = None,
    caption: str = "",
) -> tuple[Path, Path]:
    """Write one table as ``<name>.csv`` (full precision) and ``<name>.tex`` (booktabs).

    Parameters
    ----------
    table : DataFrame
        The numbers, one observation per line.
    folder : Path
        Must exist.
    name : str
        File name without ending; also the LaTeX label.
    formatted : DataFrame, optional
        The same content laid out for print; `table` itself by default.
    caption : str
        Caption of the LaTeX table.

    Returns
    -------
    tuple of Path
        The CSV and the LaTeX file.
    """
    csv = Path(folder) / f"{name}.csv"
    tex = Path(folder) / f"{name}.tex"
    table.to_csv(csv, index=False)
    typeset = table if formatted is None else formatted
    tex.write_text(latex(typeset, caption, f"tab:{name}"), encoding="utf-8")
    return csv, tex
