"""What the figures of the PE-means paper need beyond their figures.yaml: the printed areas."""

import pandas as pd

from pkm.analysis import claims, reported
from pkm.analysis.figure import in_order
from pkm.analysis.render.layout import DASH

PRINTED = reported.cells_of(claims.load("pe-means")["reported"]["areas"])


def with_printed(table: pd.DataFrame) -> pd.DataFrame:
    """Add the printed areas as texts; data sets are in the order of the printed table."""
    texts = {(cell["dataset"], cell["method"]): cell["nicv"] for cell in PRINTED}
    places = in_order(table["dataset"], [cell["dataset"] for cell in PRINTED])
    table = table.sort_values("dataset", key=lambda names: names.map(places.index), kind="stable")
    keys = zip(table["dataset"], table["method"], strict=True)
    return table.assign(printed=[texts.get(key, DASH) for key in keys])
