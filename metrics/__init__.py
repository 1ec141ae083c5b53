"""How good a clustering is, measured without privacy by the harness, for a batch of replicates at once."""

from metrics.evaluation import METRICS, check_metrics, evaluate
from metrics.matching import reference_centres

__all__ = ["METRICS", "check_metrics", "evaluate", "reference_centres"]
