"""Fabricated rows of every paper by name, as studies that tests share."""

from functools import cache

from fabricated import (
    comparison,
    distdp,
    dpm,
    fastlloyd,
    federation_costs,
    kaplan_stemmer,
    mufc,
    pe_means,
)
from pkm.analysis.tables.study import Study

#: Name of a study (a paper, and after a slash what of it) to the function that makes its rows.
ROWS = {
    "comparison": comparison.rows_of_all_settings,
    "distdp": distdp.all_rows,
    "dpm": dpm.all_rows,
    "fastlloyd": fastlloyd.small_rows,
    "fastlloyd/protocol": federation_costs.protocol_rows,
    "kaplan-stemmer": kaplan_stemmer.all_rows,
    "mufc": mufc.all_rows,
    "pe-means": pe_means.all_rows,
}


def paper_of(name: str) -> str:
    """Paper of a study."""
    return name.partition("/")[0]


@cache
def study_of(name: str) -> Study:
    """Study of all fabricated rows of a name; not to be changed."""
    return Study(ROWS[name]())
