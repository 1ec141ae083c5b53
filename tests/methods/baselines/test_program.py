"""Programs as methods: what is handed over, what comes back, what is refused."""

import numpy as np
import pytest

from pkm.catalogue import CONFIG_DIRS
from pkm.experiments.config.groups import fill_defaults
from pkm.methods import ProgramKMeans
from pkm.methods.baselines import program
from pkm.privacy import SCALE, snap

# As centers of replicate r the first k - r points, moved by epsilon and the seed.
PROGRAM = """
import json
import pyarrow.parquet as pq
import pyarrow as pa
table = pq.read_table("points.parquet")
request = json.load(open("request.json"))
k = request["n_clusters"]
parts = []
for replicate, seed in enumerate(request["seeds"]):
    first = table.slice(0, k - replicate)
    moved = {
        name: first[name].to_numpy() + request["epsilon"] / 8 + seed % 2 / 4
        for name in first.column_names
    }
    parts.append(pa.table({"replicate": [replicate] * len(first)} | moved))
names = ["replicate", *table.column_names]
pq.write_table(pa.concat_tables(parts).select(names), "centers.parquet")
claim = dict(notion="approximate", adjacency="zero_out", unit="row", epsilon=request["epsilon"])
json.dump(claim | dict(delta=request["delta"]), open("claim.json", "w"))
"""
POINTS = snap(np.random.default_rng(0).uniform(-0.5, 0.5, (30, 2)))
COMMAND = ("python3", "program.py")


@pytest.fixture
def write(tmp_path, monkeypatch):
    """Put a program into a folder of configurations."""
    monkeypatch.setenv(CONFIG_DIRS, str(tmp_path))
    return (tmp_path / "program.py").write_text


def fit(seeds=(0,), **parameters):
    return ProgramKMeans(3, command=COMMAND, **parameters).fit_batch(POINTS, seeds)


def test_points_and_request_are_handed_over(write):
    write(PROGRAM)
    run = fit([0, 1], epsilon=1.0, delta=1e-7)
    seeds = ProgramKMeans(3).noise_streams([0, 1], *POINTS.shape).public_seeds
    moves = [SCALE // 8 + SCALE // 4 * (seed % 2**32 % 2) for seed in seeds]
    assert (run.centers[0] == POINTS[:3] + moves[0]).all()
    assert (run.centers[1, :2] == POINTS[:2] + moves[1]).all()
    assert run.n_centers.tolist() == [3, 2]
    assert run.ledger is None
    terms = {"notion": "approximate", "adjacency": "zero_out", "unit": "row"}
    assert run.synopsis == terms | {"epsilon": 1.0, "delta": 1e-7}


WRITE = 'pq.write_table(pa.concat_tables(parts).select(names), "centers.parquet")'


@pytest.mark.slow
@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (PROGRAM, "raise SystemExit('no room')", "python3 program.py ended with status 1: no room"),
        (PROGRAM, "import no_such_module", "status 1: ModuleNotFoundError"),
        (PROGRAM, "pass", "claim.json is missing: a program must write it"),
        (WRITE, "", "centers.parquet is missing"),
        (WRITE, 'open("centers.parquet", "w")', "columns replicate and x0 to x1, all numbers"),
        ("select(names)", "select(names[:2])", "the columns replicate and x0 to x1"),
        ("/ 8", "* float('nan')", "a coordinate that is not finite"),
        (
            "k - replicate",
            "k + 1",
            "has .4. centers of replicates 0 to 0, 4 in all: .*n_clusters=3",
        ),
        ("[replicate]", "[7]", "has .0. centers"),
        ('"zero_out"', '"nobody"', "claim.json is no claim: 'nobody' is not a valid Adjacency"),
        ('notion="approximate",', "", "its keys must be adjacency, delta, epsilon, notion, unit"),
        ("dict(delta=", "dict(delta=2 *", "claim.json: delta=2e-06 must be at most 1e-06"),
        ("unit=", "unit=2 *", "'rowrow' is not a valid Unit"),
        ('"approximate"', '"pure"', "delta=1e-06 must be at most 0"),
    ],
)
def test_what_a_program_does_wrong_is_named(write, old, new, message):
    assert old in PROGRAM
    write(PROGRAM.replace(old, new))
    with pytest.raises(RuntimeError, match=message) as raised:
        fit()
    assert "\n" not in str(raised.value)


def test_a_program_without_privacy_says_so(write):
    write(PROGRAM + 'json.dump({"notion": "none"}, open("claim.json", "w"))')
    assert fit().synopsis == {"notion": "none"}


def test_a_program_that_takes_too_long_is_ended(write):
    write("import time; time.sleep(60)")
    with pytest.raises(RuntimeError, match=r"python3 program.py took more than 0\.5 seconds"):
        fit(time_limit=0.5)


@pytest.mark.parametrize(
    "command", [(), "python3 program.py", ("python3", 3), ("no-such-program",), None]
)
def test_a_command_that_cannot_be_started_is_refused(command):
    with pytest.raises(ValueError, match=r"^command=.* must be a list of words"):
        ProgramKMeans(3, command=command).fit_batch(POINTS, [0])


def test_a_program_that_changes_has_another_digest(write):
    """The digest is in the keys of cells, and a cell runs the files of its key alone."""
    entry = {"name": "own", "_target_": "pkm.methods.ProgramKMeans", "command": [*COMMAND]}
    write(PROGRAM)
    first = fill_defaults(entry)["digest"]
    assert first == fill_defaults(entry | {"digest": "other"})["digest"]
    fit(digest=first)
    write(PROGRAM + "# changed")
    assert fill_defaults(entry)["digest"] != first
    with pytest.raises(ValueError, match=r"^digest=.* leave it out"):
        fit(digest=first)


@pytest.mark.parametrize("word", ["sub/file.txt", "../file.txt", "absent.txt"])
def test_only_names_of_files_stand_for_files(tmp_path, write, word):
    folder = tmp_path / "sub"
    folder.mkdir()
    (folder / "file.txt").touch()
    write("")
    assert program.find_files([*COMMAND, word, str(folder / "file.txt")]).keys() == {"program.py"}
