"""`pkm cluster`: from a table to a folder that has released and public values alone."""

import os
import re
import shutil
import signal
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import pkm
from pkm.audit.replay import Trace, compare_traces, make_tracing_curator, observe
from pkm.datasets import user_tables
from pkm.datasets.user_schema import Schema
from pkm.datasets.user_tables import read_blocks
from pkm.experiments.commands import cluster
from pkm.methods import SynopsisKMeans
from pkm.privacy import Curator

SCHEMA = """\
age: {kind: integer, low: 16, high: 100}
spent (EUR): {kind: number, low: 1, high: 10000, log: true, decimal: comma}
plan: {kind: category, levels: [student, basic, premium]}
newsletter: {kind: flag, weight: 0.5}
since: {kind: date, low: 2015-01-01, high: 2026-01-01, format: "%d.%m.%Y"}
hour: {kind: cyclic, period: 24}
"""
N = 4_000


@pytest.fixture(scope="module")
def table():
    """Customers of three groups, as an office writes them."""
    rng = np.random.default_rng(0)
    group = rng.integers(3, size=N)
    days = pd.Timestamp("2026-01-01") - pd.to_timedelta(
        rng.normal(np.array([300, 1500, 2500])[group], 150).clip(0), unit="D"
    )
    rows = pd.DataFrame(
        {
            "id": [f"customer-{i:05d}" for i in rng.permutation(N)],
            "age": rng.normal(np.array([22, 35, 61])[group], 4).round().astype(int).astype(str),
            "spent (EUR)": [
                f"{value:.4f}".replace(".", ",")
                for value in rng.lognormal(np.array([3, 4, 7])[group], 0.5)
            ],
            "plan": np.array(["student", "basic", "premium"])[group],
            "newsletter": np.where(rng.random(N) < 0.5, "yes", "no"),
            "since": days.strftime("%d.%m.%Y"),
            "hour": (rng.normal(np.array([23, 20, 10])[group], 1.5) % 24).astype(int).astype(str),
        }
    )
    return rows.mask(rng.random(rows.shape) < 0.01)


@pytest.fixture
def folder(tmp_path, table, monkeypatch):
    """A folder with the table and its schema."""
    monkeypatch.chdir(tmp_path)
    table.to_csv("customers.csv", sep=";", index=False)
    Path("customers.yaml").write_text(SCHEMA)
    return tmp_path


COMMAND = ["customers.csv", "schema=customers.yaml", "k=3", "epsilon=1", "output=out"]


@pytest.mark.slow
def test_a_table_becomes_a_folder_of_released_values(folder, table):
    assert cluster.main(COMMAND) == 0
    files = {str(path.relative_to("out")) for path in Path("out").rglob("*") if path.is_file()}
    assert {"index.html", "centers.csv", "schema.yaml", "model/model.json"} <= files
    # Nothing else is left, not even the rows on the scale.
    assert {path.name for path in Path().iterdir()} == {"customers.csv", "customers.yaml", "out"}

    # The groups are found, in the table's words.
    centers = pd.read_csv("out/centers.csv").sort_values("age")
    assert (centers["age"] - [22, 35, 61]).abs().max() <= 3
    assert centers[["plan_student", "plan_basic", "plan_premium"]].to_numpy().diagonal().min() > 0.8
    assert (centers["size"] - N / 3).abs().max() < 0.1 * N

    # No cell that identifies a row is in a file.
    page = Path("out/index.html").read_text()
    visible = re.sub(r"base64,[^\"]*", "", page)
    rest = "".join(
        Path("out", name).read_text() for name in files if name.endswith(("csv", "json", "md"))
    )
    for text in [*table["id"].dropna(), *table["spent (EUR)"].dropna()]:
        assert text not in visible
        assert text not in rest
    assert len(page) < 3_000_000

    # It is what `pkm.load` reads, and within its budget.
    model = pkm.load("out/model")
    assert model.ledger_.spent() <= 1
    assert not model.ledger_.repeatable


@pytest.mark.slow
def test_all_files_follow_from_the_model_and_the_schema(folder):
    """So an adversary with the folder has what the ledger charged for, and no more."""
    assert cluster.main(COMMAND) == 0
    schema = Schema.from_yaml("out/schema.yaml")
    model = pkm.load("out/model")
    cluster.write_release(model, schema, "out/schema.yaml", Path("again"))
    for path in Path("out").rglob("*.*"):
        again = Path("again", path.relative_to("out"))
        assert again.read_bytes() == path.read_bytes()


