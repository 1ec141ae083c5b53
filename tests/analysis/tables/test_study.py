"""Stored rows as matrices: seeds, columns, units and names of data sets."""

import numpy as np
import pandas as pd
import pytest
import reports
from fabricated.dpm import HALF_RANGE, dpm_rows
from fabricated.fastlloyd import small_rows
from fabricated.studies import study_of

from pkm.analysis.tables.study import SeedMatrix, Study, concatenate, parse_planted_names, raw_units


def test_parse_planted_names():
    names = ["planted-small-100-2-3-0-7", "planted-10-2-3-0.05", "shuttle"]
    cells = parse_planted_names(pd.DataFrame({"dataset": names}))
    assert cells["ball"].tolist()[:2] == [0.0, 0.05]
    assert cells["small"].tolist()[0] == 7
    assert cells["ball"].isna().tolist() == [False, False, True]


def test_raw_units_scale_by_powers_of_half_width():
    study = study_of("dpm")
    for metric, power in (("inertia", 2), ("kmeans_distance", 1), ("silhouette", 0)):
        panel = study.matrix("table", metric)
        raw = raw_units(panel)
        families = panel.cells["dataset"].str.split("-").str[0]
        factors = families.map(HALF_RANGE).to_numpy() ** power
        np.testing.assert_allclose(raw.values, panel.values * factors, rtol=1e-12)
    inertia = raw_units(study.matrix("table", "inertia"))
    mask = reports.row_mask(inertia.cells, dataset="gas", method="dpm_published")
    assert inertia.values[:, mask.argmax()].mean() == pytest.approx(3.7e7, rel=0.05)


def test_rows_without_newer_columns_are_accepted():
    rows = dpm_rows("table", "dpm_published", "gas").drop(columns=["half_width", "timing"])
    study = Study(rows)
    assert study.cells["domain_half_width"].isna().all()
    assert not study.cells["timing"].any()
    assert np.isnan(raw_units(study.matrix("table", "inertia")).values).all()


def test_duplicates_and_missing_columns_are_refused():
    rows = small_rows()
    with pytest.raises(ValueError, match="is repeated"):
        Study(pd.concat([rows, rows.iloc[[5]]], ignore_index=True))
    with pytest.raises(ValueError, match="charges"):
        Study(rows.drop(columns="charges"))


def test_concatenate_matches_seeds():
    parts = []
    for name, seeds in (("a", [0, 1, 2]), ("b", [1, 2, 3])):
        cells = pd.DataFrame({"method": [name]})
        values = np.array(seeds, dtype=float)[:, None]
        parts.append(SeedMatrix("nicv", cells, np.array(seeds), values, np.zeros(1)))
    matrix = concatenate(parts)
    assert matrix.seeds.tolist() == [0, 1, 2, 3]
    assert np.isnan(matrix.values[0, 1])
    assert matrix.values[1].tolist() == [1.0, 1.0]
