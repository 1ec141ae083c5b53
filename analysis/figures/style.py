"""One look for every figure: a fixed color and marker per method, axis labels that say what epsilon means.

Colors are those of Okabe and Ito, which people with any of the common color deficiencies can tell apart; marker
and dash carry the same information again for print in grey.
"""

from dataclasses import dataclass

import matplotlib as mpl
import numpy as np

INK, GREY, PALE = "#222222", "#8c8c8c", "#d9d9d9"
_COLORS = {
    "lloyd": "#000000",
    "kmeans": "#cc79a7",
    "sulloyd": "#d55e00",
    "glloyd": "#0072b2",
    "fastlloyd": "#009e73",
    "dp_lloyd": "#d55e00",
    "em_mc": "#e69f00",
    "lsh_splits": "#0072b2",
    "dpm": "#009e73",
    "mufc": "#009e73",
    "dc_kmeans": "#0072b2",
    "k_fed": "#d55e00",
    "dist_dp": "#e69f00",
    "dist_dp_median": "#e69f00",
    "dist_dp_random_points": "#7a7a7a",
    "kaplan_stemmer": "#7a3e9d",
    "kaplan_stemmer_local": "#7a3e9d",
    "balcan": "#8a6d1f",
    "eugkm": "#b2182b",
    "ldp_lloyd": "#d55e00",
    "ldp_noise": "#0072b2",
}
_MARKERS = {
    "sulloyd": "s",
    "glloyd": "^",
    "fastlloyd": "o",
    "dp_lloyd": "s",
    "em_mc": "D",
    "lsh_splits": "^",
    "dpm": "o",
    "mufc": "o",
    "dc_kmeans": "^",
    "k_fed": "s",
    "dist_dp": "o",
    "dist_dp_median": "o",
    "dist_dp_random_points": "X",
    "kaplan_stemmer": "o",
    "kaplan_stemmer_local": "o",
    "balcan": "P",
    "eugkm": "p",
    "ldp_lloyd": "s",
    "ldp_noise": "^",
}
_SPARE = (("#e69f00", "D"), ("#56b4e9", "v"), ("#7a3e9d", "P"), ("#8a6d1f", "X"), ("#b2182b", "*"))
_NAMES = {
    "lloyd": "Lloyd (non-private)",
    "kmeans": "k-means++ (non-private)",
    "sulloyd": "SuLloyd",
    "glloyd": "GLloyd",
    "fastlloyd": "FastLloyd",
    "mean": "data mean as only center",
    "packing": "packing centers (no data)",
    "dp_lloyd": "DP-Lloyd",
    "em_mc": "EM-MC",
    "lsh_splits": "LSH-Splits",
    "dpm": "DPM",
    "mufc": "MUFC",
    "dc_kmeans": "DC-KMeans",
    "k_fed": "K-FED",
    "dist_dp": "dist-DP",
    "dist_dp_median": "dist-DP k-median",
    "dist_dp_random_points": "dist-DP random points",
    "kaplan_stemmer": "Kaplan-Stemmer",
    "kaplan_stemmer_local": "Kaplan-Stemmer, local",
    "balcan": "Balcan et al.",
    "eugkm": "EUGkM",
    "ldp_lloyd": "local Lloyd",
    "ldp_noise": "k-means on noisy reports",
    "ldp_mean": "local mean as only center",
}
YARDSTICKS = {"mean": (0, (1, 1.5)), "packing": (0, (5, 2)), "ldp_mean": (0, (1, 1.5))}
_SUFFIXES = {
    "fold": "fold",
    "sound": "sound",
    "truncate": "truncate",
    "uniform": "uniform start",
    "merged": "sound, merged to k",
    "points": "points in bins",
    "full": "full clients",
    "lazy": "lazy server",
    "search": "local search",
    "boxed": "knows the box only",
    "candidates": "candidates",
    "one_pass": "one pass",
    "candidates_one_pass": "candidates of one pass",
}
_SUFFIX_MARKERS = {
    "merged": "d",
    "points": "P",
    "full": "D",
    "search": "D",
    "boxed": "v",
    "candidates_one_pass": "s",
}
RC = {
    "font.family": "DejaVu Sans",
    "font.size": 10,
    "axes.titlesize": 11,
    "axes.labelsize": 10,
    "xtick.labelsize": 9,
    "ytick.labelsize": 9.5,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.edgecolor": "#555555",
    "axes.linewidth": 0.8,
    "axes.grid": True,
    "grid.color": "#e6e6e6",
    "grid.linewidth": 0.7,
    "axes.axisbelow": True,
    "xtick.color": INK,
    "ytick.color": INK,
    "legend.frameon": False,
    "figure.facecolor": "white",
    "savefig.facecolor": "white",
    "pdf.fonttype": 42,
}


