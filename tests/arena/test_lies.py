"""Entries that lie: each lie is planted in a real entry, and found by `verify`.

A liar also edits what would give the lie away: digests, hashes of code, the claim, the audit. All
cells are verified, so that none is missed by chance.
"""

from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pkm.arena.entry import ROWS, read_entry, write_entry
from pkm.arena.verify import verify
from pkm.datasets import FileOptions
from pkm.experiments.fit.inputs import prepare_data
from pkm.metrics import evaluate
from pkm.privacy import SCALE

HONEST = "sulloyd"


def read(folder):
    """Rows as a list of mappings."""
    return pq.read_table(folder / ROWS).to_pylist()


def write(folder, rows):
    schema = pq.read_schema(folder / ROWS)
    pq.write_table(pa.Table.from_pylist(rows, schema=schema), folder / ROWS)
    sign(folder)


def sign(folder, **changes):
    """Change an entry, and write the digests of its files anew."""
    write_entry(replace(read_entry(folder), **changes), folder)


def pretend(folder, **environment):
    """Change the environment that an entry was made in."""
    sign(folder, environment=dict(read_entry(folder).environment) | environment)


def own(rows):
    """Rows of the method that count for its rank."""
    return [row for row in rows if row["method"] != "kmeans" and not row["timing"]]


def release(row, centers):
    """Give a row other centers, and their cost."""
    data = prepare_data(row["dataset"], FileOptions(), None, "public", True, None, 1.0)
    lower, upper = data.domain
    raw = lower + (centers / SCALE + 1) / 2 * (upper - lower)
    row["centers"] = raw.tolist()
    row["n_centers"] = float(len(raw))
    (row["nicv"],) = evaluate(data.points, centers[None], ["nicv"], row["k"])["nicv"].tolist()


# The lies


def edit_costs(folder, enter):
    rows = read(folder)
    for row in own(rows):
        row["nicv"] *= 0.9
    write(folder, rows)


def edit_one_cost(folder, enter):
    rows = read(folder)
    own(rows)[7]["nicv"] *= 0.999
    write(folder, rows)


def change_the_metric(folder, enter):
    rows = read(folder)
    for row in rows:
        row["nicv"] = np.sqrt(row["nicv"])
    write(folder, rows)


def take_centers_of_k_means(folder, enter):
    rows = read(folder)
    exact = {row["dataset"]: row for row in rows if row["method"] == "kmeans"}
    for row in own(rows):
        row |= {name: exact[row["dataset"]][name] for name in ("centers", "nicv", "n_centers")}
    write(folder, rows)


def draw_less_noise(folder, enter):
    quiet = own(read(enter("lying_methods:Quieter")))
    rows = read(folder)
    for row, other in zip(own(rows), quiet, strict=True):
        row |= {name: other[name] for name in ("centers", "nicv", "n_centers")}
    write(folder, rows)


def choose_seeds(folder, enter):
    """Each seed has the centers of the best seed of its cell."""
    rows = read(folder)
    best = {}
    for row in sorted(own(rows), key=lambda row: -row["nicv"]):
        best[row["sweep"], row["dataset"], row["epsilon"]] = row
    for row in own(rows):
        other = best[row["sweep"], row["dataset"], row["epsilon"]]
        row |= {name: other[name] for name in ("centers", "nicv", "n_centers")}
    write(folder, rows)


def leave_a_set_out(folder, enter):
    write(folder, [row for row in read(folder) if row["dataset"] != "wine"])


def leave_a_seed_out(folder, enter):
    rows = read(folder)
    rows.remove(max(own(rows), key=lambda row: row["nicv"]))
    write(folder, rows)


def call_a_cell_failed(folder, enter):
    """The entry says that a cell has reached its time limit."""
    rows = read(folder)
    write(folder, [row for row in rows if (row["dataset"], row["epsilon"]) != ("wine", 0.5)])
    sign(folder, problems=["sulloyd on wine, epsilon=0.5 (lite): failed: too slow"])


def edit_charges(folder, enter):
    rows = read(folder)
    for row in own(rows):
        for charge in row["charges"]:
            charge["epsilon"] /= 2
    write(folder, rows)


def edit_epsilon_spent(folder, enter):
    rows = read(folder)
    for row in own(rows):
        row["epsilon_spent"] /= 2
    write(folder, rows)


def edit_charges_and_epsilon_spent(folder, enter):
    edit_charges(folder, enter)
    edit_epsilon_spent(folder, enter)


def swap_data_sets(folder, enter):
    """What was computed on iris is said to be of lsun."""
    rows = read(folder)
    settings = {row["dataset"]: row for row in rows}["lsun"]
    for row in rows:
        if row["dataset"] == "iris" and not row["timing"]:
            copied = ("dataset", "data", "n", "d", "k")
            rows.append(row | {name: settings[name] for name in copied})
    write(folder, [row for row in rows if row is not settings][: len(rows)])


def relabel_epsilon(folder, enter):
    rows = read(folder)
    generous = {(row["dataset"], row["seed"]): row for row in own(rows) if row["epsilon"] == 4.0}
    for row in own(rows):
        other = generous[row["dataset"], row["seed"]]
        row |= {name: other[name] for name in ("centers", "nicv", "charges", "epsilon_spent")}
    write(folder, rows)


def state_another_notion(folder, enter):
    rows = read(folder)
    for row in own(rows):
        row |= {"notion": "approximate", "delta": 1e-6}
    write(folder, rows)


def hide_a_flaw(folder, enter):
    rows = read(folder)
    for row in rows:
        row["flaws"] = ""
    write(folder, rows)


