"""Stored rows and those of a second run: the same bits, or samples of one law."""

import math
from collections.abc import Sequence

import numpy as np
import pandas as pd
from scipy import stats

from pkm.arena.scores import cpu_ratio
from pkm.arena.suite import CELL_KEYS, CellName, label_cell
from pkm.arrow import to_table
from pkm.schema import names

#: Probability, at most, that rows of one law are told apart.
MAX_P_VALUE = 1e-6
#: Relative difference of two numbers by rounding.
TOLERANCE = 1e-6
#: A CPU ratio is refused if it is more than this many times as large in a second run.
CPU_FACTOR = 4.0
#: Columns in which two runs with equal seeds are equal bit for bit.
RESULTS = ("seed", "centers", "epsilon_spent", "epsilon_unspent", "charges")
#: Columns in which two runs of a method are equal, whatever the seeds.
CLAIMS = tuple(set(names("identity", "privacy")) - {*RESULTS, "public_seed"})

#: Costs of a cell in both runs.
Sample = tuple[pd.Series, pd.Series]


def compare_cells(
    stored: pd.DataFrame,
    fresh: pd.DataFrame,
    cells: Sequence[CellName],
    *,
    is_repeatable: bool,
) -> tuple[int, list[str]]:
    """Compare cells of one method with those of a second run.

    Parameters
    ----------
    stored, fresh : DataFrame
        Rows.
    cells : sequence of (str, str, str, float or None)
        Those that were run again.
    is_repeatable : bool
        Whether equal seeds must give equal costs: of a method that repeats, by the same
        code and software.

    Returns
    -------
    n_equal : int
        Number of cells with equal bits, or without rows in both runs.
    findings : list of str
        What no other seeds explain.
    """
    columns = list({*CELL_KEYS, *CLAIMS, *RESULTS, "nicv"})
    stored, fresh = stored[columns], fresh[columns]
    n_equal = 0
    findings = []
    samples: list[Sample] = []
    for cell in cells:
        label = label_cell(*cell)
        first = select_cell(stored, cell)
        second = select_cell(fresh, cell)
        if first.empty and second.empty:
            n_equal += 1
            continue
        if first.empty:
            findings.append(f"{label}: left out, and a second run gives rows")
            continue
        if second.empty:
            findings.append(f"{label}: a second run gives no rows")
            continue

        # What seeds do not decide; then what they do.
        sample = first["nicv"], second["nicv"]
        first, second = take_common_seeds(first, second)
        different = find_different(first, second, CLAIMS)
        if not are_close(first, second, "epsilon_spent"):
            different.append("epsilon_spent")
        if different:
            findings.append(f"{label}: {', '.join(different)} differ in a second run")
        elif not find_different(first, second, RESULTS):
            n_equal += 1
        elif not is_repeatable:
            samples.append(sample)
        elif not are_close(first, second, "nicv"):
            findings.append(f"{label}: equal seeds give other costs in a second run")
    p_value = compute_p_value(samples)
    if p_value < MAX_P_VALUE:
        findings.append(
            f"costs in {len(samples)} cells are not those of a second run: other seeds "
            f"would explain it with probability {p_value:.1g}"
        )
    return n_equal, findings


def select_cell(rows: pd.DataFrame, cell: CellName) -> pd.DataFrame:
    """Select the rows of a cell."""
    *names, epsilon = cell
    *columns, _ = CELL_KEYS
    chosen = rows["epsilon"] == epsilon
    if epsilon is None:
        chosen = rows["epsilon"].isna()
    for column, name in zip(columns, names, strict=True):
        chosen &= rows[column] == name
    return rows[chosen]


def take_common_seeds(
    first: pd.DataFrame,
    second: pd.DataFrame,
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Restrict two cells to the seeds of both, in their order."""
    seeds = set(first["seed"]) & set(second["seed"])
    first = first[first["seed"].isin(seeds)]
    second = second[second["seed"].isin(seeds)]
    return first.sort_values("seed"), second.sort_values("seed")


def find_different(
    first: pd.DataFrame,
    second: pd.DataFrame,
    columns: Sequence[str],
) -> list[str]:
    """Name the columns in which two cells differ; NaN equals NaN."""
    one = to_table(first[list(columns)]).to_pydict()
    other = to_table(second[list(columns)]).to_pydict()
    return [name for name in sorted(columns) if repr(one[name]) != repr(other[name])]


def are_close(
    first: pd.DataFrame,
    second: pd.DataFrame,
    column: str,
) -> bool:
    """Tell whether two cells agree in a number, but for the order of sums."""
    if len(first) != len(second):
        return False
    return np.allclose(
        first[column],
        second[column],
        rtol=TOLERANCE,
        atol=0.0,
        equal_nan=True,
    )


def compute_p_value(samples: Sequence[Sample]) -> float:
    """Test whether two runs draw costs from one law in every cell.

    The statistic is the sum over cells of the ranks of the first run among both (van
    Elteren 1960). If no run is special, all ways to deal the costs of a cell to the
    runs are equally likely, and cells are independent: the law of the sum is computed
    exactly, also with ties.

    Parameters
    ----------
    samples : sequence of (Series, Series)
        Costs of both runs, cell by cell.

    Returns
    -------
    float
        Two-sided; 1 without a cell.

    Examples
    --------
    >>> better = pd.Series([1.0, 1.1, 1.2]), pd.Series([2.0, 2.1, 2.2])
    >>> compute_p_value([better]), round(compute_p_value([better] * 3), 6)
    (0.1, 0.00025)
    """
    law = np.ones(1)
    total = 0
    for first, second in samples:
        both = np.concatenate([first, second])
        both = np.nan_to_num(both, nan=np.inf)
        # Twice the middle ranks of ties are whole numbers, too.
        ranks = np.rint(2 * stats.rankdata(both)).astype(int)
        counts = count_sums(ranks, len(first))
        law = np.convolve(law, counts / counts.sum())
        total += ranks[: len(first)].sum()
    low = law[: total + 1].sum()
    high = law[total:].sum()
    return float(min(1.0, 2 * low, 2 * high))


def count_sums(numbers: np.ndarray, size: int) -> np.ndarray:
    """Count the choices of `size` positive integers out of some, by their sum.

    Counts are float64, and so exact up to 2^53.

    Examples
    --------
    >>> count_sums(np.array([1, 2, 2]), 2)
    array([0., 0., 0., 2., 1.])
    """
    largest = np.sort(numbers)[len(numbers) - size :].sum()
    # Choices by their size and sum, of the numbers so far.
    counts = np.zeros((size + 1, largest + 1))
    counts[0, 0] = 1
    for number in numbers:
        counts[1:, number:] += counts[:-1, : largest + 1 - number]
    return counts[size]


def compare_times(
    rows: pd.DataFrame,
    fresh: pd.DataFrame,
    reference: str,
) -> list[str]:
    """Compare the CPU times, as ratios to the reference in the same run."""
    stored = cpu_ratio(rows, reference)
    again = cpu_ratio(fresh, reference)
    both_failed = math.isnan(stored) and math.isnan(again)
    if both_failed or again <= CPU_FACTOR * stored:
        return []
    return [
        f"CPU time: a fit takes {stored:.3g} times that of the reference, in a second "
        f"run {again:.3g} times"
    ]
