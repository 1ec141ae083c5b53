"""What the methods of some rows claim, spend, and are known to violate."""

import pandas as pd

from pkm.analysis.figures.texts import DASH
from pkm.analysis.flaws import read_flaws
from pkm.analysis.pages import audits
from pkm.analysis.pages.audits import Audits
from pkm.analysis.tables.study import Study

FACTS = (
    "method",
    "variant",
    "notion",
    "adjacency",
    "unit",
    "trust",
    "view",
    "private_bounds",
    "flaws",
)


def privacy_table(
    study: Study,
    audited: Audits | None = None,
) -> pd.DataFrame:
    """Return what each method claims and spent, and what its audit found.

    Parameters
    ----------
    study : Study
    audited : mapping of (str, str) to Audit, optional
        Stored audits, by import path and variant.

    Returns
    -------
    DataFrame
        One line per method, variant, unit and preprocessing: notion, adjacency (with
        rho), trust, view, epsilons, delta, the largest share of epsilon spent, the
        largest epsilon left unspent, flaws, the verdict of the audit and those of its
        views. F-10 is added where the data were scaled by their own bounds; rows on
        points of a map fitted to the records have F-28, and a line of their own.
    """
    lines = []
    for key, cells in study.cells.groupby(list(FACTS), sort=True):
        line = dict(zip(FACTS, key, strict=True))
        line |= dict.fromkeys(("declared", "delta", "spent", "unspent", "audit"), DASH)
        line |= {"private": line["notion"] != "none", "views": ""}
        flaws = set(line["flaws"].split())
        if line["private"]:
            if line["private_bounds"]:
                flaws.add("F-10")
            epsilons = sorted(cells["epsilon"].dropna().unique())
            share = (cells["epsilon_spent"] / cells["epsilon"]).max()
            unspent = max(cells["epsilon_unspent"].max(), 0)
            low, high = cells["delta"].agg(["min", "max"])
            audit = audits.find(audited or {}, *cells[["target", "variant"]].iloc[0])
            line |= {
                "adjacency": _with_rho(line["adjacency"], cells),
                "declared": ", ".join(map("{:g}".format, epsilons)) or DASH,
                "delta": f"{low:.2g}" if low == high else f"{low:.1e} to {high:.1e}",
                "spent": f"{share:.4%}",
                "unspent": f"{unspent:.2g}",
                "audit": audit.summary() if audit else audits.NOT_TRIED,
                "views": audit.by_view() if audit else "",
            }
        lines.append(line | {"flaws": sorted(flaws)})
    order = ["private", "method"]
    return pd.DataFrame(lines).sort_values(
        order, ascending=[False, True], ignore_index=True
    )


def _with_rho(
    adjacency: str,
    cells: pd.DataFrame,
) -> str:
    """Return an adjacency with the rho that gives its epsilon a meaning."""
    if adjacency != "rho_bounded" or "rho" not in cells:
        return adjacency
    # Names come after numbers.
    rhos = sorted(cells["rho"].dropna().unique(), key=str)
    texts = [rho if isinstance(rho, str) else f"{rho:g}" for rho in rhos]
    return f"{adjacency}, ρ {', '.join(texts)}"


def flaws_in(table: pd.DataFrame) -> dict[str, str]:
    """Return the meaning of every flaw id in a privacy table."""
    register = read_flaws()
    ids = sorted({flaw for flaws in table["flaws"] for flaw in flaws})
    return {flaw: register[flaw].title for flaw in ids}
