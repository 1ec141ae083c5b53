"""Texts that figures share: what is missing, formats of numbers, labels of axes."""

import re
from collections.abc import Iterable, Mapping

import numpy as np
import pandas as pd

from pkm.analysis.figures.styles import MethodStyles, shorten

NO_DATA = "not run: no stored rows"
DASH = "–"
LOG_RATIO = 5.0


def wants_log(means: np.ndarray) -> bool:
    """Tell whether a linear axis would hide the smallest of the positive means."""
    means = means[np.isfinite(means)]
    return bool(
        means.size and (means > 0).all() and means.max() > LOG_RATIO * means.min()
    )


# Texts


def not_run_texts(names: Iterable[str]) -> tuple[str, ...]:
    """Say of each name that nothing is stored of it."""
    return tuple(f"{name}: {NO_DATA}" for name in names)


def find_unstored(
    titles: Mapping[str, str],
    stored: pd.DataFrame,
) -> tuple[str, ...]:
    """Say of which data sets, by their titles, nothing is stored."""
    known = set(stored["dataset"])
    return not_run_texts(title for name, title in titles.items() if name not in known)


def missing_text(missing: Iterable[str]) -> str:
    """Say in one line what a figure does not show; empty if that is nothing.

    Examples
    --------
    >>> missing_text([*not_run_texts(["Iris", "S1"]), "DPM: not timed"])
    'Not shown, no stored rows: Iris; S1. Not shown: DPM: not timed.'
    """
    ending = f": {NO_DATA}"
    missing = list(missing)
    absent = [text.removesuffix(ending) for text in missing if text.endswith(ending)]
    others = [text for text in missing if not text.endswith(ending)]
    texts = [f"Not shown, no stored rows: {'; '.join(absent)}."] if absent else []
    texts += [f"Not shown: {'; '.join(others)}."] if others else []
    return " ".join(texts)


def count_text(
    counts: Iterable[float],
    noun: str = "seeds",
) -> str:
    """Write a range of counts.

    Examples
    --------
    >>> count_text([10, 10]), count_text([3, 10], "runs"), count_text([])
    ('10 seeds', '3 to 10 runs', 'no seeds')
    """
    values = [int(count) for count in counts]
    if not values:
        return f"no {noun}"
    low = min(values)
    high = max(values)
    return f"{high} {noun}" if low == high else f"{low} to {high} {noun}"


def format_number(value: float) -> str:
    """Format with three digits; a dash where there is no finite value."""
    return f"{value:.3g}" if np.isfinite(value) else DASH


def plain_number(
    value: float,
    _: object = None,
) -> str:
    """Format a number without exponents where it stays short.

    Examples
    --------
    >>> [plain_number(value) for value in (0.25, 0.00884, 1500, 15000, 1e-4)]
    ['0.25', '0.0088', '1500', '1.5e4', '1e-4']
    """
    if value == 0:
        return "0"
    if 1e-3 <= abs(value) < 1e-2:
        return f"{value:.2g}"
    if 1e-2 <= abs(value) < 1e4:
        return f"{value:.0f}" if abs(value) >= 1000 else f"{value:.3g}"
    return short_exponents(f"{value:.1e}".replace(".0e", "e"))


def short_exponents(text: str) -> str:
    """Write exponents without plus signs and leading zeros.

    Examples
    --------
    >>> short_exponents("1.2e+06 and 3e-05")
    '1.2e6 and 3e-5'
    """
    return re.sub(r"(?<=\d)e(-?)\+?0*(?=\d)", r"e\1", text)


def short_number(value: float) -> str:
    """Format a tick: thousands as k, millions as M.

    Examples
    --------
    >>> [short_number(value) for value in (0.05, 8, 30000, 1e6)]
    ['0.05', '8', '30k', '1M']
    """
    for size, letter in ((1e6, "M"), (1e3, "k")):
        if value >= size:
            return f"{value / size:.3g}{letter}"
    return plain_number(value)


def times_text(value: float) -> str:
    """Format a speed-up with three digits, without exponents."""
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def interval_text(
    value: float,
    half_width: float,
) -> str:
    """Write ``value ± half-width`` down to two digits of the half-width.

    The value alone if there is no half-width; a dash without a value.

    Examples
    --------
    >>> interval_text(12.3456, 0.0312), interval_text(5.0, np.nan)
    ('12.346 ± 0.031', '5')
    """
    if not np.isfinite(value):
        return DASH
    if not 0 < half_width < np.inf:
        return f"{value:.4g}"
    places = max(1 - int(np.floor(np.log10(half_width))), 0)
    return f"{value:.{places}f} ± {half_width:.{places}f}"


# Labels of axes


def epsilon_label(cells: pd.DataFrame) -> str:
    """Label an epsilon axis with adjacency, unit and notion; refuse cells of several.

    Parameters
    ----------
    cells : DataFrame
        Cells drawn on the axis (columns `method`, `notion`, `adjacency`, `unit`,
        `delta`, `n`).

    Returns
    -------
    str
        For example ``"ε (zero-out; δ = 1/(N ln N); δ = 0 for SuLloyd)"``.

    Raises
    ------
    ValueError
        If private cells of different adjacencies, units or trust models would share
        the axis.
    """
    private = cells[cells["notion"] != "none"]
    if not len(private):
        return "ε (no private result)"
    for fact in ("adjacency", "unit", "trust"):
        values = sorted(private[fact].unique())
        if len(values) > 1:
            raise ValueError(
                f"{fact}={values} on one epsilon axis: results under different {fact} "
                "need separate axes"
            )
    adjacency = private["adjacency"].iloc[0].replace("_", "-")
    if private["unit"].iloc[0] == "person":
        adjacency += " of a person"
    approximate = private[private["notion"] == "approximate"]
    styles = MethodStyles(cells)
    pure_methods = private.loc[private["notion"] == "pure", "method"]
    # Commas separate methods here, not a method from its variation.
    labels = map(styles.label, pure_methods)
    pure = sorted({shorten(label).replace(",", "") for label in labels})
    deltas = [_delta_text(approximate)] if len(approximate) else []
    if pure:
        deltas.append(f"δ = 0 for {', '.join(pure)}" if deltas else "δ = 0")
    return f"ε ({'; '.join([adjacency, *deltas])})"


def _delta_text(cells: pd.DataFrame) -> str:
    delta, n = cells[["delta", "n"]].to_numpy(dtype=float).T
    if np.allclose(delta, 1 / (n * np.log(n)), rtol=1e-6):
        return "δ = 1/(N ln N)"
    if np.allclose(delta, n**-1.5, rtol=1e-6):
        return "δ = 1/(N √N)"
    if np.ptp(delta) == 0:
        return short_exponents(f"δ = {delta[0]:.3g}")
    return short_exponents(f"δ = {delta.min():.1g} to {delta.max():.1g} by data set")
