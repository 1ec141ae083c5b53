"""Schemas: a stateless transformer, drafts from names and types, errors in one line."""

import pickle
import warnings

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.pipeline import make_pipeline

import pkm
from pkm import Schema
from pkm.methods import SynopsisKMeans

COLUMNS = {
    "age": {"kind": "integer", "low": 18, "high": 98},
    "money spent": {"kind": "number", "low": 0, "high": 1e5, "asinh": True},
    "plan": {"kind": "category", "levels": ["free", "paid"]},
    "member": {"kind": "flag"},
    "since": {"kind": "date", "low": "2020-01-01", "high": "2026-01-01"},
    "hour": {"kind": "cyclic", "period": 24},
}
NAMES = ["age", "money spent", "plan_free", "plan_paid", "plan_other", "member", "since"]
NAMES += ["hour_cos", "hour_sin"]
SECRET = "7654321"


@pytest.fixture
def schema():
    return Schema(COLUMNS)


@pytest.fixture
def table():
    return pd.DataFrame(
        {
            "id": [1, 2, 3],
            "age": [18, 58, None],
            "money spent": [0, 1e5, 30],
            "plan": ["paid", "trial", "free"],
            "member": [True, False, True],
            "since": ["2020-01-01", "2026-01-01", "2023-01-01"],
            "hour": [0, 6, 12],
        },
        index=["a", "b", "c"],
    )


def test_the_package_has_the_schema_and_no_other_names():
    assert pkm.Schema is Schema
    with pytest.raises(AttributeError, match="module 'pkm' has no attribute 'Scheme'"):
        _ = pkm.Scheme


def test_every_column_has_its_places(schema, table):
    places = schema.transform(table)
    assert schema.get_feature_names_out().tolist() == NAMES
    one_hot = np.sqrt(1 / 8)
    np.testing.assert_allclose(
        places[:2],
        [
            [-1, -1, -one_hot, one_hot, -one_hot, 0.5, -1, 1, 0],
            [0, 1, -one_hot, -one_hot, one_hot, -0.5, 1, 0, 1],
        ],
        atol=1e-12,
    )
    np.testing.assert_array_equal(np.isnan(places).nonzero(), [[2], [0]])


def test_a_table_comes_back_but_for_its_categories(schema, table):
    back = schema.inverse_transform(schema.transform(table))
    assert list(back) == [name for name in NAMES if "hour" not in name] + ["hour"]
    assert back["age"].tolist() == [18, 58, pd.NA]
    assert back["since"].tolist() == pd.to_datetime(table["since"]).tolist()
    np.testing.assert_allclose(back["money spent"], table["money spent"])
    np.testing.assert_allclose(back["plan_other"], [0, 1, 0], atol=1e-12)


def test_output_can_be_a_frame(schema, table):
    frame = schema.set_output(transform="pandas").fit_transform(table)
    assert list(frame) == NAMES
    assert list(frame.index) == ["a", "b", "c"]


def test_a_schema_is_cloned_pickled_and_changed(schema, table):
    places = schema.transform(table)
    for copy in (clone(schema), pickle.loads(pickle.dumps(schema))):
        np.testing.assert_array_equal(copy.transform(table), places)
    changed = clone(schema).set_params(columns={"hour": COLUMNS["hour"]})
    np.testing.assert_array_equal(changed.transform(table), places[:, -2:])


def test_fit_looks_at_nothing(schema, table):
    places = schema.transform(table)
    assert schema.fit(table * 2) is schema
    np.testing.assert_array_equal(schema.transform(table), places)
    np.testing.assert_array_equal(schema.transform(table[1:]), places[1:])


def test_a_pipeline_gives_centers_in_the_words_of_the_table(schema):
    rng = np.random.default_rng(0)
    n = 3_000
    table = pd.DataFrame(
        {
            "age": rng.choice([25, 70], n),
            "money spent": 10.0,
            "plan": "free",
            "member": True,
            "since": "2023-01-01",
            "hour": 12,
        }
    )
    table.loc[:30, "age"] = np.nan
    method = SynopsisKMeans(2, epsilon=5.0, bounds=schema.bounds, random_state=0)
    model = make_pipeline(schema, method).fit(table)
    assert set(model.predict(table[31:])) == {0, 1}
    centers = schema.inverse_transform(model[-1].cluster_centers_)
    assert sorted(centers["age"]) == pytest.approx([25, 70], abs=6)


def test_a_schema_is_read_from_yaml(tmp_path, table):
    path = tmp_path / "schema.yaml"
    path.write_text(
        "age: {kind: integer, low: 18, high: 98}\n"
        "plan: {kind: category, levels: [free, paid], weight: 0.5}\n"
        "since: {kind: date, low: 2020-01-01, high: 2026-01-01}\n"
    )
    places = Schema.from_yaml(path).transform(table)
    np.testing.assert_array_equal(places[:2, [0, -1]], [[-1, -1], [0, 1]])


