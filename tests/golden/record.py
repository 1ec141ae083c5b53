"""Golden records: results that change by intention only. ``make golden`` writes them again.

Centers and charges are hashed, spent epsilon is written out, figures are reduced to the numbers
that they show, and claims to their verdicts. Names of columns and captions are left out: they
may be reworded. Pictures of pages have a digest of what the same code draws of fabricated rows.
"""

import hashlib
import json
from collections.abc import Iterable, Iterator
from dataclasses import fields
from pathlib import Path

import numpy as np
from fabricated.audit import all_records
from fabricated.studies import ROWS, paper_of, study_of
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from PIL import Image
from reports import figure_of, verdicts_of

from pkm.analysis.figures.figure import read_figures
from pkm.analysis.pages import audits
from pkm.analysis.pages.audit_figure import draw_audit
from pkm.analysis.render import plot
from pkm.analysis.render.draw import draw
from pkm.datasets import load, scale
from pkm.experiments.cell.cell import STYLE, Cell
from pkm.experiments.config.groups import choices, read_choice
from pkm.experiments.fit.inputs import resolve_cell
from pkm.experiments.fit.unlearning import Unlearning
from pkm.federation import Network, run_in_threads, split_points
from pkm.methods import load_method
from pkm.privacy import snap

FOLDER = Path(__file__).parent
PAGES = FOLDER.parents[1] / "docs" / "figures"
SEEDS = (0, 1, 2)
EPSILONS = (0.5, 4.0)
DATASETS = {"iris": "minmax", "planted-3000-2-4-0.05": "public"}
N_CLUSTERS = 3
FEDERATED = (
    "lloyd_published",
    "sulloyd_published",
    "glloyd_published",
    "fastlloyd_published",
    "fastlloyd",
)
REMOVALS = {
    "clients": 5,
    "split": "noniid",
    "clusters_per_client": 2,
    "split_seed": 0,
    "removals": 4,
    "batch": 1,
    "requests": "random",
    "sparse": False,
}
#: Federated clustering with removals runs on a configuration of its own.
UNLEARNING = (
    "dc_kmeans",
    "k_fed",
    "mufc",
    "mufc_full",
    "mufc_lazy",
    "mufc_points",
    "mufc_repaired",
    "mufc_simplified",
    "q_kmeans",
)


#: These run after a zoom with a tenth of the budget as well.
ZOOMED = (
    "aim",
    "balcan",
    "dpm_merged",
    "em_mc",
    "eugkm",
    "eugkm_balanced",
    "fastlloyd",
    "glloyd",
    "hst",
    "hybrid",
    "kaplan_stemmer",
    "lsh_splits",
    "mst",
    "noisy_mean_packing",
    "pe_means",
    "quadtree",
    "sulloyd",
)


#: Values that the sweeps of dist-DP name.
NAMED = {
    "dist_dp_any": ("dist_dp", {"rho": "diagonal"}),
    "dist_dp_median": ("dist_dp", {"p": 1}),
    "dist_dp_median_published": ("dist_dp_published", {"p": 1}),
}


#: Their public points are records of the data set that a cell takes out.
PUBLIC_DATA = ("feddp_same", "feddp_shifted", "public_kmeans_same", "public_kmeans_shifted")


def digest(*arrays) -> str:
    """Hash of arrays with their types and shapes."""
    hasher = hashlib.sha256()
    for array in map(np.ascontiguousarray, arrays):
        hasher.update(f"{array.dtype.str}{array.shape}".encode())
        hasher.update(array.tobytes())
    return hasher.hexdigest()[:16]


def rounded(value):
    """Numbers to twelve significant digits, in nested containers too."""
    if isinstance(value, dict):
        return {str(name): rounded(item) for name, item in sorted(value.items())}
    if isinstance(value, list | tuple):
        return [rounded(item) for item in value]
    if isinstance(value, float | np.floating):
        return float(f"{float(value):.12g}")
    return int(value) if isinstance(value, np.integer) else value


