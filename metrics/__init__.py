"""Metrics of clusterings, evaluated without privacy for a batch of replicates."""

from pkm.metrics.evaluation import (
    METRICS,
    REFERENCE_METRICS,
    check_metrics,
    clear_caches,
    evaluate,
    prepare_metrics,
)
from pkm.metrics.matching import reference_centers
from pkm.metrics.references import ReferenceSet, reference_set

__all__ = [
    "METRICS",
    "REFERENCE_METRICS",
    "ReferenceSet",
    "check_metrics",
    "clear_caches",
    "evaluate",
    "prepare_metrics",
    "reference_centers",
    "reference_set",
]
