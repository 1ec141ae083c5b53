"""The report folder as an RO-Crate, and the origin of each figure."""

import hashlib
import json

import pytest

from pkm.experiments.backends.backends import run_cells
from pkm.experiments.config.backend import Backend
from pkm.experiments.plan.plan import make_plan
from pkm.experiments.reports.crate import METADATA, write_crate, write_provenance
from pkm.experiments.store.store import Store

pytestmark = pytest.mark.integration

PAPER = {
    "name": "fastlloyd",
    "epsilon": [0.1, 1.0],
    "sweeps": {
        "real": {"datasets": ["iris"], "methods": ["mean", "packing"]},
        "iterations": {"datasets": ["wine"], "methods": ["packing"]},
    },
}


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    root = tmp_path_factory.mktemp("crate")
    plan = make_plan(PAPER, {"name": "tiny", "seeds": 2})
    store = Store(root / "results")
    run_cells(plan.cells, store, Backend())
    rows = plan.read_rows(store)
    folder = root / "report"
    for name in ("index.html", "figures/figure2.png", "figures/iterations.png", "tables/a.csv"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(name)
    (folder / "figures" / "gone.json").write_text("{}")
    write_provenance(rows, "fastlloyd", "tiny", folder / "figures")
    described = {"title": "FastLloyd", "paper": "fastlloyd", "profile": "tiny"}
    write_crate(folder, rows, "real: {}\n", environment={"python": "3"}, **described)
    entities = json.loads((folder / METADATA).read_text())["@graph"]
    return folder, rows, {entity["@id"]: entity for entity in entities}


def references(value):
    """Iterate over the identifiers that an entity refers to."""
    if isinstance(value, dict):
        if set(value) == {"@id"}:
            yield value["@id"]
        for item in value.values():
            yield from references(item)
    elif isinstance(value, list):
        for item in value:
            yield from references(item)


def test_every_file_is_part_of_the_crate_with_its_digest(written):
    folder, _, entities = written
    files = {
        path.relative_to(folder).as_posix()
        for path in folder.rglob("*")
        if path.is_file() and path.name != METADATA
    }
    parts = {part["@id"] for part in entities["./"]["hasPart"]}
    assert parts == files
    for name in files:
        digest = hashlib.sha256((folder / name).read_bytes()).hexdigest()
        assert entities[name]["sha256"] == digest
        assert entities[name]["encodingFormat"] != "application/octet-stream"


def test_what_is_referred_to_inside_the_crate_is_in_it(written):
    _, _, entities = written
    for entity in entities.values():
        inside = [name for name in references(entity) if not name.startswith("http")]
        assert set(inside) <= set(entities), entity["@id"]


def test_the_run_has_the_data_sets_as_inputs_and_the_files_as_results(written):
    _, rows, entities = written
    run = entities["#run"]
    inputs = {entities[each["@id"]]["value"] for each in run["object"]}
    assert inputs == {"tiny", *rows["data"].unique()}
    results = {each["@id"] for each in run["result"]}
    assert {"index.html", "figures/figure2.png", "tables/a.csv"} <= results
    assert run["instrument"] == entities["./"]["mainEntity"] == {"@id": "sweeps.yaml"}
    assert run["startTime"] <= run["endTime"]


def test_origins_say_which_cells_a_figure_is_made_from(written):
    folder, rows, entities = written
    assert not (folder / "figures" / "gone.json").exists()
    for name, sweep in {"figure2": "real", "iterations": "iterations"}.items():
        origin = json.loads((folder / "figures" / f"{name}.json").read_text())
        used = rows[rows["sweep"] == sweep]
        assert origin["sweeps"] == [sweep]
        assert origin["cells"] == used["cell"].nunique()
        assert origin["data"] == dict(zip(used["dataset"], used["data"], strict=True))
        assert {each["code"] for each in origin["methods"]} == set(used["code"])
        keys = "\n".join(sorted(used["cell"].unique()))
        assert origin["cells_sha256"] == hashlib.sha256(keys.encode()).hexdigest()
        assert origin["command"] == f"pkm verify fastlloyd/{name} profile=tiny"
        described = entities[f"figures/{name}.json"]
        assert described["about"] == {"@id": f"figures/{name}.png"}
