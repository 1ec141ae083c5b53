"""The keys of ``pkm run`` and ``pkm reproduce``: types, defaults, and meanings."""

from dataclasses import dataclass, field, fields, is_dataclass, make_dataclass
from inspect import cleandoc
from textwrap import fill
from typing import Any

from omegaconf import MISSING

from pkm.experiments.cell.kind import Kind
from pkm.experiments.config.groups import GROUPS, choices
from pkm.experiments.fit.kinds import KINDS

#: The default choices of each command: groups of `conf/` and of Hydra itself.
DEFAULTS = {
    "run": [
        {"method": "synopsis"},
        {"dataset": "iris"},
        {"backend": "processes"},
        {"tracking": "none"},
        {"override hydra/launcher": "cells"},
        {"override hydra/hydra_logging": "pkm"},
        {"override hydra/job_logging": "none"},
        "_self_",
    ],
    "reproduce": [
        {"paper": "fastlloyd"},
        {"profile": "quick"},
        {"backend": "processes"},
        {"tracking": "mlflow"},
        {"override hydra/hydra_logging": "pkm"},
        {"override hydra/job_logging": "none"},
        "_self_",
    ],
}
#: Results are in the store: Hydra makes no folders for a run, and one file for a sweep.
HYDRA = {
    "output_subdir": None,
    "run": {"dir": "."},
    "sweep": {"dir": "${results}/hydra", "subdir": "."},
    "job": {"chdir": False},
    "callbacks": {
        "start": {"_target_": "pkm.experiments.commands.application.SweepStart"}
    },
}
#: Launchers and sweepers log what they do; the packages that a command uses do not.
LOGGER = {"level": "INFO", "handlers": ["console"], "propagate": False}
LOGGING = {
    "version": 1,
    "formatters": {"simple": {"format": "[%(asctime)s][HYDRA] %(message)s"}},
    "handlers": {
        "console": {
            "class": "logging.StreamHandler",
            "formatter": "simple",
            "stream": "ext://sys.stdout",
        }
    },
    "root": {"level": "WARNING"},
    "loggers": {"hydra": LOGGER, "hydra_plugins": LOGGER},
    "disable_existing_loggers": False,
}
#: Keys of a schema that only Hydra reads.
HYDRA_KEYS = ("defaults", "hydra")
VERBS = ("plan", "run", "status", "retry", "report")
EPSILONS = (0.1, 0.25, 0.5, 0.75, 1.0)
METRICS = ("nicv", "silhouette")
#: Width of the help text, and the column in which the meanings of keys begin.
WIDTH, INDENT = 96, 34


def declare_key(default: Any, meaning: str) -> Any:
    """Declare a key: its default, and one line for the help text."""
    if isinstance(default, tuple):
        return field(default_factory=lambda: list(default), metadata={"help": meaning})
    return field(default=default, metadata={"help": meaning})


@dataclass
class CommonOptions:
    """Keys that both commands have; a group has the keys of a file of `conf/`."""

    backend: Any = declare_key(
        MISSING,
        "where cells are run: a group of conf/, or submitit, jobs of SLURM",
    )
    tracking: Any = declare_key(
        MISSING,
        "whether results are projected to MLflow: a group of conf/",
    )
    results: str = declare_key(
        "results",
        "folder of the cell store, the MLflow database and the reports",
    )
    data: str | None = declare_key(
        "${oc.env:PKM_DATA,null}",
        "folder with the original data files (a data_dir); "
        "null: only data sets without files",
    )
    jobs: int = declare_key(1, "worker processes; 1 runs in this process")
    scheduler: str | None = declare_key(
        None,
        "with backend=dask: address of a scheduler, tcp://HOST:PORT; "
        "null: `jobs` workers on this machine",
    )


def make_kind_schema(kind: type[Kind]) -> type:
    """Make a schema whose keys are the settings of a kind, null by default."""
    options = []
    for declared in fields(kind):
        meaning = f"{declared.metadata['rule'].text}; null: {declared.default}"
        options.append((declared.name, Any, declare_key(None, meaning)))
    return make_dataclass(
        f"{kind.__name__}Options",
        options,
        namespace={"__doc__": kind.help},
    )


#: Schemas of the kinds of cells that have keys in `pkm run`.
RUN_KINDS = {kind.key: make_kind_schema(kind) for kind in KINDS if kind.help}


