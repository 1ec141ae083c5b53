"""Bring MLflow up to date with what is stored of a paper: ``pkm sync``.

    pkm sync paper=fastlloyd profile=quick
    pkm sync paper=fastlloyd cells=yes     a run for every cell too, which takes minutes

All keys of `pkm reproduce` that say where results and MLflow are can be given.
"""

from collections.abc import Mapping, Sequence

from omegaconf import DictConfig

from pkm.experiments.applications.composition import load_config
from pkm.experiments.config.settings import RESULTS, require
from pkm.experiments.console.console import make_console, make_main, show
from pkm.experiments.mlflow.tracking import summarize, sync
from pkm.experiments.plan.plan import make_plan
from pkm.experiments.store.store import Store

#: Keys of `pkm reproduce` that say what is run and how.
RUN_KEYS = ("verb", "sweeps", "jobs", "scheduler", "backend", "fetch")


def load_configuration(verb: str, overrides: Sequence[str]) -> DictConfig:
    """Load the configuration of a verb that shows stored results and runs nothing.

    Raises
    ------
    ValueError
        If the configuration is wrong.
    """
    for override in overrides:
        key = override.lstrip("+~").partition("=")[0].partition(".")[0]
        if key in RUN_KEYS:
            what = f"`pkm {verb}`, which runs nothing"
            raise ValueError(f"{override} has no effect on {what}")
    config = load_config(overrides)
    RESULTS.require("results", config.results)
    if config.tracking.name == "none":
        raise ValueError("tracking=none has nothing to show: use tracking=mlflow")
    return config


def run(names: Sequence[str], options: Mapping[str, str]) -> None:
    """Sync a paper, and print what was written."""
    options = dict(options)
    cells = options.pop("cells", "no")
    require(cells in ("yes", "no"), "cells", cells, "yes or no")
    overrides = [*names, *(f"{name}={value}" for name, value in options.items())]
    config = load_configuration("sync", overrides)
    plan = make_plan(config.paper, config.profile, data_dir=config.data)
    store = Store(config.results)
    store.check_writable()
    folder = store.report_folder(plan.paper, config.profile.name)
    counts = sync(
        plan,
        store,
        config.tracking,
        profile=config.profile.name,
        report=folder if folder.is_dir() else None,
        cells=cells == "yes",
    )
    line = f"{summarize(counts)} ({config.tracking.uri})"
    show(make_console(), line)


main = make_main("sync", __doc__, "key=value", (), run)
