"""`pkm advise`: numbers, schemas and persons."""

import pytest

from pkm.arena import advise


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["n=0", "d=2", "k=3", "epsilon=1"], "n='0' is not allowed"),
        (["n=[", "d=2", "k=3", "epsilon=1"], "n='[' is not allowed"),
        (["n=10", "d=2", "k=3"], "epsilon='' is not allowed"),
        (["n=10", "d=2", "k=3", "epsilon=nan"], "epsilon='nan' is not allowed"),
        (["n=10", "d=2", "k=3", "epsilon=1", "bounds=huge"], "bounds='huge'"),
        (["n=10", "d=2", "k=3", "epsilon=1", "unit=group"], "unit='group'"),
        (["n=10", "d=2", "k=3", "epsilon=1", "size=3"], "option='size'"),
        (["n=10", "k=3", "epsilon=1", "schema=none.yaml"], "schema='none.yaml' is not allowed"),
        (["n=10", "d=2", "k=3", "epsilon=1", f"schema={__file__}"], "d='2' is not allowed"),
    ],
)
def test_bad_numbers_are_refused(words, message, capsys):
    assert advise.main(words) == 2
    assert message in capsys.readouterr().err


def test_a_schema_has_the_number_of_columns(tmp_path, capsys):
    path = tmp_path / "schema.yaml"
    rules = ("age: {kind: number, low: 0, high: 100}", "plan: {kind: category, levels: [a, b]}")
    path.write_text("\n".join(rules))
    answers = []
    # Two values of the plan, and any other.
    for word in ("d=4", f"schema={path}"):
        assert advise.main(["n=500", word, "k=3", "epsilon=1"]) == 0
        answers.append(capsys.readouterr().out)
    assert answers[0] == answers[1]


def test_methods_that_others_entered_are_not_said_to_serve_persons():
    assert advise.serves_persons("fastlloyd", 1000, 3)
    assert not advise.serves_persons("method_of_others", 1000, 3)
