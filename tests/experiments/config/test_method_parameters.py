"""Parameters of methods in files: changes to the class alone."""

import pytest
import yaml

from pkm.catalogue import CONF, Catalogue, CatalogueError
from pkm.experiments.cell.cell import STYLE
from pkm.experiments.config.groups import choices, read_choice
from pkm.experiments.config.method_parameters import get_defaults

METHODS = choices("method")


@pytest.mark.parametrize("name", METHODS)
def test_a_file_without_a_base_is_the_class_as_python_builds_it(name):
    given = yaml.safe_load((CONF / "method" / f"{name}.yaml").read_text())
    assert given["name"] == name
    changed = set(given) - {"name", "_target_", "defaults", *STYLE}
    assert bool(changed) == ("defaults" in given)


@pytest.mark.parametrize("name", METHODS)
def test_method_files_hold_changes_alone(name):
    given = yaml.safe_load((CONF / "method" / f"{name}.yaml").read_text())
    changed = {key for key in given if key not in ("name", "_target_", "defaults", *STYLE)}
    (base,) = [base for base in given.get("defaults", [None]) if base != "_self_"]
    inherited = read_choice("method", base) if base else get_defaults(given["_target_"])
    for key in changed:
        differs = inherited[key] != given[key] or type(inherited[key]) is not type(given[key])
        assert differs, f"{key} of {name} is what it would be without"
    assert ("_target_" in given) == (base is None)


@pytest.mark.parametrize("first", ["a", "b"])
def test_defaults_that_lead_back_are_refused(tmp_path, first):
    folder = tmp_path / "method"
    folder.mkdir()
    (folder / "a.yaml").write_text(f"defaults: [{first}, _self_]\nname: a\n")
    (folder / "b.yaml").write_text("defaults: [a, _self_]\nname: b\n")
    catalogue = Catalogue((tmp_path,))
    with pytest.raises(CatalogueError, match=r"method=a: its defaults lead back to itself"):
        catalogue.read("method", "a")
