"""A cell of clients whose points are removed."""

from dataclasses import asdict

from pkm.experiments.cell.cell import Cell
from pkm.experiments.fit.unlearning import Unlearning

DATASET = "gaussians-300-3-3"
SETTING = asdict(Unlearning()) | {"clients": 5, "clusters_per_client": 2}


def cell(target="pkm.methods.Unlearning", params=None, timing=False, **changes):
    return Cell(
        "mufc",
        target,
        params or {},
        DATASET,
        "public",
        3,
        None,
        None,
        (0, 1),
        ("nicv",),
        timing=timing,
        kind=Unlearning(**(SETTING | changes)),
    )
