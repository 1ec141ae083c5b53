"""What the figures of the PE-means paper need beyond their figures.yaml."""

import pandas as pd

from pkm.analysis.claims import reported
from pkm.analysis.claims.claim import read_claims
from pkm.analysis.figures.figure import in_order
from pkm.analysis.figures.texts import DASH

PRINTED = reported.list_cells(read_claims("pe-means")["reported"]["areas"])


def with_printed(table: pd.DataFrame) -> pd.DataFrame:
    """Add the printed areas as texts, in the order of the printed table."""
    printed_sets = [cell["dataset"] for cell in PRINTED]
    order = in_order(table["dataset"], printed_sets)
    place = table["dataset"].map(order.index)
    table = table.iloc[place.argsort(kind="stable")]

    texts = {(cell["dataset"], cell["method"]): cell["nicv"] for cell in PRINTED}
    keys = zip(table["dataset"], table["method"], strict=True)
    return table.assign(printed=[texts.get(key, DASH) for key in keys])
