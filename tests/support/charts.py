"""What a chart shows, read from its specification."""

import json
from dataclasses import dataclass


@dataclass(frozen=True)
class Axis:
    """Scale of a panel's axis: limits, and labels of its ticks."""

    scale: str
    low: float
    high: float
    reverse: bool
    title: object
    ticks: tuple
    labels: tuple


@dataclass(frozen=True)
class Panel:
    """One panel of a chart."""

    title: str
    records: list
    x: Axis
    y: Axis

    def with_fields(self, *fields):
        """Records that have some fields."""
        return [record for record in self.records if all(field in record for field in fields)]

    @property
    def curves(self):
        """Hues of the curves and level lines."""
        shown = self.with_fields("at", "value") + self.with_fields("level")
        return list(dict.fromkeys(record["hue"] for record in shown))

    @property
    def texts(self):
        """Numbers that are written at marks and into cells."""
        return [record["text"] for record in self.with_fields("text")]


def panels_of(result):
    """Panels of a drawn figure."""
    return [panel_of(panel) for panel in result.chart["concat"]]


def panel_of(panel):
    encodings = [layer.get("encoding", {}) for layer in panel["layer"]]
    axes = [
        next(each[name] for each in encodings if "scale" in each.get(name, {})) for name in "xy"
    ]
    return Panel(" ".join(panel["title"]), panel["data"]["values"], *map(axis_of, axes))


def axis_of(encoding):
    scale, axis = encoding["scale"], encoding["axis"]
    start = axis["labelExpr"].index("[")
    labels, _ = json.JSONDecoder().raw_decode(axis["labelExpr"], start)
    shown = axis.get("labels", True)
    return Axis(
        scale["type"],
        *scale["domain"],
        scale["reverse"],
        encoding.get("title"),
        tuple(axis["values"]),
        tuple(labels if shown else ()),
    )


def legend_of(result):
    """Labels of the legend with the colors of their lines; empty without one."""
    encoding = result.chart["concat"][0]["layer"][0]["encoding"]
    if "shape" not in encoding or "scale" not in encoding["shape"]:
        return {}
    scale = encoding["stroke"]["scale"]
    return dict(zip(scale["domain"], scale["range"], strict=True))