@pytest.mark.slow
def test_ids_make_persons_the_records(folder):
    assert cluster.main([*COMMAND, "groups=id"]) == 0
    statement = pkm.load("out/model").statement()
    assert statement.ledger["budget"]["unit"] == "person"


def test_a_text_and_a_parquet_file_have_the_same_rows(folder, table):
    table.to_parquet("customers.parquet")
    schema = Schema.from_yaml("customers.yaml")
    for name in ("customers.csv", "customers.parquet"):
        cluster.write_rows(Path(name), schema, "id", Path(f"{name}.rows"))
    text, parquet = (
        pq.read_table(f"{name}.rows") for name in ("customers.csv", "customers.parquet")
    )
    pd.testing.assert_frame_equal(text.to_pandas(), parquet.to_pandas())
    assert text.num_rows == N
    assert text.column(cluster.IDS).null_count == table["id"].isna().sum()


@pytest.mark.parametrize("ids", [[1, 2, 3, 4], ["a", "b", "c", "d"], [True, False, True, False]])
def test_types_of_ids_do_not_depend_on_missing_ones(tmp_path, monkeypatch, ids):
    monkeypatch.setattr(user_tables, "BLOCK_ROWS", 2)
    schema = Schema({"age": {"kind": "integer", "low": 0, "high": 99}})
    path = tmp_path / "visits.parquet"
    written = []
    for missing in ([], [1], [2, 3]):
        column = [None if i in missing else ids[i] for i in range(4)]
        known = pa.array(ids).type
        pq.write_table(pa.table({"age": [1, 2, 3, 4], "user": pa.array(column, known)}), path)
        cluster.write_rows(path, schema, "user", tmp_path / "rows")
        written.append(pq.read_table(tmp_path / "rows"))
        assert written[-1].column(cluster.IDS).to_pylist() == column
    assert written[0].schema == written[1].schema == written[2].schema


def test_a_line_of_another_length_is_a_null_record(tmp_path):
    path = tmp_path / "table.csv"
    path.write_text("a;b\n1;2\n3\n4;5;6\n7;8\n")
    (block,) = read_blocks(path, ["a", "b"])
    assert block["a"].tolist() == ["1", None, None, "7"]


@pytest.mark.parametrize("separator", [";", ",", "\t"])
def test_the_first_line_alone_says_how_columns_are_separated(tmp_path, separator):
    path = tmp_path / "table.csv"
    path.write_text(f"a{separator}b{separator}c\n1,5;2,5;3,5\n")
    (block,) = read_blocks(path, ["c", "a"])
    assert list(block) == ["a", "b", "c"]


@pytest.mark.parametrize(
    "words, message",
    [
        (["customers.csv"], "pkm schema drafts one"),
        (["customers.yaml", *COMMAND[1:]], "customers.yaml should be a file that ends in"),
        (
            [*COMMAND, "epsilon=0.001"],
            "epsilon=0.001 is too small: noise hides groups",
        ),
        ([*COMMAND, "n=many"], "n='many'"),
        ([*COMMAND, "n=2"], "n_clusters=3 must be at most"),
        ([*COMMAND, "excess=0.1"], "excess=0.1"),
        ([*COMMAND, "epsilon=auto", "n=4000"], "excess=None"),
        ([*COMMAND, "epsilon=auto", "excess=0.1"], "n=None"),
        ([*COMMAND, "epsilon=auto", "excess=0.1", "n=99", "k=auto"], "k='auto'"),
        (["customers.csv", "schema=customers.yaml", "output=out"], "epsilon"),
        ([*COMMAND[:-1]], "output"),
        ([*COMMAND[:-1], "output=customers.csv"], "a folder that does not exist"),
        ([*COMMAND[:-1], "output=no/such/out"], "in a folder that exists"),
        ([*COMMAND, "epsilon=0"], "epsilon=0"),
        ([*COMMAND, "k=0"], "n_clusters=0"),
        ([*COMMAND, "report=0"], "report"),
        ([*COMMAND, "groups=nobody"], "nobody"),
        (["none.csv", *COMMAND[1:]], "none.csv"),
        ([*COMMAND, "colour=red"], "colour"),
    ],
)
def test_bad_input_is_one_line_and_leaves_nothing(folder, capsys, words, message):
    assert cluster.main(words) == 2
    error = capsys.readouterr().err
    assert message in error
    assert len(error.splitlines()) == 1
    assert {path.name for path in Path().iterdir()} == {"customers.csv", "customers.yaml"}


