"""Reproduce a paper: run what is missing and write the report: ``pkm reproduce``."""

import gc
from collections.abc import Sequence
from typing import cast

import hydra
from omegaconf import DictConfig, OmegaConf

from pkm.experiments.applications.application import call, run_task
from pkm.experiments.backends.server import start_server
from pkm.experiments.config.errors import require_choices
from pkm.experiments.config.groups import ALL_PAPERS, choices, read_choice
from pkm.experiments.config.settings import RESULTS
from pkm.experiments.console.console import CellsFailed, make_console
from pkm.experiments.plan.sweep import check_paper

VERBS = ("plan", "run", "status", "retry", "report")


@hydra.main(config_path=None, config_name="reproduce", version_base="1.3")
def application(config: DictConfig) -> None:
    """Run one job."""
    if (
        config.verb in (None, "run", "retry")
        and config.backend.name == "processes"
        and config.jobs > 1
    ):
        # The server imports while this process makes its plan.
        start_server()
    run_task(run_job, config, "reproduce")


def run_job(config: DictConfig) -> None:
    """Carry out a checked configuration, for one paper or for all.

    Raises
    ------
    CellsFailed
        If a cell of a plan has failed.
    ValueError
        If a report is requested, and figures or claims of a paper are malformed.
    """
    # Imported here: it takes seconds, which a help text or a refusal need not.
    from pkm.experiments.reports.reproduction import make_requests, reproduce_papers

    if config.verb is not None:
        require_choices("verb", [config.verb], VERBS)
    if config.verb in ("status", "report"):
        RESULTS.require("results", config.results)
    console = make_console()
    requests = make_requests(read_papers(config), config, console)
    gc.enable()
    if reproduce_papers(requests, config, console):
        raise CellsFailed("cells failed")


def read_papers(config: DictConfig) -> list[dict]:
    """Return the papers of a configuration: the named one, or all.

    Raises
    ------
    ConfigurationError
        If a file is malformed.
    """
    if config.paper.name == ALL_PAPERS:
        papers = [read_choice("paper", name) for name in choices("paper")]
    else:
        papers = [cast(dict, OmegaConf.to_container(config.paper, resolve=True))]
    for paper in papers:
        check_paper(paper, config.profile.name)
    return papers


def main(argv: Sequence[str]) -> int:
    """Run the command line; ``options.yaml`` says what it takes.

    Parameters
    ----------
    argv : sequence of str
        Arguments.

    Returns
    -------
    int
        Exit code: 0, 1 if cells failed, 2 if the request was refused, 130 if it was
        interrupted.
    """
    return call(application, "reproduce", write_verb_as_key(argv))


def write_verb_as_key(words: Sequence[str]) -> list[str]:
    """Write a verb as a key.

    Examples
    --------
    >>> write_verb_as_key(["plan", "paper=dpm"])
    ['verb=plan', 'paper=dpm']
    >>> write_verb_as_key(["-m", "paper=dpm,mufc"])
    ['-m', 'paper=dpm,mufc']
    """
    is_verb = words and "=" not in words[0] and not words[0].startswith(("-", "~"))
    return [f"verb={words[0]}", *words[1:]] if is_verb else list(words)
