"""Tables as files to cite: CSV with all digits, and LaTeX."""

from pathlib import Path

import pandas as pd

from pkm.yaml_files import read_file

_LATEX = str.maketrans(read_file(Path(__file__).with_name("latex.yaml")))


def latex(
    table: pd.DataFrame,
    caption: str,
    label: str,
) -> str:
    """Set a table in LaTeX with booktabs rules; special characters are escaped."""

    def escape(value: object) -> str:
        text = f"{value:.4g}" if isinstance(value, float) else str(value)
        return text.translate(_LATEX)

    texts = table.map(escape).rename(columns=escape)
    text = texts.to_latex(
        index=False,
        caption=escape(caption),
        label=label,
    )
    return text.replace(r"\caption", "\\centering\\small\n\\caption", 1)


def write(
    table: pd.DataFrame,
    folder: Path,
    name: str,
    formatted: pd.DataFrame,
    caption: str,
) -> None:
    """Write one table as ``<name>.csv`` (full precision) and ``<name>.tex`` (booktabs).

    Parameters
    ----------
    table : DataFrame
        The numbers, one observation per line.
    folder : Path
        Must exist.
    name : str
        File name without ending; also the LaTeX label.
    formatted : DataFrame
        The same content laid out for print.
    caption : str
        Caption of the LaTeX table.
    """
    table.to_csv(folder / f"{name}.csv", index=False)
    text = latex(formatted, caption, f"tab:{name}")
    (folder / f"{name}.tex").write_text(text, encoding="utf-8")
