"""Fabricated rows, which replace the store in tests, have its schema."""

import yaml
from fabricated import dpm, fastlloyd

from pkm.analysis.tables.study import REQUIRED, Study
from pkm.catalogue import CONF
from pkm.schema import COLUMNS


def test_fastlloyd_rows_have_the_schema():
    # The generator replaces the store, so the analysis must accept its rows.
    rows = fastlloyd.synthetic_rows(3, datasets=("iris",), epsilons=(0.1, 1.0), alphas=(0.8,))
    assert {*REQUIRED, "seed"} <= set(rows.columns)
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
    assert {*REQUIRED, "half_width", "timing", "seed"} <= set(rows.columns)
    path = CONF / "paper/dpm/sweeps.yaml"
    paper = yaml.safe_load(path.read_text(encoding="utf-8"))
    assert set(Study(rows).sweeps) == set(paper["sweeps"]) - {"em_mc_large"}
    in_half_widths = {column.name for column in COLUMNS if column.raw_power}
    assert in_half_widths - {"kmeans_distance_sum"} <= set(rows.columns)
