"""Saved models: round trips to the bit, nothing private in files, refusals, scikit-learn."""

import hashlib
import json
import sys

import numpy as np
import pandas as pd
import pytest
from estimators import blobs
from sklearn.base import clone
from sklearn.exceptions import NotFittedError

import pkm
from pkm.files import record_digest
from pkm.methods import (
    Balcan,
    FastLloyd,
    KaplanStemmerLocal,
    Lloyd,
    QuadtreeKMeans,
    SuLloyd,
    SynopsisKMeans,
    released,
)
from pkm.methods.report import REPORTED
from pkm.methods.statement import to_json
from pkm.privacy import BudgetExceeded, Charge, ScheduleError

BOUNDS = [[-3.0, -2.0], [1.5, 2.0]]
MODELS = {
    "gaussian": FastLloyd(4, bounds=BOUNDS, random_state=5),
    "pure": SuLloyd(3, bounds=np.array(BOUNDS)),
    "zoom": SynopsisKMeans(3, bounds=(-50, 50), zoom=0.1, require_zoom=True),
    "report": SynopsisKMeans(3, bounds=BOUNDS, report=0.1),
    "failures": Balcan(3, bounds=(-2, 2)),
    "local": KaplanStemmerLocal(2, bounds=(-2, 2), epsilon=4.0),
    "auto": SynopsisKMeans("auto", bounds=(-2, 2), zoom=None, max_clusters=6),
}


class OwnMethod(FastLloyd):
    """A method of another package."""


@pytest.fixture
def model():
    return FastLloyd(3, bounds=BOUNDS).fit(blobs(500))


def check_equal(model, loaded, X):
    """Public values, releases and what is computed from them are equal to the bit."""
    assert type(loaded) is type(model)
    for name in ("cluster_centers_", "domain_", "synopsis_", "cost_curve_"):
        assert hasattr(loaded, name) == hasattr(model, name)
        found, expected = (getattr(each, name, np.empty(0)) for each in (loaded, model))
        assert (found.dtype, found.tobytes()) == (expected.dtype, expected.tobytes())
    assert (loaded.n_, loaded.n_iter_, loaded.n_features_in_) == (len(X), model.n_iter_, X.shape[1])
    np.testing.assert_array_equal(loaded.predict(X), model.predict(X))
    np.testing.assert_array_equal(loaded.transform(X), model.transform(X))
    assert loaded.score(X) == model.score(X)
    assert loaded.statement() == model.statement()
    for name in REPORTED:
        assert hasattr(loaded, name) == hasattr(model, name)
        assert to_json(getattr(loaded, name, None)) == to_json(getattr(model, name, None))


@pytest.mark.parametrize("name", MODELS)
def test_a_loaded_model_is_the_saved_one(name, tmp_path):
    X = blobs(20_000)
    model = clone(MODELS[name]).fit(X)
    assert (model.zoom_ is not None) == (name in ("zoom", "report"))
    assert hasattr(model, "profile_") == (name == "report")
    assert hasattr(model, "cost_curve_") == (name == "auto")
    model.save(tmp_path / "model", purpose="a test")
    loaded = pkm.load(tmp_path / "model")
    check_equal(model, loaded, X)
    assert loaded.ledger_.charges == model.ledger_.charges
    assert loaded.random_state is None
    if model.zoom_ is not None:
        np.testing.assert_array_equal(loaded.zoom_.bounds, model.zoom_.bounds)
        np.testing.assert_array_equal(
            loaded.zoom_.to_public(np.array([[9, -7]])), model.zoom_.to_public(np.array([[9, -7]]))
        )
    if name == "report":
        assert type(loaded.profile_) is type(model.profile_)
        assert loaded.centers_interval_.tobytes() == model.centers_interval_.tobytes()
    # It can be saved and fitted as any other.
    loaded.save(tmp_path / "again")
    check_equal(model, pkm.load(tmp_path / "again"), X)
    loaded.fit(X[:1000])
    assert loaded.n_ == 1000