def charge_record(charge) -> dict:
    """Fields of a charge that are not empty."""
    values = {field.name: getattr(charge, field.name) for field in fields(charge)}
    values["details"] = dict(values["details"])
    return {
        name: value
        for name, value in values.items()
        if value not in (0.0, "", None, {}) or name == "round"
    }


def run_record(run) -> dict:
    """Released centers of a batch, what was charged for them and what was spent."""
    names = [name for name in vars(run) if name.startswith(("cent", "n_cent"))]
    centers = digest(*(getattr(run, name) for name in names))
    record = {"centers": centers, "n_iter": run.n_iter}
    if run.ledger is not None:
        record["charges"] = digest_of_json([charge_record(charge) for charge in run.ledger.charges])
        record["n_charges"] = len(run.ledger.charges)
        record["spent"] = run.ledger.spent()
        record["delta"] = run.ledger.budget.delta
    return rounded(record)


def digest_of_json(value) -> str:
    """Hash of a nested value with rounded numbers."""
    text = json.dumps(rounded(value), sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def points_of(dataset: str):
    """Points of a data set on the grid, with its domain."""
    scaled = scale(load(dataset), DATASETS[dataset], clip=True)
    return snap(scaled.points), np.array([scaled.lower, scaled.upper])


def configured(name: str, **parameters):
    """Build a method of ``conf/method`` with further parameters."""
    entry = read_choice("method", name)
    excluded = ("name", "_target_", *STYLE)
    options = {key: value for key, value in entry.items() if key not in excluded}
    return load_method(entry["_target_"])(**options | parameters)


def method_records() -> dict:
    """Every method of ``conf/method`` on two sets and two budgets."""
    records = {}
    excluded = (*UNLEARNING, *PUBLIC_DATA, "diffprivlib")
    names = [name for name in choices("method") if name not in excluded]
    methods = {name: (name, {}) for name in names}
    methods |= NAMED
    methods |= {f"{name}_zoomed": (name, {"zoom": 0.1}) for name in ZOOMED}
    for dataset in DATASETS:
        points, domain = points_of(dataset)
        for name, (base, changes) in methods.items():
            private = configured(base).claim.private
            for epsilon in EPSILONS if private else (None,):
                budget = {"epsilon": epsilon} if private else {}
                method = configured(base, n_clusters=N_CLUSTERS, **changes, **budget)
                try:
                    record = run_record(method.fit_batch(points, SEEDS, domain, secure=False))
                except ValueError as error:  # a refusal is a result too
                    record = {"refused": type(error).__name__}
                key = f"{name} {dataset} {epsilon:g}" if epsilon else f"{name} {dataset}"
                records[key] = record
    return records


def federation_records() -> dict:
    """The protocol between three clients and a server, as threads."""
    from pkm.compute import Points

    records = {}
    for dataset in DATASETS:
        grid, domain = points_of(dataset)
        parts = split_points(Points.from_grid(grid), 3, 0, "unbalanced")
        for name in FEDERATED:
            method = configured(name, n_clusters=N_CLUSTERS)
            run, measured = run_in_threads(
                method, parts, SEEDS, domain, network=Network(3), allow_seeded_noise=True
            )
            records[f"{name} {dataset}"] = run_record(run) | {"bytes": measured.bytes_per_iteration}
    return rounded(records)


def unlearning_records() -> dict:
    """Federated clustering after some removals, and what it costs to cluster so."""
    records = {}
    for dataset, preprocessing in DATASETS.items():
        for name in UNLEARNING:
            entry = {
                key: value for key, value in read_choice("method", name).items() if key not in STYLE
            }
            target = entry.pop("_target_")
            settings = REMOVALS | ({"removals": 0} if name == "k_fed" else {})
            cell = Cell(
                entry.pop("name"), target, entry, dataset, preprocessing,
                N_CLUSTERS, None, None, SEEDS,
                ("nicv",), timing=True, kind=Unlearning(**settings),
            )  # fmt: skip
            fits, columns = cell.kind.fit(resolve_cell(cell, None))
            runs = [run_record(run) for run, _ in fits]
            losses = {key: value for key, value in columns.items() if key.startswith("loss_ratio")}
            records[f"{name} {dataset}"] = {"runs": runs, "losses": losses}
    return rounded(records)


def figure_record(result) -> dict:
    """Numbers of a figure's table; the order of rows and columns does not count."""
    table = result.table.select_dtypes("number")
    columns = sorted(numbers_digest(np.sort(table[name].to_numpy(float))) for name in table)
    return {
        "rows": len(result.table),
        "numbers": digest_of_json(columns),
        "gaps": len(result.missing),
    }


def numbers_digest(values) -> str:
    """Hash of numbers to nine significant digits."""
    texts = [f"{value:.9g}" for value in np.asarray(values, float).ravel()]
    return hashlib.sha256(" ".join(texts).replace("-0 ", "0 ").encode()).hexdigest()[:16]


def figure_records(studies: Iterable[str] = ROWS) -> dict:
    """Every figure of every paper, from fabricated rows."""
    return {
        f"{study}/{spec.name}": figure_record(figure_of(study, spec.name))
        for study in studies
        for spec in read_figures(paper_of(study))
    }


def claim_records(studies: Iterable[str] = ROWS) -> dict:
    """Verdict of every claim, from fabricated rows."""
    return {
        f"{study}: {verdict.claim.id}": str(verdict.finding.verdict)
        for study in studies
        if paper_of(study) in choices("paper")
        for verdict in verdicts_of(study)
    }


def drawings() -> Iterator[tuple[str, str, Figure]]:
    """Names of the pages' pictures, hash of fabricated rows, and what is drawn of these."""
    records = [entry | {"code": ""} for entry in all_records()]
    audit = draw_audit(list(map(audits.parse, records)))
    yield "audit", digest_of_json(records), plot.plot(audit.drawing)
    pictures = {path.stem for path in PAGES.glob("*.png")}
    for study, make_rows in ROWS.items():
        rows = numbers_digest(make_rows().select_dtypes("number"))
        for spec in read_figures(paper_of(study)):
            if spec.file_name in pictures:
                style = "paper" if spec.in_paper else "bench"
                drawing = draw(study_of(study), spec.in_style(style)).drawing
                if drawing is not None:
                    pictures.remove(spec.file_name)
                    yield spec.file_name, rows, plot.plot(drawing, style)


def picture_records() -> dict:
    """Pictures of pages, and how they would be drawn now: from fabricated rows.

    A picture is `older` if this has changed, with the same rows, since it was made.
    """
    known = stored("pictures")
    records = {}
    for name, rows, figure in drawings():
        canvas = FigureCanvasAgg(figure)
        canvas.draw()
        picture = digest(np.asarray(Image.open(PAGES / f"{name}.png")))
        now = {"drawing": digest(np.asarray(canvas.buffer_rgba())), "rows": rows}
        before = known.get(name, {"picture": picture, "older": False, **now})
        is_changed = before["drawing"] != now["drawing"] and before["rows"] == rows
        older = before["picture"] == picture and (before["older"] or is_changed)
        records[name] = {"picture": picture, "older": older, **now}
    return records


RECORDS = {
    "pictures": picture_records,
    "methods": method_records,
    "federation": federation_records,
    "unlearning": unlearning_records,
    "figures": figure_records,
    "claims": claim_records,
}


def stored(name: str) -> dict:
    """Read a golden record."""
    return json.loads((FOLDER / f"{name}.json").read_text())


def write(name: str) -> None:
    """Write a golden record."""
    lines = [
        f"  {json.dumps(key)}: {json.dumps(value, sort_keys=True)}"
        for key, value in RECORDS[name]().items()
    ]
    (FOLDER / f"{name}.json").write_text("{\n" + ",\n".join(lines) + "\n}\n")


if __name__ == "__main__":
    import sys

    for name in sys.argv[1:] or RECORDS:
        write(name)
        print(f"{name}.json: {len(stored(name))} records")
