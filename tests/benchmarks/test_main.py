"""Every part of the benchmarks runs, small, and measures what it says."""

import numpy as np
import pytest

from pkm.benchmarks import __main__ as bench
from pkm.benchmarks import files, passes
from pkm.benchmarks.measurement import Measurement


@pytest.mark.slow
@pytest.mark.parametrize("part", ["protocol", "secure_noise"])
def test_a_part_runs(part, capsys):
    assert bench.main([part, "--scale", "0.1"]) in (0, 1)
    assert "ok" in capsys.readouterr().out


@pytest.mark.slow
@pytest.mark.parametrize("part", sorted(bench.PARTS.keys() - {"protocol", "secure_noise"}))
def test_a_long_part_runs(part, monkeypatch):
    monkeypatch.setattr(passes, "SHAPES", ((2, 8),))
    monkeypatch.setattr(passes, "N_PRODUCTS", 240_000)
    monkeypatch.setattr(files, "N_POINTS", 1_000_000)
    # Clients that remove points need some.
    rows = list(bench.PARTS[part](0.1 if part == "unlearning" else 0.02))
    assert rows
    assert all(np.isfinite(row.value) and row.value > 0 for row in rows)


@pytest.mark.parametrize(("value", "status"), [(1.0, 0), (3.0, 1)])
def test_a_missed_target_is_status_1(monkeypatch, capsys, value, status):
    scales = []

    def measure(scale):
        scales.append(scale)
        return [Measurement("a fit", value, "s", at_most=2), Measurement("a note", 9, "x")]

    monkeypatch.setattr(bench, "PARTS", {"fit": measure})
    assert bench.main([]) == status
    assert ("MISSED" in capsys.readouterr().out) == bool(status)
    assert scales == [1.0]


@pytest.mark.parametrize(
    ("words", "rule"),
    [
        (["speed"], "part 'speed' is unknown; known are first_calls, "),
        (["sweep", "--scale", "0"], "scale=0.0 must be at least 0.1"),
    ],
)
def test_what_cannot_be_measured_is_refused(words, rule, capsys):
    with pytest.raises(SystemExit):
        bench.main(words)
    assert rule in capsys.readouterr().err