def test_a_loaded_model_knows_columns_and_persons(tmp_path):
    table = pd.DataFrame(blobs(600), columns=["lat", "lon"])
    model = QuadtreeKMeans(2, bounds=BOUNDS).fit(table, groups=np.arange(600) // 2)
    model.save(tmp_path / "model")
    loaded = pkm.load(tmp_path / "model")
    assert loaded.statement() == model.statement()
    assert (loaded.n_, str(loaded.ledger_.budget.unit)) == (300, "person")
    np.testing.assert_array_equal(loaded.predict(table), model.predict(table))
    np.testing.assert_array_equal(loaded.feature_names_in_, model.feature_names_in_)
    with pytest.raises(ValueError, match="feature names should match"):
        loaded.predict(table[["lon", "lat"]])


def test_a_model_without_a_claim_is_saved_as_one(tmp_path):
    X = blobs(300)
    model = Lloyd(2).fit(X)
    model.save(tmp_path / "model")
    loaded = pkm.load(tmp_path / "model")
    check_equal(model, loaded, X)
    assert loaded.ledger_ is None
    assert "promises no privacy" in (tmp_path / "model" / released.PAGE).read_text()


def find_values(folder, X):
    """Values of X that are in the files of a folder, as numbers or texts."""
    content = b"".join(path.read_bytes() for path in folder.iterdir())
    found = []
    for value in X.ravel():
        forms = [value.astype("<f8").tobytes(), value.astype(">f8").tobytes()]
        texts = [repr(float(value)), f"{value:.8f}"]
        if any(form in content for form in [*forms, *[text.encode() for text in texts]]):
            found.append(value)
    return found


@pytest.mark.slow
@pytest.mark.parametrize("name", MODELS)
def test_no_value_of_the_data_is_in_the_files(name, tmp_path):
    X = blobs(2000, seed=3)
    seed = 314159265
    clone(MODELS[name]).set_params(random_state=seed).fit(X).save(tmp_path / "model")
    assert find_values(tmp_path / "model", X) == []
    assert find_values(tmp_path / "model", np.array([float(seed)])) == []
    assert str(seed).encode() not in (tmp_path / "model" / released.RECORD).read_bytes()


def test_values_in_files_are_found(tmp_path):
    """Without a claim and bounds the extremes of the data are public, and saved."""
    X = blobs(300)
    Lloyd(2).fit(X).save(tmp_path / "model")
    assert {*X.min(axis=0), *X.max(axis=0)} <= {*find_values(tmp_path / "model", X)}


def test_files_are_json_npy_and_a_page(model, tmp_path):
    model.save(tmp_path / "model", name="Visits")
    names = {path.name for path in (tmp_path / "model").iterdir()}
    assert names == {"model.json", "statement.md", "centers.npy", "grid_centers.npy"}
    for name in ("centers.npy", "grid_centers.npy"):
        array = np.load(tmp_path / "model" / name, allow_pickle=False)
        assert array.dtype in (np.float64, np.int64)
    assert (tmp_path / "model" / "statement.md").read_text().startswith("# Statement: Visits\n")
    # The statement's digests are those of the files.
    for name, digest in model.statement().sha256.items():
        content = (tmp_path / "model" / name).read_bytes()
        assert hashlib.sha256(content).hexdigest() == digest


def test_a_ledger_that_was_loaded_takes_no_charge(model, tmp_path):
    model.save(tmp_path / "model")
    ledger = pkm.load(tmp_path / "model").ledger_
    assert ledger.spent() == model.ledger_.spent()
    with pytest.raises(ScheduleError):
        ledger.charge(Charge("more", 0, "gaussian", mu=1e-9))


def test_folders_with_files_are_refused(model, tmp_path):
    model.save(tmp_path)  # an empty one is filled
    before = {path: path.read_bytes() for path in tmp_path.iterdir()}
    with pytest.raises(FileExistsError, match="must be new or empty"):
        model.save(tmp_path)
    assert {path: path.read_bytes() for path in tmp_path.iterdir()} == before
    with pytest.raises(NotADirectoryError):
        model.save(tmp_path / "model.json")
    with pytest.raises(NotFittedError):
        FastLloyd().save(tmp_path / "new")
    assert not (tmp_path / "new").exists()


def test_a_folder_that_fills_meanwhile_is_not_replaced(model, tmp_path, monkeypatch):
    folder = tmp_path / "model"

    def write(path, content):
        folder.mkdir(exist_ok=True)
        (folder / "other").write_text("kept")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)

    monkeypatch.setattr(released, "atomic_write", write)
    with pytest.raises(OSError, match="not empty"):
        model.save(folder)
    assert [path.name for path in tmp_path.iterdir()] == ["model"]
    assert [path.name for path in folder.iterdir()] == ["other"]


