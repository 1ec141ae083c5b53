"""Download the data sets that plans lack, before anything is run."""

from collections.abc import Iterable

from rich.console import Console

from pkm import datasets
from pkm.datasets.downloads import has_network
from pkm.datasets.fetching import missing_files
from pkm.datasets.loading import resolve
from pkm.experiments.config.groups import is_choice
from pkm.experiments.plan.feasibility import why_unavailable
from pkm.experiments.plan.plan import Plan
from pkm.experiments.reports.overview import group_by_reason, join_names


def fetch(
    plans: Iterable[Plan],
    data_dir: str | None,
    console: Console,
) -> bool:
    """Download what plans lack; say what it is, and afterwards what cannot be had.

    Without a network nothing is tried: that takes one line and at most three seconds.

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
        Whether a data set is available now that was not: then the plans are to be made
        again.
    """

    def say(line: str, style: str = "") -> None:
        console.print(line, style=style, markup=False, highlight=False, soft_wrap=True)

    names = missing_names(plans)
    urls = [
        file.urls[0]
        for name in names
        for file in missing_files(resolve(name).entry, data_dir)
        if file.urls
    ]
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


def missing_names(plans: Iterable[Plan]) -> list[str]:
    """List the published data sets that plans lack or replace; embeddings are trained.

    Examples
    --------
    >>> from pkm.experiments.plan.sweep import Gap
    >>> names = ("s1", "own.csv", "s1")
    >>> gaps = [Gap("one", "lloyd", name, None, "no file") for name in names]
    >>> missing_names([Plan("paper", (), tuple(gaps))])
    ['s1']
    """
    missing = [
        gap.dataset for plan in plans for gap in (*plan.substitutions, *plan.gaps)
    ]
    published = [name for name in dict.fromkeys(missing) if is_choice("dataset", name)]
    entries = {name: resolve(name).entry for name in published}
    return [name for name, entry in entries.items() if entry and not entry.trained]
