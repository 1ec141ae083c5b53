"""A typing error in the files of a paper is refused, with the nearest known name."""

import pytest
import yaml

from pkm import catalogue
from pkm.analysis.claims.claim import read_claims
from pkm.analysis.figures import figure
from pkm.catalogue import CONF

SWEEPS = {"sweeps": {"main": {}}}
FIGURES = {"figures": {"a": {"sweep": "main", "methods": ["eugkm"]}}}
CHECK = {"type": "ordering", "sweep": "main", "left": ["eugkm"], "right": ["mean"], "over": "any"}
CLAIM = {
    "id": "new/first",
    "section": "1",
    "kind": "ordering",
    "basis": "explicit",
    "statement": "One is better.",
    "check": CHECK,
}
CLAIMS = {"title": "New", "reference": "Nobody", "claims": [CLAIM]}


@pytest.fixture
def write(tmp_path, monkeypatch):
    """Write the files of a paper `new`; what is not given is right."""
    search_path = (CONF, tmp_path / "own")
    monkeypatch.setattr(catalogue, "current", lambda: catalogue.Catalogue(search_path))
    folder = tmp_path / "own" / "paper" / "new"
    folder.mkdir(parents=True)

    def write(**files):
        for name, content in (
            {"sweeps": SWEEPS, "figures": FIGURES, "claims": CLAIMS} | files
        ).items():
            path = folder / f"{name}.yaml"
            path.unlink(missing_ok=True)
            if content is not None:
                text = content if isinstance(content, str) else yaml.safe_dump(content)
                path.write_text(text, encoding="utf-8")

    return write


def read_files():
    figure.read_figures.__wrapped__("new")
    read_claims.__wrapped__("new")


def figures_with(**keys):
    return {"figures": {"a": FIGURES["figures"]["a"] | keys}}


def claims_with(check=(), **keys):
    return CLAIMS | {"claims": [CLAIM | {"check": CHECK | dict(check)} | keys]}


def test_a_small_paper_is_accepted(write):
    write()
    read_files()
    assert read_claims.__wrapped__("new")["sets"] == {}
    assert figure.read_figures.__wrapped__("new")[0].sweep == ("main",)


def test_names_that_functions_make_are_declared(write):
    write(claims=claims_with({"metric": "made"}))
    with pytest.raises(ValueError, match="metric: 'made' is unknown"):
        read_files()
    write(claims=claims_with({"metric": "made"}) | {"derived": ["made"]})
    read_files()


def test_a_class_of_a_sweep_goes_by_its_short_name(write):
    """Rows have the name of the class in small letters, and so have figures and claims."""
    sweeps = {"sweeps": {"main": {"methods": ["my_methods:NoisyMean", "mean"]}}}
    figures = figures_with(methods=["noisymean"])
    write(sweeps=sweeps, figures=figures, claims=claims_with({"left": ["noisymean"]}))
    read_files()
    write(sweeps=sweeps, claims=claims_with({"left": ["my_methods:NoisyMean"]}))
    with pytest.raises(ValueError, match="did you mean 'noisymean'"):
        read_files()


@pytest.mark.parametrize(
    ("files", "place"),
    [
        ({"claims": claims_with(kind="orderin")}, "own/paper/new/claims.yaml: new/first: "),
        ({"figures": figures_with(sweep="mian")}, "own/paper/new/figures.yaml: figure a: "),
    ],
)
def test_an_error_names_the_folder_of_the_file(files, place, write):
    write(**files)
    with pytest.raises(ValueError, match=f"^{place}"):
        read_files()


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({"figures": None}, "own/paper/new/figures.yaml is absent"),
        ({"claims": None}, "own/paper/new/claims.yaml is absent"),
        ({"claims": "title: [\n"}, "own/paper/new/claims.yaml:2: "),
        ({"claims": "- a\n"}, "claims.yaml:1: the file must hold a mapping"),
        ({"claims": {"title": "New", "claims": []}}, "reference=None must be a str"),
        ({"claims": CLAIMS | {"claim": []}}, "'claim' is unknown; did you mean 'claims'"),
        (
            {"claims": claims_with({"sweep": "mian"})},
            "sweep: 'mian' is unknown; did you mean 'main'",
        ),
        ({"claims": claims_with({"metric": "nicvv"})}, "did you mean 'nicv'"),
        ({"claims": claims_with({"left": ["eugk"]})}, "left: 'eugk' is unknown"),
        ({"claims": claims_with({"right": [{"method": "meen"}]})}, "did you mean 'mean'"),
        (
            {"claims": claims_with({"variants": [{"text": "Else", "relative_to": "meen"}]})},
            "relative_to: 'meen' is unknown; did you mean 'mean'",
        ),
        ({"claims": claims_with(id="old/first")}, "'old/first' must begin with 'new/'"),
        ({"claims": claims_with(kind="orderin")}, "kind: 'orderin' is unknown"),
        ({"claims": claims_with(basis="explicid")}, "did you mean 'explicit'"),
        ({"figures": figures_with(sweep="mian")}, "figure a: sweep: 'mian' is unknown"),
        ({"figures": figures_with(metric="nicvv")}, "did you mean 'nicv'"),
        ({"figures": figures_with(methods=["meen"])}, "did you mean 'mean'"),
        ({"figures": figures_with(curves={"A": {"method": "meen"}})}, "did you mean 'mean'"),
        ({"figures": figures_with(panels={"p": {"sweep": "mian"}})}, "did you mean 'main'"),
        ({"figures": figures_with(frame="nothing")}, "no function 'nothing'"),
    ],
)
def test_a_typing_error_is_refused(files, message, write):
    write(**files)
    with pytest.raises(ValueError, match=message):
        read_files()
