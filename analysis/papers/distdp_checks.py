"""Claims of the paper on distance-based privacy: slopes in the radius, nearer curves."""

from collections.abc import Mapping
from dataclasses import replace

from pkm.analysis.comparisons import ratios
from pkm.analysis.findings import Context, Draws, MissingRows, check_type
from pkm.analysis.planted import CURVE, curve
from pkm.analysis.tables import Study


@check_type(*CURVE)
def radius_slope(study: Study, check: Mapping, context: Context) -> Draws:
    """Check the slope in the radius of the space at a fixed rho against bounds.

    The box is scaled with the data, so a space L times as large is the same space with rho divided
    by L and costs multiplied by L squared. The cost of a method without rho has slope 2.
    """
    line = curve(study, check | {"along": "rho", "value": "cost"}, context)
    radius = line.x.max() / line.x
    over_radius = replace(line, along="radius", x=radius, values=line.values * radius**2)
    text = f"from radius 1 to {radius.max():g}; without rho it is 2, as costs scale with the space"
    return over_radius.draws(over_radius.slopes(), "Slope over the radius", check, text)


@check_type("sweep", "metric", "method", "below", "above", "over")
def nearer(study: Study, check: Mapping, context: Context) -> Draws:
    """Check that `method` lies nearer to `below` than to `above` in every comparison."""
    sides = {"over": check["over"], "sweep": check["sweep"], "metric": check["metric"]}
    over, under = (
        ratios(study, {**sides, "by": "difference", "left": [left], "right": [right]}, context)
        for left, right in ((check["method"], check["below"]), (check["above"], check["method"]))
    )

    # The comparisons that all three methods have.
    names = list(check["over"])
    lines = [draws.cases[names].reset_index(names="line") for draws in (over, under)]
    both = lines[0].merge(lines[1], on=names)
    if not len(both):
        raise MissingRows(context.why(check["sweep"]))
    low, high = over.values[:, both["line_x"]], under.values[:, both["line_y"]]
    position = low[0] / (low[0] + high[0])
    text = f"Position between {check['below']} (0) and {check['above']} (1) from "
    text += f"{position.min():.3g} to {position.max():.3g} (required: < 0.5)"
    missing = over.missing if len(over.cases) < len(under.cases) else under.missing
    facts = {"position": position}
    return Draws(low < high, both[names], over.seeds, missing, text=text, facts=facts)
