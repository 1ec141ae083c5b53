"""Axes of panels: scale, limits, ticks and their labels."""

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from pkm.analysis.figures.texts import plain_number

Json = dict[str, Any]
MAX_LINEAR_TICKS = 6
MAX_DECADES = 10
#: Decades of a logarithmic axis below which its own steps may leave a single tick.
FEW_DECADES = 0.35
#: Ticks of a logarithmic axis within each decade, by the number of decades up to which
#: they fit.
LOG_STEPS = ((1.05, (1.0, 1.5, 2.0, 3.0, 4.0, 5.0, 6.0, 8.0)), (2.2, (1.0, 2.0, 5.0)),
             (3.5, (1.0, 3.0)), (np.inf, (1.0,)))  # fmt: skip


@dataclass(frozen=True)
class Axis:
    """One axis of a panel.

    Attributes
    ----------
    low, high : float
        Limits.
    ticks : tuple of float
    labels : tuple of str
        One for each tick.
    scale : {"linear", "log", "symlog"}
        The last one is linear around zero, up to about `constant`.
    constant : float
    title : str
    reverse : bool
        Whether `low` is at the right, or at the top.
    grid : bool
        Whether there are lines at the ticks.
    angle : float
        Of the labels, in degrees.

    Examples
    --------
    >>> axis = value_axis(1, 100, "log")
    >>> axis.labels, axis.to_fraction(10.0), round(axis.from_fraction(0.25), 2)
    (('1', '2', '5', '10', '20', '50', '100'), 0.5, 3.16)
    """

    low: float
    high: float
    ticks: tuple[float, ...]
    labels: tuple[str, ...]
    scale: str = "linear"
    constant: float = 1.0
    title: str = ""
    reverse: bool = False
    grid: bool = True
    angle: float = 0.0

    def to_fraction(self, value: float) -> float:
        """Return where a value is, as a share of the way from `low` to `high`."""
        low, high, place = map(self._transform, (self.low, self.high, value))
        return (place - low) / (high - low)

    def from_fraction(self, share: float) -> float:
        """Return the value at a share of the way from `low` to `high`."""
        low = self._transform(self.low)
        high = self._transform(self.high)
        length = low + share * (high - low)
        if self.scale == "log":
            return float(np.exp(length))
        if self.scale == "symlog":
            return float(np.sign(length) * np.expm1(abs(length)) * self.constant)
        return length

    def _transform(self, value: float) -> float:
        if self.scale == "log":
            return float(np.log(value)) if value > 0 else -np.inf
        if self.scale == "symlog":
            return float(np.sign(value) * np.log1p(abs(value) / self.constant))
        return float(value)

    def encoding(self) -> Json:
        """Return scale and ticks as Vega-Lite has them."""
        scale = {
            "type": self.scale,
            "domain": [self.low, self.high],
            "nice": False,
            "reverse": self.reverse,
        }
        if self.scale == "linear":
            scale["zero"] = False
        elif self.scale == "symlog":
            scale["constant"] = self.constant
        # Numbers may be left out, names may not.
        ticks = {
            "values": list(self.ticks),
            "grid": self.grid,
            "ticks": self.grid,
            "labelOverlap": "greedy" if self.grid else False,
            "labelExpr": f"split({self.label_expression()}, '\\n')",
        }
        if self.angle:
            ticks |= {
                "labelAngle": self.angle,
                "labelAlign": "right",
                "labelBaseline": "middle",
            }
        title = self.title or None
        return {"type": "quantitative", "title": title, "scale": scale, "axis": ticks}

    def label_expression(self) -> str:
        """Return an expression of Vega for the label of a tick."""
        labels = json.dumps(self.labels)
        ticks = json.dumps(self.ticks)
        return f"{labels}[indexof({ticks}, datum.value)]"


def value_axis(
    low: float, high: float, scale: str = "linear", constant: float = 1.0
) -> Axis:
    """Return an axis of values, with ticks at round numbers between its limits."""
    if scale == "log":
        ticks = log_ticks(low, high)
    elif scale == "symlog":
        n_powers = np.floor(np.log10(high / constant) + 1e-9) + 1
        ticks = [0.0, *(constant * 10 ** np.arange(n_powers))]
    else:
        ticks = linear_ticks(low, high)
    places = tuple(map(rounded, ticks))
    labels = tuple(map(plain_number, places))
    return Axis(low, high, places, labels, scale, constant)


def linear_ticks(
    low: float,
    high: float,
    count: int = MAX_LINEAR_TICKS,
) -> list[float]:
    """Return at most `count` multiples of a round number between limits.

    Examples
    --------
    >>> [round(tick, 2) for tick in linear_ticks(0.13, 0.94)]
    [0.2, 0.4, 0.6, 0.8]
    """
    power = 10 ** np.floor(np.log10((high - low) / count))
    for size in (1, 2, 2.5, 5, 10, 20):
        step = power * size
        first = np.ceil(low / step - 1e-9)
        last = np.floor(high / step + 1e-9)
        if last - first < count:
            break
    return [float(tick) for tick in step * np.arange(first, last + 1)]


def log_ticks(low: float, high: float) -> list[float]:
    """Return ticks of a logarithmic axis: as many within a decade as there is room for.

    Examples
    --------
    >>> log_ticks(0.25, 8), log_ticks(0.5, 5000)
    ([0.5, 1.0, 2.0, 5.0], [1.0, 10.0, 100.0, 1000.0])
    """
    decades = np.log10(high / low)
    if decades < FEW_DECADES:
        return linear_ticks(low, high, 5)
    steps = next(steps for most, steps in LOG_STEPS if decades < most)
    first = int(np.floor(np.log10(low)))
    last = int(np.ceil(np.log10(high)))
    every = -(-(last - first) // MAX_DECADES)
    powers = range(first, last + 1, every)
    ticks = [step * 10.0**power for power in powers for step in steps]
    return [tick for tick in ticks if low * (1 - 1e-9) <= tick <= high * (1 + 1e-9)]


def joined(axes: Sequence[Axis]) -> Axis:
    """Return an axis that has room for what all of the given ones show."""
    first = axes[0]
    is_log = any(axis.scale == "log" for axis in axes)
    scale = "log" if is_log else first.scale
    low = min(axis.low for axis in axes)
    high = max(axis.high for axis in axes)
    axis = value_axis(low, high, scale, first.constant)
    return replace(axis, reverse=first.reverse)


def rounded(value: float) -> float:
    """Return a number with six digits."""
    return float(f"{value:.6g}")
