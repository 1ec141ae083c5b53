"""Hydra applications as commands of ``pkm``."""

import gc
import itertools
import os
import shutil
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, ClassVar
from unittest.mock import patch

from hydra.core.hydra_config import HydraConfig
from hydra.experimental.callback import Callback
from hydra.types import RunMode
from omegaconf import DictConfig

from pkm.experiments.applications.composition import (
    check_configuration,
    register_plugins,
)
from pkm.experiments.applications.explanations import explain_errors
from pkm.experiments.applications.options import DECLARED
from pkm.experiments.config.errors import ConfigurationError
from pkm.experiments.console.console import make_console, run_action, show
from pkm.files import create_owner_folder, list_missing_folders, remove_empty_folders
from pkm.names import suggestion

#: Settings of Hydra that only a sweep reads, and those that only a single run reads.
SWEEP_SETTINGS = (
    "hydra/launcher",
    "hydra.launcher",
    "hydra/sweeper",
    "hydra.sweeper",
    "hydra.sweep.",
)
RUN_SETTINGS = ("hydra.run.",)
#: All options of Hydra, which prints its usage at an unknown one, with their values
#: where these are few.
HYDRA_OPTIONS = DECLARED["options"]
INFO = ("--info", "-i")  # without a value, Hydra would take the next word as one
#: Hydra's options that compose a configuration and run nothing.
SHOW_OPTIONS = ("--help", "-h", "--hydra-help", "--cfg", "-c", *INFO, "--version")
MULTIRUN = ("-m", "--multirun")
SWEEP_FILE = "multirun.yaml"  # that Hydra writes before the first job
BASIC_SWEEPER = ".BasicSweeper"
#: The backend that is a launcher of Hydra: a job of SLURM runs the cells of one
#: configuration.
SUBMITIT = "backend=submitit"
SUBMITIT_LAUNCHER = "hydra/launcher=submitit_"
SLURM = f"{SUBMITIT_LAUNCHER}slurm"
#: Verbs of ``pkm reproduce`` that run no cell.
VERBS_WITHOUT_CELLS = ("verb=plan", "verb=status", "verb=report")
FULL_ERROR = "HYDRA_FULL_ERROR"
TUNING_WARNING = (
    "warning: this sweep chooses parameters by results on the data; what that choice "
    "costs in privacy no ledger has counted"
)


def call(
    application: Callable[[], Any],
    command: str,
    argv: Sequence[str],
) -> int:
    """Call a Hydra application as a command.

    Parameters
    ----------
    application : callable
        Decorated by `hydra.main`.
    command : {"run", "reproduce"}
        Its name.
    argv : sequence of str
        Arguments.

    Returns
    -------
    int
        See `run_action`.
    """

    def run_application() -> None:
        register_plugins()
        completed = complete_arguments(argv, command)
        # Hydra completes the command line of this program, of which it knows no verbs.
        program = "pkm" if "-sc" in completed else f"pkm {command}"
        # What imports and plans create stays until the end of the process. To search it
        # for reference cycles takes a sixth of the time until the first cell: whoever
        # runs cells enables the collector before.
        gc.disable()
        try:
            with (
                patch.object(sys, "argv", [program, *completed]),
                # Hydra raises errors.
                patch.dict(os.environ, {FULL_ERROR: "1"}),
            ):
                application()
        finally:
            gc.enable()

    # With Hydra's own variable set, the user wants its traceback.
    if os.environ.get(FULL_ERROR) == "1":
        run_application()
        return 0
    code = run_action(explain_errors(command)(run_application))
    if code == 2:
        SweepStart.undo()
    return code


def complete_arguments(argv: Sequence[str], command: str) -> list[str]:
    """Add implied arguments to a command line; refuse settings without an effect.

    Raises
    ------
    ConfigurationError
        Naming the setting, and the remedy.

    Examples
    --------
    >>> complete_arguments(["k=3", "-m"], "run")
    ['-m', 'k=3']
    """
    if SUBMITIT in argv:
        argv = expand_submitit(argv)
    # Hydra reads options before or after all keys, not between them.
    words = sorted(argv, key=lambda word: word not in MULTIRUN)
    argv = complete_options(words, command)
    keys = {word.partition("=")[0] for word in argv}
    if keys & {"-h", "--help"} and command == "run" and "method" not in keys:
        # The help text shows no parameters of methods, which take a second to import.
        return [*argv, "method=package.module:Class"]
    if "method._target_" in keys:
        raise ConfigurationError(
            "method._target_ is not set: use method=package.module:Class"
        )
    if keys.intersection(INFO):
        # Hydra logs its answer.
        return [*argv, "hydra/hydra_logging=default"]
    if keys.intersection(SHOW_OPTIONS):
        return argv
    multirun = bool(keys.intersection(MULTIRUN)) or "hydra.mode=MULTIRUN" in argv
    ignored, remedy = RUN_SETTINGS, "a sweep: use hydra.sweep.dir=..."
    if not multirun:
        ignored, remedy = SWEEP_SETTINGS, "a single run: add -m (--multirun)"
        ignored += ("objective=",) if command == "run" else ()
    for word in argv:
        if word.startswith(ignored):
            raise ConfigurationError(f"{word} has no effect on {remedy}")
    if SLURM in argv and shutil.which("srun") is None:
        raise ConfigurationError(
            f"{SLURM} needs a machine of a SLURM cluster, and this one has no `srun`: "
            f"use {SUBMITIT_LAUNCHER}local, or backend=processes"
        )
    # A requested folder gets the files that Hydra usually writes.
    if keys & {"hydra.run.dir", "hydra.sweep.dir"}:
        presets = {
            "hydra.output_subdir": ".hydra",
            "hydra.sweep.subdir": "${hydra.job.num}",
        }
        argv += [f"{key}={value}" for key, value in presets.items() if key not in keys]
    return argv