def mix_methods(folder, enter):
    """Half of the rows are of another method."""
    others = own(read(enter("lying_methods:Quieter")))
    rows = read(folder)
    for row, other in zip(own(rows)[::2], others[::2], strict=True):
        row |= other | {"method": row["method"]}
    write(folder, rows)


def edit_cpu_times(folder, enter):
    rows = read(folder)
    for row in rows:
        if row["timing"] and row["method"] != "kmeans":
            row["fit_cpu_seconds"] /= 1000
    write(folder, rows)


def edit_costs_of_the_reference(folder, enter):
    rows = read(folder)
    for row in rows:
        if row["method"] == "kmeans":
            row["nicv"] *= 2
    write(folder, rows)


def worsen_the_reference(folder, enter):
    """The reference has centers of twice the spread, and their cost."""
    rows = read(folder)
    for row in rows:
        if row["method"] == "kmeans" and not row["timing"]:
            release(row, np.full((row["k"], row["d"]), SCALE))
    write(folder, rows)


def edit_a_page(folder, enter):
    page = folder / "README.md"
    page.write_text(page.read_text() + "\nBest of all methods.\n")


def add_a_file(folder, enter):
    compiled = folder / "source" / "__pycache__" / "mine.cpython-311.pyc"
    compiled.parent.mkdir(parents=True)
    compiled.write_bytes(b"other code")


def change_the_source(folder, enter):
    (path,) = (folder / "source").glob("*.py")
    path.write_text(path.read_text() + "\n# A change.\n")


def change_the_source_and_sign(folder, enter):
    """The rows have the hash of other code than the source has."""
    change_the_source(folder, enter)
    rows = read(folder)
    for row in own(rows):
        row["code"] = "0" * 64
    write(folder, rows)


def hide_findings(folder, enter):
    """The audit is said to be consistent, and all checks to pass."""
    entry = read_entry(folder)
    record = dict(entry.audit) | {"findings": []}
    record["verdicts"] = dict.fromkeys(record["verdicts"], "consistent")
    checks = [line | {"error": None} for line in entry.checks]
    sign(folder, audit=record, checks=checks, problems=[])


def hide_failed_checks(folder, enter):
    sign(folder, checks=[], problems=[])


def claim_less(folder, enter):
    """A program is said to claim a smaller epsilon than it does."""
    sign(folder, claimed={"notion": "pure", "epsilon": 0.1})


LIES = [
    (edit_costs, HONEST, "costs are not those of the centers"),
    (edit_one_cost, HONEST, "1 of 9 costs are not those of the centers"),
    (change_the_metric, HONEST, "costs are not those of the centers"),
    (take_centers_of_k_means, HONEST, "equal seeds give other costs"),
    (draw_less_noise, HONEST, "equal seeds give other costs"),
    (choose_seeds, HONEST, "equal seeds give other costs"),
    (leave_a_set_out, HONEST, "wine, epsilon=4 (lite): left out, and no problem is named"),
    (leave_a_seed_out, HONEST, "seeds are not those of the suite"),
    (call_a_cell_failed, HONEST, "left out, and a second run gives rows"),
    (edit_charges, HONEST, "the charges need epsilon=0.25, 0.5 is stated"),
    (edit_epsilon_spent, HONEST, "the charges need epsilon=0.5, 0.25 is stated"),
    (edit_charges_and_epsilon_spent, HONEST, "epsilon_spent differ in a second run"),
    (swap_data_sets, HONEST, "costs are not those of the centers"),
    (relabel_epsilon, HONEST, "would need epsilon"),
    (state_another_notion, HONEST, "delta, notion differ in a second run"),
    (hide_a_flaw, "lying_methods:PeeksAtMany", "flaws differ in a second run"),
    (mix_methods, HONEST, "rows of two methods"),
    (edit_cpu_times, HONEST, "CPU time: a fit takes"),
    (edit_costs_of_the_reference, HONEST, "costs are not those of the centers"),
    (worsen_the_reference, HONEST, "kmeans on wine (lite): equal seeds give other costs"),
    (edit_a_page, HONEST, "README.md: the file is not the one"),
    (add_a_file, HONEST, ".pyc: the file is not the one"),
    (change_the_source, "lying_methods:PeeksAtMany", "lying_methods.py: the file is not the"),
    (change_the_source_and_sign, "lying_methods:Unseeded", "rows are of other code"),
    (hide_findings, "lying_methods:Quieter", "residuals: "),
    (hide_findings, "planted_faults:BestOfThree", "it depends on data directly"),
    (hide_findings, "lying_methods:PeeksAtMany", "centers differs although all releases"),
    (claim_less, "lying_methods:Unseeded", "claimed: the program says"),
    (hide_failed_checks, "lying_methods:Unseeded", "check_determinism: "),
]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("plant", "method", "finding"),
    [pytest.param(*lie, id=f"{lie[0].__name__}-{lie[1].rpartition(':')[2]}") for lie in LIES],
)
def test_a_lie_is_found(enter, make_copy, plant, method, finding):
    folder = make_copy(method)
    plant(folder, enter)
    found = verify(folder, share=1.0, jobs=1)
    assert found.status == "refuted"
    assert any(finding in line for line in found.findings), found.findings


def test_better_centers_are_found_by_their_costs_alone(enter, make_copy):
    """Where bits may differ, as on another processor."""
    folder = make_copy(HONEST)
    take_centers_of_k_means(folder, enter)
    pretend(folder, processor="another")
    found = verify(folder, share=1.0, jobs=1)
    assert [line.partition(" ")[0] for line in found.findings] == ["costs"]
    assert "with probability 2e-09" in found.findings[0]
