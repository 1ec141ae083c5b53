"""Plugin of pytest: a test takes ``private_method``, and runs for every variant.

@pytest.mark.private_methods("my_package:MyMethod")
def test_privacy(private_method):
    check_method(private_method)
"""

from typing import Any

MARKER = "private_methods(*targets): classes or import paths of private methods"


def pytest_configure(config: Any) -> None:
    """Declare the marker."""
    config.addinivalue_line("markers", MARKER)


def pytest_generate_tests(metafunc: Any) -> None:
    """Run a test for each private variant of the methods of its marker."""
    marker = metafunc.definition.get_closest_marker("private_methods")
    if marker is None:
        return
    # Imported here: pytest loads all plugins, and this takes seconds.
    from pkm.testing import load_variants

    variants = [method for target in marker.args for method in load_variants(target)]
    names = [f"{type(method).__name__} {method.variant}" for method in variants]
    metafunc.parametrize("private_method", variants, ids=names)