@dataclass
class CellOptions(CommonOptions):
    """Run methods on data sets and print a table.

    pkm run method=synopsis dataset=iris epsilon=[0.1,1.0] seeds=20
    pkm run -m method=synopsis,fastlloyd dataset=iris,s1
    pkm run dataset=file path=points.csv bounds=[0,1] k=3
    pkm run method=package.module:Class dataset=iris

    With -m, values with commas, range(...) and glob(...) are expanded to every
    combination; all are checked before the first one runs. hydra/launcher=basic, joblib
    or submitit_local runs one configuration at a time instead; hydra/sweeper=optuna
    searches for the parameters with the best objective.
    """

    defaults: list = field(default_factory=lambda: DEFAULTS["run"])
    hydra: Any = field(default_factory=lambda: make_hydra_settings("run"))
    method: Any = declare_key(MISSING, "what is run: a group of conf/")
    dataset: Any = declare_key(
        MISSING, "a name of `pkm data list`, or `file` (your own)"
    )
    path: str | None = declare_key(
        None,
        "file to read with dataset=file: CSV, TSV or TXT (also gzipped), NPY, NPZ, "
        "a grid file of `pkm pack`, Parquet, a folder or a pattern of Parquet files",
    )
    columns: Any = declare_key(
        None,
        "its columns that are features, a list of names or numbers; null: all",
    )
    label: Any = declare_key(
        None, "its column of the class, by name or number; null: none"
    )
    decimal: str | None = declare_key(
        None,
        "its decimal mark, comma or point; null: found out, or refused if ambiguous",
    )
    bounds: Any = declare_key(
        None,
        "its public domain: [lower, upper] or [[lower, ...], [upper, ...]]",
    )
    preprocessing: str | None = declare_key(
        None,
        "minmax: by the data's own extremes (private facts, flagged); "
        "public: by the domain; range: all columns by the one range they share; "
        "null: public, for which a file needs bounds",
    )
    clip: bool = declare_key(
        True,
        "public, range: points outside are moved to the border (true) "
        "or refused (false)",
    )
    bounds_factor: Any = declare_key(
        1.0,
        "how many times as wide as the domain the bounds are that methods get, "
        "or a list",
    )
    k: Any = declare_key(
        None, "number of clusters, one or a list; null: the data set's own"
    )
    epsilon: Any = declare_key(
        EPSILONS,
        "one privacy parameter or a list; ignored by methods that have none",
    )
    delta: Any = declare_key(
        "auto", "auto: the method chooses it; else a number in (0, 0.5)"
    )
    seeds: Any = declare_key(20, "a number (seeds 0, 1, ...) or a list of seeds")
    metrics: Any = declare_key(METRICS, "names from pkm.metrics.METRICS")
    timing: bool = declare_key(
        False,
        "true: measure running time, every seed in a separate fit on one thread, "
        "after one fit to warm up",
    )
    keep_centers: bool = declare_key(
        False,
        "true: store the released centers as well, in raw units "
        "(pkm centers writes a file)",
    )
    noise: str | None = declare_key(
        None,
        "secure: from the operating system; seeded: from the seeds, repeatable, for "
        "public data; null: secure for your own files, for sets given on request and "
        "with an account, else seeded",
    )
    account: str | None = declare_key(
        None,
        "file of an account (pkm account FILE) that every fit is charged to; "
        "null: none",
    )
    objective: str | None = declare_key(
        None,
        "metric whose mean a job returns to Hydra's sweeper; "
        "null: nicv, or the first of metrics",
    )


RunOptions = make_dataclass(
    "RunOptions",
    [
        (name, schema, field(default_factory=schema))
        for name, schema in RUN_KINDS.items()
    ],
    bases=(CellOptions,),
    namespace={"__doc__": CellOptions.__doc__},
)


@dataclass
class ReproduceOptions(CommonOptions):
    """Run what of a paper is missing and write its report.

    pkm reproduce paper=fastlloyd profile=quick jobs=2 data=path/to/originals

    pkm reproduce paper=all   every paper of conf/paper, one after the other
    pkm reproduce plan        a dry run: what is stored, what is missing, how long
    pkm reproduce run         run the cells that are absent
    pkm reproduce status      cells per sweep: done, failed (why) and absent
    pkm reproduce retry       run the failed cells again
    pkm reproduce report      write the report from what is stored

    A verb is short for verb=...; without one: run, then report. With sweeps=[NAME,...]
    only these are run; the report is on all that is stored. Stop it at any time and
    start it again: finished cells are kept and never run twice.
    """

    defaults: list = field(default_factory=lambda: DEFAULTS["reproduce"])
    hydra: Any = field(default_factory=lambda: make_hydra_settings("reproduce"))
    paper: Any = declare_key(
        MISSING,
        "which paper's sweeps: a group of conf/; all: every paper",
    )
    profile: Any = declare_key(MISSING, "how much of a paper: smoke, quick or paper")
    sweeps: Any = declare_key(
        None, "which of the paper's sweeps are run, a list; null: all"
    )
    fetch: bool = declare_key(
        "${oc.env:PKM_FETCH,true}",
        "true: what is missing of the data sets is downloaded first (the default is "
        "PKM_FETCH, else true); without a network, and with false, the paper goes on "
        "without it",
    )
    verb: str | None = declare_key(
        None,
        "plan, run, status, retry or report; null: run, then report",
    )


def make_hydra_settings(command: str) -> dict:
    """Return Hydra's settings for a command, with its help text."""
    schema = OPTIONS[command]
    lines = [
        cleandoc(schema.__doc__ or ""),
        "",
        "Keys (key=value, with their defaults):",
    ]
    lines += [*list_help_lines(schema), "", "Groups (group=choice):"]
    for group in GROUPS:
        if group in list_keys(schema):
            lines.append(format_paragraph(group, ", ".join(choices(group))))
    lines += [
        "",
        "--cfg job prints what a command line makes; "
        "--hydra-help: Hydra's own options.",
    ]
    return HYDRA | {"help": {"template": "\n".join(lines)}}


OPTIONS = {"run": RunOptions, "reproduce": ReproduceOptions}


def list_keys(schema: type) -> dict[str, Any]:
    """Return the keys of a schema with their fields, without those of Hydra alone."""
    options = {option.name: option for option in fields(schema)}
    return {name: options[name] for name in options if name not in HYDRA_KEYS}


def list_help_lines(schema: type, prefix: str = "") -> list[str]:
    """Describe the keys of a schema, nested ones by their full name."""
    lines = []
    for name, option in list_keys(schema).items():
        if is_dataclass(option.type):
            lines += ["", f"{name}: {option.type.__doc__}"]
            lines += list_help_lines(option.type, f"{name}.")
        else:
            lines.append(format_paragraph(prefix + name, option.metadata["help"]))
    return lines


def format_paragraph(heading: str, text: str) -> str:
    """Format a text to the right of its heading."""
    first = f"  {heading:<{INDENT - 3}} "
    indent = " " * INDENT
    return fill(
        text,
        WIDTH,
        initial_indent=first,
        subsequent_indent=indent,
        break_on_hyphens=False,
    )