def test_a_crash_leaves_no_folder(model, tmp_path, monkeypatch):
    calls = []

    def fail(path, content):
        calls.append(path)
        if len(calls) == 3:
            raise OSError("no space")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)

    monkeypatch.setattr(released, "atomic_write", fail)
    with pytest.raises(OSError, match="no space"):
        model.save(tmp_path / "model")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["model.json", "centers.npy", "grid_centers.npy"])
@pytest.mark.parametrize("change", ["flip", "cut"])
def test_damaged_files_are_refused_by_name(model, tmp_path, name, change):
    model.save(tmp_path / "model")
    path = tmp_path / "model" / name
    content = bytearray(path.read_bytes())
    if change == "flip":
        content[len(content) // 2] ^= 1
    else:
        content = content[:-8]
    path.write_bytes(content)
    with pytest.raises(ValueError, match=f"{name} is damaged"):
        pkm.load(tmp_path / "model")


def forge(folder, change):
    """Change the record of a saved model, with a checksum that fits."""
    path = folder / released.RECORD
    record = json.loads(path.read_bytes())
    del record["checksum"]
    change(record)
    record["checksum"] = record_digest(record)
    path.write_text(json.dumps(record))


def test_a_record_of_another_version_is_refused(model, tmp_path):
    model.save(tmp_path / "model")
    forge(tmp_path / "model", lambda record: record.update(format="statement, version 99"))
    with pytest.raises(ValueError, match="format='statement, version 99' must be"):
        pkm.load(tmp_path / "model")


def test_a_record_that_promises_less_than_was_spent_is_refused(model, tmp_path):
    model.save(tmp_path / "model")
    forge(tmp_path / "model", lambda record: record["ledger"]["budget"].update(epsilon=0.1))
    with pytest.raises(BudgetExceeded):
        pkm.load(tmp_path / "model")


def test_objects_are_not_loaded(model, tmp_path):
    """A pickle in an NPY file could run code; its digest fits."""
    model.save(tmp_path / "model")
    path = tmp_path / "model" / "centers.npy"
    np.save(path, np.array([{"a": 1}], dtype=object), allow_pickle=True)
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    forge(tmp_path / "model", lambda record: record["sha256"].update({path.name: digest}))
    with pytest.raises(ValueError, match="allow_pickle=False"):
        pkm.load(tmp_path / "model")


@pytest.mark.parametrize(
    "path",
    ["antigravity.fly", "pkm.methods.METHODS", "pkm.methods.Run", "pkm.testing.check_method", "x"],
)
def test_classes_that_are_no_methods_of_pkm_are_not_imported(model, tmp_path, path):
    model.save(tmp_path / "model")
    forge(tmp_path / "model", lambda record: record.update(method=path))
    with pytest.raises(ValueError, match=f"{path} is not imported: give its class"):
        pkm.load(tmp_path / "model")
    assert "antigravity" not in sys.modules


def test_a_method_of_another_package_is_loaded_by_its_class(tmp_path):
    X = blobs(400)
    model = OwnMethod(2, bounds=BOUNDS).fit(X)
    model.save(tmp_path / "model")
    assert model.statement().method == f"{__name__}.OwnMethod"
    with pytest.raises(ValueError, match="OwnMethod is not imported: give its class"):
        pkm.load(tmp_path / "model")
    with pytest.raises(ValueError, match="method=FastLloyd must be"):
        pkm.load(tmp_path / "model", FastLloyd)
    check_equal(model, pkm.load(tmp_path / "model", OwnMethod), X)


def test_a_loaded_model_keeps_the_software_that_fitted_it(model, tmp_path):
    model.save(tmp_path / "model")
    forge(tmp_path / "model", lambda record: record.update(software="private-kmeans-bench 0.0.1"))
    loaded = pkm.load(tmp_path / "model")
    assert loaded.statement().software == "private-kmeans-bench 0.0.1"
    assert loaded.fit(blobs(300)).statement().software.endswith(pkm.__version__)


def test_the_package_has_load_alone():
    assert pkm.load is released.load
    with pytest.raises(AttributeError, match="has no attribute 'save'"):
        _ = pkm.save


def rows_about(model, n):
    """Rows in the bounds and outside, and their distances from borders of clusters."""
    lower, upper = np.array(model._fitted_bounds)
    rng = np.random.default_rng(1)
    rows = rng.uniform(1.2 * lower, 1.2 * upper, (n, len(lower)))
    nearest = np.sort(model.transform(rows), axis=1)
    return rows, nearest[:, 1] - nearest[:, 0]


@pytest.mark.parametrize("name", ["gaussian", "zoom"])
def test_scikit_learn_predicts_the_same(name):
    """On 100,000 rows: without a zoom, those within some grid steps of a border aside."""
    model = clone(MODELS[name]).fit(blobs(20_000))
    pipeline = model.to_sklearn()
    rows, margins = rows_about(model, 100_000)
    differ = pipeline.predict(rows) != model.predict(rows)
    assert not differ[margins > (2.0**-14 if name == "gaussian" else 1e-12)].any()
    assert differ.sum() <= 20
    np.testing.assert_allclose(pipeline.transform(rows), model.transform(rows), atol=1e-12)


def test_scikit_learn_has_what_a_fitted_kmeans_has():
    table = pd.DataFrame(blobs(300), columns=["lat", "lon"])
    model = FastLloyd(3, bounds=BOUNDS).fit(table)
    pipeline = model.to_sklearn()
    kmeans = pipeline[-1]
    assert (pipeline.n_features_in_, kmeans.n_features_in_) == (2, 2)
    assert list(pipeline.feature_names_in_) == ["lat", "lon"]
    np.testing.assert_array_equal(pipeline.predict(table), model.predict(table))
    assert list(pipeline.get_feature_names_out()) == ["kmeans0", "kmeans1", "kmeans2"]
    assert not hasattr(kmeans, "labels_")
    np.testing.assert_allclose(
        pipeline[0].inverse_transform(kmeans.cluster_centers_), model.cluster_centers_, atol=1e-12
    )
    clone(pipeline).fit(table)  # an estimator as any other


def test_skops_takes_a_converted_model(model, tmp_path):
    skops = pytest.importorskip("skops.io")
    pipeline = model.to_sklearn()
    skops.dump(pipeline, tmp_path / "model.skops")
    assert skops.get_untrusted_types(file=tmp_path / "model.skops") == []
    rows, _ = rows_about(model, 100_000)
    loaded = skops.load(tmp_path / "model.skops")
    np.testing.assert_array_equal(loaded.predict(rows), pipeline.predict(rows))


def test_onnx_takes_a_converted_model(model):
    skl2onnx = pytest.importorskip("skl2onnx")
    runtime = pytest.importorskip("onnxruntime")
    rows, margins = rows_about(model, 100_000)
    onnx = skl2onnx.to_onnx(model.to_sklearn(), rows[:1])
    session = runtime.InferenceSession(onnx.SerializeToString())
    labels = session.run(None, {session.get_inputs()[0].name: rows})[0]
    is_clear = margins > 1e-4
    np.testing.assert_array_equal(labels[is_clear], model.predict(rows)[is_clear])
