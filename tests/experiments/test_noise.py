"""Where noise comes from, on the command line."""

import numpy as np
import pytest

from pkm.experiments.commands import run
from pkm.experiments.plan.feasibility import choose_noise
from pkm.experiments.plan.plan import SEEDED_NOISE_NOTICE
from pkm.experiments.store.store import Store
from pkm.methods import FastLloyd
from pkm.privacy import Budget, PrivacyAccountant, snap

pytestmark = pytest.mark.integration
BOUNDS = (-5.0, 5.0)


@pytest.fixture(autouse=True)
def no_data_folder(monkeypatch, tmp_path):
    monkeypatch.delenv("PKM_DATA", raising=False)
    monkeypatch.setenv("PKM_CACHE", str(tmp_path / "cache"))


@pytest.fixture
def points(tmp_path):
    rng = np.random.default_rng(0)
    X = np.concatenate([rng.normal(mean, 0.5, (60, 2)) for mean in (-3, 0, 3)])
    np.save(tmp_path / "own.npy", X)
    return X


@pytest.fixture
def call(tmp_path, capsys):
    """Return a function that runs cells into a folder: exit code, rows, all text."""

    def run_main(*words, results="results"):
        folder = tmp_path / results
        code = run.main([*words, f"results={folder}"])
        store = Store(folder)
        return code, store.read(store.keys()), "".join(capsys.readouterr())

    return run_main


@pytest.fixture
def own(tmp_path):
    return (
        "dataset=file",
        f"path={tmp_path / 'own.npy'}",
        "bounds=[-5,5]",
        "method=fastlloyd",
        "k=3",
        "epsilon=1.0",
        "seeds=2",
        "metrics=[nicv]",
        "keep_centers=true",
    )


def released(rows):
    return np.array(rows["centers"].tolist())


def test_two_runs_on_a_private_file_differ(call, own, points):
    code, first, text = call(*own, results="a")
    _, second, _ = call(*own, results="b")
    assert code == 0
    assert SEEDED_NOISE_NOTICE not in text
    assert not np.allclose(released(first), released(second))
    for rows in (first, second):
        assert set(rows["noise"]) == {"secure"}
        assert rows["seed"].tolist() == [0, 1]
    assert first["public_seed"].nunique() == 2
    assert set(first["public_seed"]).isdisjoint(second["public_seed"])


@pytest.mark.parametrize("seed", ["public_seed", "seed"])
def test_no_seed_of_a_row_gives_its_noise(call, own, points, seed):
    """Whoever knows all records and the row cannot draw its noise again."""
    _, rows, _ = call(*own)
    seeds = rows[seed].astype(int).tolist()
    domain = np.array([BOUNDS] * 2).T
    method = FastLloyd(3, epsilon=1.0)
    again = method.fit_batch(snap(points / 5), seeds, domain, secure=False)
    assert not np.allclose(released(rows), 5 * again.positions, atol=1e-3)


@pytest.mark.slow
@pytest.mark.parametrize("timing", ["false", "true"])
def test_seeded_noise_is_asked_for_and_said_once(call, own, points, timing):
    words = (*own, "noise=seeded", f"timing={timing}")
    _, first, text = call(*words, results="a")
    _, second, _ = call(*words, results="b")
    assert text.count(SEEDED_NOISE_NOTICE) == 1
    assert np.array_equal(released(first), released(second))
    assert set(first["noise"]) == {"seeded"}
    assert "public_seed" not in first


@pytest.mark.slow
@pytest.mark.parametrize(
    "kind",
    [
        pytest.param(("federation={clients:2,transport:threads}", "timing=true"), id="federation"),
        pytest.param(("timing=true",), id="timing"),
        pytest.param(("bounds_factor=2",), id="wide bounds"),
    ],
)
def test_every_kind_draws_securely(call, own, points, kind, monkeypatch):
    def refuse(*arguments):
        raise AssertionError("noise was drawn from a seed")

    monkeypatch.setattr("pkm.privacy.NoiseStreams._seeded", refuse)
    code, rows, text = call(*own, *kind)
    assert code == 0, text
    assert set(rows["noise"]) == {"secure"}
    code, _, text = call(*own, *kind, "noise=seeded", results="b")
    assert code == 1
    assert "noise was drawn from a seed" in text


def test_a_method_without_noise_has_its_seeds(call, own, points):
    _, rows, _ = call(*own, "method=lloyd", "seeds=[7,9]")
    assert rows["seed"].tolist() == [7, 9]
    assert set(rows["noise"]) == {"none"}
    assert "public_seed" not in rows


def test_seeds_of_secure_noise_are_a_number(call, own, points):
    code, rows, text = call(*own, "seeds=[3,4]")
    assert code == 2
    assert "seeds=[3, 4] is not allowed: seeds must be a number of replicates" in text
    assert rows.empty


@pytest.mark.slow
def test_an_account_takes_secure_noise_alone(call, own, points, tmp_path):
    path = str(tmp_path / "account.json")
    PrivacyAccountant(Budget(9.0, 1e-3), path)
    code, rows, text = call(*own, f"account={path}", "noise=seeded")
    assert code == 2
    assert "noise='seeded' is not allowed: noise must be secure with account" in text
    assert rows.empty
    assert PrivacyAccountant.open(path).spent() == 0

    # On a public data set, too.
    public = ("dataset=iris", "epsilon=1.0", "seeds=2", f"account={path}")
    _, rows, text = call(*public)
    assert set(rows["noise"]) == {"secure"}
    assert SEEDED_NOISE_NOTICE not in text
    assert PrivacyAccountant.open(path).spent() == 2.0

    # What is stored is paid for; what is run again has other noise, and is not.
    call(*public)
    assert PrivacyAccountant.open(path).spent() == 2.0
    call(*public, results="other")
    assert PrivacyAccountant.open(path).spent() == 4.0


@pytest.mark.parametrize(
    ("dataset", "noise"),
    [("file", "secure"), ("tmi", "secure"), ("tcga", "secure"), ("iris", "seeded")],
)
def test_noise_is_secure_by_default_for_what_is_somebodys(dataset, noise):
    assert choose_noise(dataset, None) == noise
    for requested in ("secure", "seeded"):
        assert choose_noise(dataset, requested) == requested


def test_an_unknown_variant_is_refused_in_one_line(call, own, points):
    code, _, text = call(*own, "method.variant=fast")
    assert code == 2
    assert "variant='fast' is unknown" in text


def test_another_noise_is_refused(call, own, points):
    code, rows, text = call(*own, "noise=weak")
    assert code == 2
    assert "noise='weak' is not allowed: noise must be one of secure, seeded" in text
    assert rows.empty
