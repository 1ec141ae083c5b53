"""What methods declare: the delta of a variant, rules on values."""

import math
from typing import ClassVar

import numpy as np
import pytest

from pkm.methods import FastLloyd, GLloyd, Lloyd, PrivateKMeans
from pkm.methods.constraints import Integer, Real
from pkm.privacy import NO_CLAIM


def test_delta_of_the_variants():
    n = 3000
    assert GLloyd(variant="published").resolved_delta(n) == pytest.approx(1 / (n * math.log(n)))
    assert GLloyd(variant="sound").resolved_delta(n) == 1e-6
    assert GLloyd(delta=1e-9).resolved_delta(n) == 1e-9
    with pytest.raises(ValueError, match="needs n >= 3, got 2"):
        GLloyd(1, variant="published", bounds=(-1, 1)).fit(np.zeros((2, 1)))


# Rules on values


class Steps(PrivateKMeans):
    claims: ClassVar = {"quick": NO_CLAIM, "sound": NO_CLAIM}
    constraints: ClassVar = {"steps": Integer(1)}

    epsilon: float = 1.0
    steps: int = 3
    variant: str = "sound"


class FewSteps(Steps):
    constraints: ClassVar = {"steps": Integer(1, 5)}


class Shares(Steps):
    constraints: ClassVar = {"share": Real(0, 1)}

    share: float = 0.5


class Both(Shares, FewSteps):
    """Shares comes first and has no rule on steps of its own: that of FewSteps counts."""


class Widths:
    """A mixin that is no method."""

    constraints: ClassVar = {"width": Real(0)}


class WithWidths(Widths, Shares):
    width: float = 1.0


class OwnConstructor(Steps):
    constraints: ClassVar = {"size": Integer(1)}

    def __init__(self, size, n_clusters=8, epsilon=1.0):
        super().__init__(n_clusters, epsilon=epsilon)
        self.size = size


class OneVariant(Steps):
    claims: ClassVar = {"sound": NO_CLAIM}


@pytest.mark.parametrize(
    ("method", "message"),
    [
        (Steps(epsilon=-1.0), r"epsilon=-1.0 must be a positive finite number"),
        (Steps(0), r"n_clusters=0 must be an integer of at least 1"),
        (Steps(steps=0), r"steps=0 must be an integer of at least 1"),
        (Steps(variant="x"), r"variant='x' is unknown, choose one of 'quick', 'sound'"),
        (OneVariant(variant="quick"), r"variant='quick' is unknown, choose one of 'sound'"),
        (FewSteps(steps=6), r"steps=6 must be an integer from 1 to 5"),
        (Shares(share=1.0), r"share=1.0 must be a number in \(0, 1\)"),
        (Shares(epsilon=0), r"epsilon=0 must be a positive"),
        (Both(steps=6), r"steps=6 must be an integer from 1 to 5"),
        (Both(share=2), r"share=2 must be a number"),
        (WithWidths(width=0), r"width=0 must be a positive"),
        (WithWidths(steps=0), r"steps=0 must be an integer of at least 1"),
        (OwnConstructor(0), r"size=0 must be an integer of at least 1"),
        (OwnConstructor(1, epsilon=0), r"epsilon=0 must be a positive"),
    ],
)
def test_a_class_adds_its_rules_to_inherited_ones(method, message):
    with pytest.raises(ValueError, match=message):
        method.check_parameters()


def test_rules_of_a_subclass_are_its_own():
    Steps(steps=6).check_parameters()
    Both(steps=5, share=0.1).check_parameters()
    assert "radius_schedule" in FastLloyd.constraints
    assert not {"radius_schedule", "postprocessing"} & Lloyd.constraints.keys()


def test_a_table_that_repeats_inherited_rules_is_the_same():
    """As plugins had to write it."""
    spread = {**GLloyd.constraints, "steps": Integer(1)}
    method = type("Repeats", (GLloyd,), {"constraints": spread})
    assert method.constraints == spread
