"""Mean ranks as a picture: who cannot be told apart (Demšar, 2006, figure 1)."""

from pathlib import Path

import matplotlib.pyplot as plt
import pandas as pd

import pkm.analysis.render

STYLE = Path(pkm.analysis.render.__file__).with_name("bench.mplstyle")
#: Inches of a line, and of what is above and below.
LINE_HEIGHT = 0.26
MARGIN = 1.0


def draw_ranks(ranks: pd.DataFrame, path: Path) -> None:
    """Draw mean ranks with intervals, and the critical difference from the best.

    Parameters
    ----------
    ranks : DataFrame
        From `ranking.rank`, the best first, with labels.
    path : Path
        PNG or PDF.
    """
    height = MARGIN + LINE_HEIGHT * len(ranks)
    best = ranks["mean_rank"].iloc[0]
    difference = ranks["critical_difference"].iloc[0]
    lines = range(len(ranks))
    with plt.style.context(STYLE):
        figure, axes = plt.subplots(figsize=(7, height))
        axes.axvspan(best, best + difference, color="#56b4e9", alpha=0.2, linewidth=0)
        axes.hlines(lines, ranks["low"], ranks["high"], color="#555555")
        axes.plot(ranks["mean_rank"], lines, "o", color="#0072b2")
        axes.set_yticks(lines, ranks["label"])
        # The best above.
        axes.set_ylim(len(ranks) - 0.5, -0.5)
        axes.set_xlabel(
            "mean rank over data sets, with 95 % interval "
            "(shaded: not told apart from the best)",
            fontsize=8,
        )
        figure.savefig(path)
        plt.close(figure)
