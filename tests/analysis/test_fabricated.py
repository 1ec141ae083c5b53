"""Fabricated rows, which replace the store in tests, have its schema."""

import yaml
from fabricated import dpm, fastlloyd

from pkm.analysis import claims
from pkm.analysis.tables import DESCRIPTION, RAW_POWERS, Study


def test_fastlloyd_rows_have_the_schema():
    # The generator replaces the store, so the analysis must accept its rows.
    rows = fastlloyd.synthetic_rows(3, datasets=("iris",), epsilons=(0.1, 1.0), alphas=(0.8,))
    assert set(DESCRIPTION) | {"seed"} <= set(rows.columns)
    assert Study(rows).sweeps == [
        "ablation",
        "g2",
        "initialization",
        "iterations",
        "real",
        "sound",
        "synth",
        "synthk",
    ]


def test_dpm_rows_have_the_schema_and_all_sweeps():
    rows = dpm.all_rows()
    assert {*DESCRIPTION, "half_width", "timing", "seed"} <= set(rows.columns)
    path = claims.PAPERS / "dpm/sweeps.yaml"
    paper = yaml.safe_load(path.read_text(encoding="utf-8"))
    assert set(Study(rows).sweeps) == set(paper["sweeps"]) - {"em_mc_large"}
    assert set(RAW_POWERS) - {"kmeans_distance_sum"} <= set(rows.columns)