@dataclass(frozen=True)
class MethodStyle:
    """How one method is drawn, everywhere."""

    label: str
    color: str
    dash: object
    marker: str | None
    hollow: bool

    def line(self):
        """Keyword arguments for a curve."""
        width = 1.0 if self.color == GREY else 1.8
        return {
            "color": self.color,
            "linestyle": self.dash,
            "linewidth": width,
            "marker": self.marker,
            "markersize": 5,
            "markerfacecolor": "white" if self.hollow else self.color,
            "markeredgecolor": self.color,
            "markeredgewidth": 1.2,
            "label": self.label,
        }


def parts(method):
    """Split a configuration name into the method and what follows it.

    Examples
    --------
    >>> parts("dp_lloyd_sound"), parts("sulloyd_fold"), parts("dpm"), parts("own_method")
    (('dp_lloyd', 'sound'), ('sulloyd', 'fold'), ('dpm', ''), ('own', 'method'))
    """
    for base in sorted(_NAMES, key=len, reverse=True):
        if method == base or method.startswith(f"{base}_"):
            return base, method[len(base) + 1 :]
    base, _, suffix = method.partition("_")
    return base, suffix


def look(method, variant="", known=()):
    """Return how a method is drawn.

    ``published`` methods are solid and filled; a suffix of the configuration name (``_fold``, ``_sound``) keeps color
    and marker and turns the line dashed and the marker hollow. Methods without a color of their own take the spare
    ones by their place among `known`.

    Parameters
    ----------
    method : str
        Configuration name, such as ``"sulloyd_fold"``.
    variant : str
        ``"published"``, ``"sound"`` or empty.
    known : sequence of str
        All methods of the figure, so that unknown ones get different spare colors.
    """
    base, suffix = parts(method)
    if base in YARDSTICKS:
        return MethodStyle(_NAMES[base], GREY, YARDSTICKS[base], None, False)
    if base in _COLORS:
        color, marker = _COLORS[base], _SUFFIX_MARKERS.get(suffix, _MARKERS.get(base))
    else:
        strangers = sorted({parts(name)[0] for name in known} - set(_COLORS) - set(YARDSTICKS)) or [
            base
        ]
        color, marker = _SPARE[strangers.index(base) % len(_SPARE)]
    name = _NAMES.get(base, base)
    kind = _SUFFIXES.get(suffix, suffix.replace("_", " ")) or (
        "sound" if variant == "sound" else ""
    )
    dash = {"": "-", "sound": (0, (4, 1.5))}.get(kind, (0, (2, 1.2)))
    label = (
        name if not kind else f"{name[:-1]}, {kind})" if name.endswith(")") else f"{name} ({kind})"
    )
    return MethodStyle(label, color, dash, marker, bool(kind))


def epsilon_label(cells):
    """Label an epsilon axis with adjacency and notion; refuse cells that must not share one.

    Parameters
    ----------
    cells : DataFrame
        Cells drawn on the axis (columns `method`, `notion`, `adjacency`, `delta`, `n`).

    Returns
    -------
    str
        For example ``"ε (zero-out; δ = 1/(N ln N), SuLloyd δ = 0)"``.

    Raises
    ------
    ValueError
        If private cells of different adjacencies, or of different trust models, would share the axis.
    """
    private = cells[cells["notion"] != "none"]
    if not len(private):
        return "ε (no private result)"
    for fact in ("adjacency", "trust"):
        found = sorted(private[fact].unique())
        if len(found) > 1:
            raise ValueError(
                f"{fact}={found} on one epsilon axis: results under different {fact} need axes of their own"
            )
    adjacency = private["adjacency"].iloc[0].replace("_", "-")
    approximate = private[private["notion"] == "approximate"]
    pure = sorted(
        {
            look(name).label.split(" (")[0]
            for name in private.loc[private["notion"] == "pure", "method"]
        }
    )
    parts = [_delta_text(approximate)] if len(approximate) else []
    if pure:
        parts.append("δ = 0" if not parts else f"{', '.join(pure)} δ = 0")
    return f"ε ({adjacency}; {', '.join(parts)})"


def _delta_text(cells):
    delta, n = cells["delta"].to_numpy(dtype=float), cells["n"].to_numpy(dtype=float)
    if np.allclose(delta, 1 / (n * np.log(n)), rtol=1e-6):
        return "δ = 1/(N ln N)"
    if np.allclose(delta, n**-1.5, rtol=1e-6):
        return "δ = 1/(N √N)"
    if np.ptp(delta) == 0:
        return f"δ = {delta[0]:.3g}"
    return f"δ = {delta.min():.1g} to {delta.max():.1g} by data set"


def styled():
    """Context in which figures are made."""
    return mpl.rc_context(RC)