def expand_submitit(argv: Sequence[str]) -> list[str]:
    """Expand ``backend=submitit`` to settings of Hydra: a sweep whose jobs SLURM runs.

    A job has the default backend, and as many cores as that has workers. A command that
    runs no cell is not submitted.

    Raises
    ------
    ConfigurationError
        If another launcher is given.

    Examples
    --------
    >>> expand_submitit(["backend=submitit", "k=3,4"])[:3]
    ['-m', 'k=3,4', 'hydra/launcher=submitit_slurm']
    >>> expand_submitit(["verb=plan", "backend=submitit"])
    ['verb=plan']
    """
    argv = [word for word in argv if word != SUBMITIT]
    keys = {word.partition("=")[0] for word in argv}
    if keys.intersection(SHOW_OPTIONS) or set(argv) & set(VERBS_WITHOUT_CELLS):
        return argv
    for word in argv:
        is_other = not word.startswith(SUBMITIT_LAUNCHER)
        if word.startswith("hydra/launcher=") and is_other:
            raise ConfigurationError(
                f"{word} is not allowed with {SUBMITIT}: use {SLURM}, "
                f"which is the default, or {SUBMITIT_LAUNCHER}local"
            )
    multirun = [] if keys.intersection(MULTIRUN) else ["-m"]
    presets = (SLURM, "hydra.launcher.cpus_per_task=${jobs}")
    unset = [preset for preset in presets if preset.partition("=")[0] not in keys]
    return [*multirun, *argv, *unset]


def complete_options(argv: Sequence[str], command: str) -> list[str]:
    """Give ``--info`` its default value; refuse unknown options and values of Hydra.

    Hydra would print its usage.

    Raises
    ------
    ConfigurationError
        Naming the option or the value, and the nearest one that there is.

    Examples
    --------
    >>> complete_options(["--cfg", "job", "k=3", "--info"], "run")
    ['--cfg', 'job', 'k=3', '--info=all']
    """
    completed = []
    for word, following in itertools.pairwise([*argv, ""]):
        option, is_assigned, value = word.partition("=")
        is_known = any(name.startswith(option) for name in HYDRA_OPTIONS)
        if option.startswith("--") and not is_known:
            hint = suggestion(option, HYDRA_OPTIONS)
            raise ConfigurationError(f"{option} is no option of pkm {command}{hint}")
        known = HYDRA_OPTIONS.get(option)
        if not is_assigned:
            value = "" if "=" in following or following.startswith("-") else following
        if option in INFO and not value:
            word = "--info=all"
        elif known and value not in known:
            hint = suggestion(value, known)
            raise ConfigurationError(f"{value!r} is no value of {option}{hint}")
        completed.append(word)
    return completed


def run_task(
    task: Callable[[DictConfig], Any],
    config: DictConfig,
    command: str,
) -> Any:
    """Run the task of a Hydra job.

    Hydra would print a line above the error of a job. So a single run ends the process
    here; a job of a sweep raises its error, which its launcher passes on.

    Parameters
    ----------
    task : callable
        From the checked configuration to what the job returns.
    config : DictConfig
        As composed.
    command : {"run", "reproduce"}
        The command, which determines the keys.
    """
    if HydraConfig.get().mode == RunMode.MULTIRUN:
        return task(check_configuration(config, command))
    results = []
    code = run_action(
        lambda: results.append(task(check_configuration(config, command)))
    )
    if code:
        raise SystemExit(code)
    return results[0]


class SweepStart(Callback):
    """What is done before Hydra begins a sweep.

    Attributes
    ----------
    folders : list of Path
        Those that it has made in this process, the innermost first.
    """

    folders: ClassVar[list[Path]] = []

    @classmethod
    def undo(cls) -> None:
        """Remove what a sweep has made that was refused before it ran a job."""
        for folder in cls.folders:
            # Hydra's copy of the command's configuration.
            if [path.name for path in folder.glob("*")] == [SWEEP_FILE]:
                (folder / SWEEP_FILE).unlink()
        remove_empty_folders(cls.folders)

    def on_multirun_start(self, config: DictConfig, **kwargs: Any) -> None:
        """Make the folders, and warn if later jobs depend on results of earlier ones.

        Sweepers and launchers write objectives and logs, which private data may be
        behind: the folders are their owner's alone.
        """
        roots = [Path(config.hydra.sweep.dir), Path(config.results)]
        type(self).folders = [
            folder for root in roots for folder in list_missing_folders(root)
        ]
        for folder in reversed(roots):
            create_owner_folder(folder)
        if not config.hydra.sweeper._target_.endswith(BASIC_SWEEPER):
            show(make_console(stderr=True), TUNING_WARNING, "yellow")
