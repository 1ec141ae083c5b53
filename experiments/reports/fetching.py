"""Download the data sets that plans lack, before anything is run."""

from collections.abc import Iterable
from functools import partial

from rich.console import Console

from pkm import datasets
from pkm.datasets.downloads import has_network
from pkm.datasets.fetching import find_missing
from pkm.experiments.config.groups import is_choice
from pkm.experiments.console.console import show
from pkm.experiments.plan.feasibility import why_unavailable
from pkm.experiments.plan.plan import Plan
from pkm.experiments.reports.overview import group_by_reason, join_names


def fetch(
    plans: Iterable[Plan],
    data_dir: str | None,
    console: Console,
) -> bool:
    """Download the data sets that plans lack, and print which could not be downloaded.

    Without a network nothing is tried: that takes at most three seconds.

    Parameters
    ----------
    plans : iterable of Plan
    data_dir : str or None
        Folder with the original data files.
    console : rich.console.Console
        Where to print.

    Returns
    -------
    bool
        Whether a new data set is available: then make the plans again.
    """
    say = partial(show, console)
    missing = find_missing(list_missing_names(plans), data_dir)
    names = [entry.name for entry in missing]
    urls = [file.urls[0] for files in missing.values() for file in files if file.urls]
    if not urls:
        return False
    if not has_network(urls):
        skipped = f"no network: goes on without {join_names(names)}"
        say(f"{skipped} (fetch=false does not look for one)", "yellow")
        return False
    result = datasets.fetch_missing(names, data_dir, say)
    if result.fetched:
        say(f"downloaded: {join_names(result.fetched)}")
    for names, reason in group_by_reason(result.unavailable.items()):
        say(f"cannot be downloaded: {join_names(names)}: {reason}", "yellow")
    why_unavailable.cache_clear()
    return bool(result.fetched)


def list_missing_names(plans: Iterable[Plan]) -> list[str]:
    """List the published data sets that plans replace, or lack some cell of.

    Examples
    --------
    >>> from pkm.experiments.plan.sweep import Gap
    >>> names = ("texture", "own.csv", "texture")
    >>> gaps = [Gap("one", "lloyd", name, None, "no file") for name in names]
    >>> list_missing_names([Plan("paper", (), tuple(gaps))])
    ['texture']
    """
    missing = [gap.dataset for plan in plans for gap in plan.substitutions + plan.gaps]
    return [name for name in dict.fromkeys(missing) if is_choice("dataset", name)]
