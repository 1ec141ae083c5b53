"""What the figures of the PE-means paper need beyond their figures.yaml."""

import pandas as pd

from pkm.analysis.claims import reported
from pkm.analysis.claims.claim import read_claims
from pkm.analysis.figures.figure import in_order
from pkm.analysis.figures.texts import DASH

PRINTED = pd.DataFrame(
    reported.list_cells(read_claims("pe-means")["reported"]["areas"])
).rename(columns={"nicv": "printed"})


def with_printed(table: pd.DataFrame) -> pd.DataFrame:
    """Add the printed areas as texts, in the order of the printed table."""
    order = in_order(table["dataset"], PRINTED["dataset"])
    place = table["dataset"].map(order.index)
    return (
        table.iloc[place.argsort(kind="stable")]
        .merge(PRINTED, on=["dataset", "method"], how="left")
        .fillna({"printed": DASH})
    )