def test_a_kill_leaves_no_rows(folder, monkeypatch):
    kept = signal.getsignal(signal.SIGTERM)

    def fit(model, rows, **options):
        assert rows.stat().st_size > 0
        os.kill(os.getpid(), signal.SIGTERM)

    monkeypatch.setattr(SynopsisKMeans, "fit", fit)
    assert cluster.main(COMMAND) == 128 + signal.SIGTERM
    signal.signal(signal.SIGTERM, kept)
    assert {path.name for path in folder.iterdir()} == {"customers.csv", "customers.yaml"}


def test_damaged_tables_are_named_and_not_quoted(folder, capsys):
    Path("customers.csv").write_bytes(b"\xff;plan\n1;2\n")
    assert cluster.main(COMMAND) == 2
    error = capsys.readouterr().err
    assert error.startswith("error: customers.csv: cannot be read as a table: it is")
    assert "not text in UTF-8" in error


def test_a_dry_run_reads_nothing(folder, capsys):
    Path("customers.csv").unlink()
    assert cluster.main([*COMMAND[:-1], "n=4000", "dry_run=yes"]) == 0
    printed = capsys.readouterr().out
    assert "promises epsilon=1 and delta=1e-06 under zero_out adjacency" in printed
    assert "groups of fewer than" in printed


@pytest.mark.parametrize(
    ("words", "is_warned"),
    [
        (["epsilon=0.07"], True),
        (["epsilon=0.09"], False),
        (["epsilon=0.07", "groups=id"], False),  # n is secret, and nobody says it
        (["epsilon=0.07", "groups=id", "n=4000"], True),
        (["epsilon=0.07", "n=4000", "dry_run=yes"], True),
    ],
)
def test_few_records_for_the_columns_are_warned_of_before_a_fit(
    folder, capsys, monkeypatch, words, is_warned
):
    def fit(*arguments, **options):
        raise ValueError("nothing was fitted")

    monkeypatch.setattr(SynopsisKMeans, "fit", fit)
    cluster.main([*COMMAND, *words])
    told = "".join(capsys.readouterr())
    # 4,000 * 0.9 * 0.07 records times epsilon, 3 groups, 10 columns.
    assert ("warning: n * epsilon / (k * columns) is 8.4, below 10" in told) == is_warned


def test_epsilon_is_chosen_by_a_wished_excess(folder, capsys):
    words = [*COMMAND[:-1], "epsilon=auto", "excess=0.2", "n=100000", "dry_run=yes"]
    assert cluster.main(words) == 0
    printed = capsys.readouterr().out
    assert "costs 20% more than k-means" in printed
    epsilon = float(re.findall("epsilon=([0-9.]+)", printed)[0])
    assert cluster.main([*words[:-2], "n=200000", "dry_run=yes"]) == 0
    (halved,) = re.findall("epsilon=([0-9.]+)", capsys.readouterr().out)
    assert float(halved) == pytest.approx(epsilon / 2, rel=0.1)


def test_the_least_epsilon_that_sees_a_group_is_enough(folder, capsys):
    words = [*COMMAND[:-1], "n=1000", "dry_run=yes"]
    assert cluster.main([*words, "epsilon=0.01"]) == 2
    error = capsys.readouterr().err.replace("\n", " ")
    (least,) = re.findall("give at least epsilon=([0-9.]+)", error)
    assert cluster.main([*words, f"epsilon={least}"]) == 0
    assert cluster.main([*words, f"epsilon={0.95 * float(least)}"]) == 2


@pytest.mark.slow
def test_records_in_no_group_are_told_by_what_is_released(folder, capsys):
    schema = Path("customers.yaml")
    schema.write_text(SCHEMA.replace(", decimal: comma", ""))
    assert cluster.main([*COMMAND, "missing=middle"]) == 0
    assert "The groups hold" not in capsys.readouterr().out + Path("out/index.html").read_text()
    shutil.rmtree("out")
    assert cluster.main(COMMAND) == 0
    printed = " ".join(capsys.readouterr().out.split())
    (told,) = re.findall("The groups hold about .* cannot be read[.]", printed)
    assert "of 4,000 records" in told
    assert told in Path("out/index.html").read_text()


# Replay: an adversary who has the folder, and who knows all records but one.

