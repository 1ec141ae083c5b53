"""Fabricated rows stand in for the store: they have its schema."""

import yaml
from fabricated import dpm, fastlloyd

from pkm.analysis import claims
from pkm.analysis.tables import DESCRIPTION, RAW_POWERS, Study


def test_synthetic_rows_have_the_schema_and_are_accepted():
    # The generator stands in for the store, so the room must take its rows without complaint.
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


def test_synthetic_rows_have_the_schema_and_every_sweep_of_the_paper():
    rows = dpm.all_rows()
    assert {*DESCRIPTION, "half_width", "timing", "seed"} <= set(rows.columns)
    planned = yaml.safe_load(
        (claims._FOLDER.parents[1] / "conf/paper/dpm.yaml").read_text(encoding="utf-8")
    )["sweeps"]
    assert set(Study(rows).sweeps) == set(planned) - {"em_mc_large"}
    assert set(RAW_POWERS) - {"kmeans_distance_sum"} <= set(rows.columns)
