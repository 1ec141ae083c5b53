"""All claims of the MUFC paper are checked on `pkm.analysis.tables.removals.RemovalStudy`."""

from dataclasses import replace

from pkm.analysis.claims.findings import Context
from pkm.analysis.tables.removals import RemovalStudy, whole_sweep
from pkm.analysis.tables.study import Study


def prepare(study: Study, context: Context) -> tuple[RemovalStudy, Context]:
    """Return what all checks of the paper see: a view, and the gaps of all parts of a sweep."""
    gaps = context.missing.assign(sweep=context.missing["sweep"].map(whole_sweep))
    return RemovalStudy(study), replace(context, missing=gaps)