def test_columns_without_bounds_keep_their_numbers(table):
    schema = Schema(
        {
            "age": {"kind": "integer", "bounds": "private"},
            "plan": {"kind": "category", "levels": ["free", "paid"]},
            "money spent": {"kind": "number", "bounds": "private", "asinh": True},
        }
    )
    inf = np.inf
    assert schema.bounds == ([-inf, -1, -1, -1, -inf], [inf, 1, 1, 1, inf])
    places = schema.transform(table)
    np.testing.assert_array_equal(places[:2, 0], [18, 58])
    np.testing.assert_array_equal(places[:, -1], np.arcsinh(table["money spent"]))
    back = schema.inverse_transform(places)
    assert back["age"].tolist() == [18, 58, pd.NA]
    np.testing.assert_allclose(back["money spent"], table["money spent"])


@pytest.mark.parametrize(
    ("rule", "message"),
    [
        ({"kind": "number", "bounds": "private", "weight": 0.5}, "needs bounds that are public"),
        ({"kind": "number", "bounds": "private", "log": True}, "else take asinh alone"),
        ({"kind": "date", "bounds": "private"}, "missing 2 required"),
        ({"kind": "number", "bounds": "unknown"}, "bounds"),
        ({"kind": "number", "low": float("-inf"), "high": 1}, "must be below"),
    ],
)
def test_columns_that_cannot_be_without_bounds_are_refused(rule, message):
    with pytest.raises(ValueError, match=message):
        Schema({"x": rule})


@pytest.mark.parametrize(
    ("bounds", "warns"),
    [
        ("low: 0, high: 10000", False),
        ("low: -1.5e-7, high: 1999", False),
        ("low: 0, high: 9813.22", True),
        ("low: 0.123456, high: 9", True),
        ("bounds: private", False),
    ],
)
def test_bounds_like_the_extremes_of_data_are_warned_of(tmp_path, bounds, warns):
    path = tmp_path / "schema.yaml"
    path.write_text(f"spent: {{kind: number, {bounds}}}\nage: {{kind: integer, low: 1, high: 9}}")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        Schema.from_yaml(path)
    assert ["bounds of 'spent' have many digits" in str(item.message) for item in caught] == [
        True
    ] * warns


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("age: {kind: integer, low: '?', high: 98}\nsex: {kind: flag}", "columns 'age' have '?'"),
        ("a: {kind: ordered, levels: '?'}\nb: {kind: ordered, levels: [x, '?']}", "'a', 'b' have"),
        ("a: {kind: integer}", "column 'a': integer() missing 2 required positional"),
        ("answer: {kind: category, levels: [yes, no]}", "put yes and no in quotation marks"),
        ("- age", "must map names of columns to their rules"),
        ("", "must map names of columns to their rules"),
    ],
)
def test_files_that_are_wrong_are_refused(tmp_path, text, message):
    path = tmp_path / "schema.yaml"
    path.write_text(text)
    with pytest.raises(ValueError) as refused:
        Schema.from_yaml(path)
    assert str(refused.value).startswith(f"{path}: ")
    assert message in str(refused.value)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            lambda table: table.rename(columns={"age": "Age"}),
            "one column 'age', has 0; did you mean 'Age'?",
        ),
        (lambda table: table.assign(x=1).rename(columns={"x": "age"}), "one column 'age', has 2"),
        (lambda table: table.to_numpy(), "X must be a table with one column 'age'"),
    ],
)
def test_tables_without_a_column_are_refused(schema, table, change, message):
    with pytest.raises(ValueError, match=message.replace("?", "[?]")) as refused:
        schema.transform(change(table.assign(plan=SECRET)))
    assert SECRET not in str(refused.value)


def test_another_number_of_columns_is_no_center(schema):
    with pytest.raises(ValueError, match="Shape of passed values"):
        schema.inverse_transform(np.zeros((3, 8)))


def test_a_draft_has_no_bounds_and_no_identifiers():
    table = pd.DataFrame(
        {
            "customer_id": [1],
            "age": [30],
            "spent": [9.5],
            "member": [True],
            "plan": ["free"],
            "Customer No.": [7],
            "joined": pd.to_datetime(["2020-01-01"]).tz_localize("UTC"),
            "birth_date": ["1.1.1990"],
            "Hour": [7],
            "home_lat": [48.1],
            "home_lon": [11.5],
        }
    )
    bounds = {"low": "?", "high": "?"}
    comma = {"decimal": "comma"}
    assert Schema.draft(table.dtypes, "comma") == {
        "age": {"kind": "integer", **bounds},
        "spent": {"kind": "number", **bounds, **comma},
        "member": {"kind": "flag"},
        "plan": {"kind": "category", "levels": "?"},
        "joined": {"kind": "date", **bounds},
        "birth_date": {"kind": "date", **bounds},
        "Hour": {"kind": "cyclic", "period": "?", **comma},
        "home_lat": {"kind": "latitude", **bounds, **comma},
        "home_lon": {"kind": "longitude", **bounds, "latitude": "?", **comma},
    }
    other = table.assign(age=99, spent=1e9, plan="paid")
    assert Schema.draft(other.dtypes) == Schema.draft(table.dtypes)