HOSTILE = {
    "id": "customer-x",
    "age": "1e999",
    "spent (EUR)": "=cmd|' /C calc'!A0",
    "plan": "<script>",
    "newsletter": "perhaps",
    "since": "31.02.2025",
    "hour": "-7",
}
EXTREME = {
    "id": "customer-y",
    "age": "16",
    "spent (EUR)": "9999,5",
    "plan": "premium",
    "newsletter": "yes",
    "since": "01.01.2015",
    "hour": "23,999",
}


@pytest.fixture
def replay(folder, monkeypatch):
    """Run the command on two tables with the same releases, and name a difference."""

    def run_traced(table, words, recorded=None):
        Path("customers.csv").write_text(table)
        trace = Trace()
        curator = make_tracing_curator(Curator, trace, recorded)
        with monkeypatch.context() as patch, observe(trace.observed):
            patch.setattr(SynopsisKMeans, "curator", curator)
            # Hashes are drawn from a public seed.
            patch.setattr(SynopsisKMeans, "_draw_seed", lambda self: (7, True))
            assert cluster.main([*COMMAND, *words]) == 0
        assert "exception" not in trace.observed
        for path in Path("out").rglob("*.*"):
            trace.observed[str(path)] = path.read_bytes()
        shutil.rmtree("out")
        return trace

    def replay(table, neighbor, *words):
        first = run_traced(table, words)
        assert {"out/index.html", "out/model/model.json"} <= first.observed.keys()
        assert first.draws[0].is_secure
        return compare_traces(first, run_traced(neighbor, words, first.draws))

    return replay


def write_text(rows):
    return rows.to_csv(sep=";", index=False)


@pytest.mark.slow
@pytest.mark.parametrize("record", [HOSTILE, EXTREME], ids=["hostile", "extreme"])
@pytest.mark.parametrize(
    "word", ["k=auto", "groups=id", "adjacency=add_remove"], ids=["rows", "persons", "secret n"]
)
def test_files_follow_from_the_releases(replay, table, record, word):
    rows = table[:300]
    given = pd.concat([rows, pd.DataFrame([record])])
    null = pd.DataFrame([{"id": record["id"]}], columns=rows.columns)
    neighbor = rows if word == "adjacency=add_remove" else pd.concat([rows, null])
    assert not replay(write_text(given), write_text(neighbor), word)


@pytest.mark.slow
def test_bounds_that_are_found_hide_a_record(replay, table):
    rule = "age: {kind: integer, bounds: private}"
    Path("customers.yaml").write_text(SCHEMA.replace(SCHEMA.splitlines()[0], rule))
    record = EXTREME | {"age": "1e300"}
    given = pd.concat([table, pd.DataFrame([record])])
    null = pd.concat([table, pd.DataFrame([{"id": record["id"]}])])
    assert not replay(write_text(given), write_text(null))


@pytest.mark.slow
@pytest.mark.parametrize("line", ["1;2;3;4;5;6;7;8;9", 'x;"22;1', "", "x" * 200_000])
def test_a_line_that_is_no_row_is_hidden(replay, table, line):
    first = write_text(table[:200])
    rest = write_text(table[200:300]).partition("\n")[2]
    null = ";" * (len(table.columns) - 1)
    assert not replay(f"{first}{line}\n{rest}", f"{first}{null}\n{rest}")


@pytest.mark.slow
def test_all_rows_of_a_person_are_hidden(replay, table):
    rows = table[:300].copy()
    of_person = rows.index < 20
    rows.loc[of_person, "id"] = "customer-y"
    null = rows.copy()
    null.loc[of_person, rows.columns != "id"] = None
    assert not replay(write_text(rows), write_text(null), "groups=id")


@pytest.mark.slow
def test_a_page_with_an_exact_count_is_found(replay, table, monkeypatch):
    build_page = cluster.build_page
    write_rows = cluster.write_rows
    counts = []

    def count_rows(source, schema, groups, target, *options):
        n_rows = write_rows(source, schema, groups, target, *options)
        counts.append(len(pd.read_parquet(target).dropna()))
        return n_rows

    def tell(model, schema, smallest):
        return f"{build_page(model, schema, smallest)}{counts[-1]} rows are complete."

    monkeypatch.setattr(cluster, "write_rows", count_rows)
    monkeypatch.setattr(cluster, "build_page", tell)
    rows = table[:300].dropna()
    null = rows.copy()
    null.iloc[0] = None
    found = replay(write_text(rows), write_text(null))
    assert found.startswith("out/index.html differs although all releases are equal")
