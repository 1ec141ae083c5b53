"""Figure of the audit: realized over charged of every query, and black-box bounds."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas as pd

from pkm.analysis.figures.figure import FigureResult, FigureSpec
from pkm.analysis.figures.figure_data import FigureData
from pkm.analysis.figures.texts import DASH, count_text, format_number
from pkm.analysis.pages.audits import NO_POWER, Audit, table
from pkm.analysis.paper_files import parse_entry
from pkm.analysis.render.draw import render
from pkm.yaml_files import read_file

FIGURE = Path(__file__).with_name("audit_figure.yaml")
#: Ratios beyond are drawn there with their value.
MAX_RATIO = 2.0
#: Hues of the black box besides verdicts.
ALL_RELEASES = "from all releases"
LEDGER = "ε of the ledger"
_STALE = "The code has changed since this audit."


def draw_audit(audits: Sequence[Audit]) -> FigureResult:
    """Draw the ratios of the replay and the bounds of the black box, method by method.

    Parameters
    ----------
    audits : sequence of Audit
        At least one.

    Returns
    -------
    FigureResult
    """
    spec = read_spec()
    numbers = table(audits)
    runs = numbers.loc[numbers["n_runs"] > 0, "n_runs"]
    fields = {
        "pairs": count_text(numbers["n_pairs"], "pairs"),
        "runs": count_text(runs, "runs") if len(runs) else "",
        "stale": _STALE if any(audit.stale for audit in audits) else "",
    }
    bounds = ["lower_bound", "transcript_bound", "epsilon"]
    texts = numbers.astype(dict.fromkeys(bounds, float)).assign(
        adjacency=numbers["adjacency"].str.replace("_", "-"),
        ratio=numbers["largest_ratio"].map(_ratio_text),
        found_flaws=numbers["found_flaws"].replace("", DASH),
    )
    # Findings that no registered flaw explains.
    unexplained = tuple(
        f"{audit.name}: {finding['view']}, {finding['label']}: {finding['message']}"
        for audit in audits
        for finding in audit.findings
        if not finding["flaw"]
    )
    marks = _marks(audits)
    data = FigureData(marks, None, unexplained, fields, texts)
    return render(data, spec)


def read_spec() -> FigureSpec:
    """Read what is drawn, and how."""
    entry = read_file(FIGURE) | {"paper": "audit", "name": "audit"}
    return parse_entry(FigureSpec, entry, str(FIGURE))


def _marks(audits: Sequence[Audit]) -> pd.DataFrame:
    """Make the table of marks: a line for each query and each bound."""
    lines = []
    for audit in audits:
        group = ", ".join([audit.name, *audit.found_flaws])
        facts = (audit.method, audit.variant, group)
        for query, ratio in audit.tightness.items():
            verdict = audit.query_verdicts.get(query, NO_POWER)
            name = query.replace("_", " ")
            lines.append((*facts, name, verdict, ratio, "replay"))
        bounds = {
            audit.verdicts.get("blackbox", NO_POWER): audit.lower_bound,
            ALL_RELEASES: audit.transcript_bound,
            LEDGER: None if audit.lower_bound is None else audit.epsilon,
        }
        for hue, bound in bounds.items():
            if bound is not None:
                lines.append((*facts, "", hue, bound, "blackbox"))
    columns = ["method", "variant", "group", "row", "hue", "number", "panel"]
    marks = pd.DataFrame(lines, columns=columns)
    numbers = marks["number"]
    is_outside = (marks["panel"] == "replay") & (numbers > MAX_RATIO)
    texts = numbers.map(_ratio_text)
    return marks.assign(
        value=numbers.mask(is_outside, MAX_RATIO),
        low=np.nan,
        high=np.nan,
        text=texts.where(is_outside, ""),
        group=pd.Categorical(marks["group"], marks["group"].unique()),
        row=pd.Categorical(marks["row"], marks["row"].unique()),
    )


def _ratio_text(ratio: float) -> str:
    return "∞" if np.isposinf(ratio) else format_number(ratio)
