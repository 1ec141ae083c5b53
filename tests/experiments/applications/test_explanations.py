"""Command lines that are refused, in one line."""

from pathlib import Path

import pytest

from pkm.experiments.commands import reproduce

pytestmark = pytest.mark.integration


@pytest.mark.slow
@pytest.mark.parametrize(
    "words, message",
    [
        (("eps=1",), "key='eps' is unknown. Did you mean epsilon?"),
        (("method.radios=0.5",), "Did you mean method.radius?"),
        (("Method=dpm",), "Did you mean method?"),
        (("dataset=Iris",), "dataset='Iris' is unknown. Did you mean iris?"),
        (("dataset=header.csv",), "dataset=file path=header.csv"),
        (("dataset=some/points.npz",), "dataset=file path=some/points.npz"),
        (("dataset=ablation-2-2-7",), "ablation"),
        (("+foo=1",), "key='foo' is unknown"),
        (("+federation.client=3",), "Did you mean federation.clients?"),
        (("+tracking.url=x",), "Did you mean tracking.uri?"),
        (("~jobs",), "~jobs is not allowed"),
        (("jobs=abc",), "jobs='abc' is not allowed: jobs must be a whole number"),
        (("epsilon=1,2",), "give a list, epsilon=[1,2], or add -m"),
        (("method=dpm,lloyd",), "method=dpm,lloyd lists values: add -m to sweep over them"),
        (("epsilon=null",), "epsilon=None is not allowed"),
        (("path=a(b).csv",), "needs quotes"),
        (("path=~/points.csv",), "needs quotes"),
        (("path=a=b.csv",), "needs quotes"),
        (("columns=[Age (years)]",), """'columns=["a, b","c"]'"""),
        (('bounds={"Age (years)":1}',), "bounds must be its public domain: [lower, upper] or"),
        (("epsilon={a:1}",), "epsilon={a:1} is not allowed: epsilon must be a value or a list"),
        (("method.secure=true",), "; noise=secure draws noise from the operating system"),
        (("data=nowhere",), "data='nowhere' is not allowed: data must be a folder that exists"),
        (("-m", "objective=nicvv"), "objective='nicvv' is not allowed"),
        (("objective=nicv",), "has no effect on a single run: add -m"),
        (("paper=dpm",), "it is a key of `pkm reproduce`"),
        (("hydra/launcher=joblib",), "has no effect on a single run: add -m"),
        (("hydra.sweep.dir=x",), "has no effect on a single run: add -m"),
        (("-m", "hydra.run.dir=x"), "has no effect on a sweep"),
        (("-m", "jobs=1,2"), "jobs=['1', '2'] is not allowed"),
        (("-m", "method=fastlloyd", "+foo=1,2"), "key='foo' is unknown"),
        (("method.name=3",), "method.name=3 is not allowed: method.name must be a text"),
        (("method._target_=3",), "use method=package.module:Class"),
        (("method=os:path",), "a subclass of PrivateKMeans"),
        (("method=os:sep",), "a subclass of PrivateKMeans"),
        (("method=sklearn.cluster:KMeans",), "a subclass of PrivateKMeans"),
    ],
)
@pytest.mark.no_cover  # other tests run the same code
def test_what_has_no_effect_is_refused_in_one_line(call, words, message):
    code, _, err = call(*words)
    assert code == 2
    assert message in err
    assert err.startswith("error: ")
    assert err.count("\n") == 1
    assert not Path("results/cells").exists()


@pytest.mark.slow
@pytest.mark.parametrize(
    "words, message",
    [
        (("epsilon=3",), "it is a key of `pkm run`"),
        (("method=dpm",), "it is a key of `pkm run`"),
        (("+foo=1",), "key='foo' is unknown"),
        (("+paper.swepes=1",), "Did you mean paper.sweeps?"),
        (("paper=fastloyd",), "Did you mean fastlloyd?"),
        (("profile=quik",), "Did you mean quick?"),
        (("paln",), "verb='paln' is unknown. Did you mean plan?"),
        (("sweeps=[rael]",), "Did you mean real?"),
        (("hydra.launcher.n_jobs=2",), "add -m"),
        (("-m", "paper=dpm,mufc", "hydra/launcher=cells"), "is for `pkm run`"),
        (("data=nowhere", "profile=smoke"), "data must be a folder that exists"),
    ],
)
def test_reproduce_refuses_what_it_has_not(call, words, message):
    code, _, err = call(*words, command=reproduce)
    assert code == 2
    last = err.splitlines()[-1]
    assert last.startswith("error: ")
    assert message in last
    assert not Path("results/cells").exists()


def test_full_errors_can_be_asked_for(call, monkeypatch):
    monkeypatch.setenv("HYDRA_FULL_ERROR", "1")
    with pytest.raises(Exception, match="Could not override 'eps'"):
        call("eps=1")
