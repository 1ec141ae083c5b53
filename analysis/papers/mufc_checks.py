"""All claims and figures of the MUFC paper are about its `RemovalStudy`."""

import pandas as pd

from pkm.analysis.tables.removals import RemovalStudy, parent_sweep
from pkm.analysis.tables.study import Study


def adapt_study(
    study: Study,
    gaps: pd.DataFrame,
) -> tuple[RemovalStudy, pd.DataFrame]:
    """Return the study, and the gaps of all parts of a sweep under its name."""
    return RemovalStudy(study), gaps.assign(sweep=gaps["sweep"].map(parent_sweep))
