"""Persons by hashes of their ids: the weights of ids in memory, in 12 bytes a person."""

import os
import subprocess
import sys
import tracemalloc
from dataclasses import replace
from datetime import date
from itertools import pairwise

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pkm.compute import SCALE
from pkm.compute.storage import persons as module
from pkm.compute.storage.persons import Persons, count_persons, hash_ids
from pkm.methods.weights import weigh_rows
from pkm.row_blocks import ChangedRows

INTEGERS = st.integers(-(2**63), 2**63 - 1) | st.integers(0, 5)
TEXTS = st.text(max_size=20) | st.sampled_from("ab")


# Kernels may be compiled in the first call.
@pytest.mark.slow
@settings(deadline=None)
@given(st.data(), st.sampled_from([INTEGERS, TEXTS]))
def test_blocks_give_the_weights_of_ids_in_memory(data, kind):
    ids = data.draw(st.lists(kind | st.none(), min_size=1, max_size=40))
    cuts = data.draw(st.lists(st.integers(0, len(ids)), max_size=4))
    edges = sorted({0, len(ids), *cuts})
    blocks = [pa.array(ids)[a:b] for a, b in pairwise(edges)]
    persons = count_persons(blocks)
    expected, n_persons = weigh_rows(len(ids), ids)
    units = np.concatenate([persons.weigh(block).units for block in blocks])
    assert units.tolist() == expected.tolist()
    assert persons.n_persons == n_persons


@pytest.mark.parametrize("n_persons", [1, 7, 1000, 40_000])
def test_ids_that_return_much_later_are_found(n_persons):
    ids = np.random.default_rng(0).permutation(np.arange(5 * n_persons) // 5)
    ids = np.where(ids % 3, ids, -ids)
    blocks = np.array_split(ids, 9)
    persons = count_persons(blocks)
    expected, _ = weigh_rows(len(ids), ids)
    for block, units in zip(blocks, np.array_split(expected, 9), strict=True):
        np.testing.assert_array_equal(persons.weigh(block).units, units)


def test_rows_beyond_the_last_weight_weigh_nothing():
    numbers = [SCALE - 1, SCALE, SCALE + 1, 3 * SCALE, 1]
    ids = np.repeat(np.arange(5), numbers)
    persons = count_persons(np.array_split(ids, 40))
    assert persons.weigh(np.arange(5)).units.tolist() == [1, 1, 0, 0, SCALE]


@pytest.mark.parametrize(
    "ids",
    [
        np.array([3, 5, 3, 7], np.int8),
        np.array([3, 5, 3, 2**64 - 1], np.uint64),
        np.array([3, 5, 3, None], dtype=object),
        np.ma.masked_array([3, 5, 3, 3], [0, 0, 0, 1]),
        np.array(["a", "b", "a", "c"]),
        np.array(["a", "", "a", None], dtype=object),
        np.array(["a", "", "a", np.nan], dtype=object),
        pd.Series(["a", "b", "a", None], dtype="category"),
        pa.array(["a", "b", "a", None]).dictionary_encode(),
        pa.array(["x", "a", "b", "a", None], pa.large_string())[1:],
        pa.array(["a", "b", "a", None], pa.string_view()),
        pa.array([3, 5, 3, None], pa.uint16()),
    ],
    ids=lambda ids: f"{type(ids).__name__} of {getattr(ids, 'dtype', None) or ids.type}",
)
def test_ids_of_any_kind_are_persons(ids):
    persons = count_persons([ids])
    assert (persons.weigh(ids).units / SCALE).tolist() == [0.5, 1.0, 0.5, 1.0]
    assert persons.n_persons == 3


@pytest.mark.parametrize("ids", [np.empty(0, int), np.empty(0, "<U3"), np.array([None, None])])
def test_ids_that_are_all_missing_are_persons(ids):
    persons = count_persons([ids])
    assert persons.weigh(ids).units.tolist() == [SCALE] * len(ids)
    assert persons.n_persons == len(ids)


@pytest.mark.parametrize(
    ("ids", "kind"),
    [
        (np.array([1.0, 2.0]), "double"),
        (np.array([1, 2.5], dtype=object), "double"),
        (np.array([1, "a"], dtype=object), "mixed"),
        (np.array([1, 2**70], dtype=object), "mixed"),
        (np.array([date(2020, 1, 1)]), "date32"),
        (np.array([True, False]), "bool"),
        (pa.array([1.5, 2.5]).dictionary_encode(), "double"),
    ],
    ids=str,
)
def test_ids_that_are_neither_integers_nor_texts_are_refused(ids, kind):
    expected = f"groups='user' are of type {kind}.*, and persons must be integers or texts"
    with pytest.raises(ValueError, match=expected):
        count_persons([ids], "groups='user'")


def test_an_id_that_was_not_counted_is_refused():
    persons = count_persons([np.array([1, 2])])
    for ids in (np.array([1, 3]), np.array(["a"])):
        with pytest.raises(ChangedRows, match="groups has other ids than in the first pass"):
            persons.weigh(ids)
    nobody = count_persons([np.array([None])])
    with pytest.raises(ChangedRows):
        nobody.weigh(np.array([1]))


def test_weights_of_rows_are_multiplied_as_in_memory():
    ids = np.array([4, 4, 4, 9])
    given = np.array([1.0, 0.3, 0.7, 0.1])
    row_units = weigh_rows(4, sample_weight=given).units
    units = count_persons([ids]).weigh(ids, row_units).units
    assert units.tolist() == weigh_rows(4, ids, given).units.tolist()


@pytest.mark.parametrize("limit", [0, 1, 5])
def test_a_drift_that_is_cut_off_changes_no_weight(limit):
    ids = np.repeat(np.arange(3000), np.arange(3000) % 7 + 1)
    persons = count_persons([ids])
    drift = persons.packed >> module.WEIGHT_BITS
    assert abs(drift).max() > 10
    weights = persons.packed & module.MAX_WEIGHT
    packed = drift.clip(-limit, limit) << module.WEIGHT_BITS | weights
    other = replace(persons, packed=packed)
    np.testing.assert_array_equal(other.weigh(ids).units, persons.weigh(ids).units)


@pytest.mark.parametrize("n_persons", [100_000, 200_000])
def test_memory_is_twelve_bytes_a_person(n_persons):
    """While persons are counted it is a 16th more, and some blocks."""
    n_rows = 5000  # of a block

    def read():
        generator = np.random.default_rng(0)
        for _ in range(5 * n_persons // n_rows):
            yield generator.integers(0, n_persons, n_rows)

    count_persons(read())
    tracemalloc.start()
    persons = count_persons(read())
    kept, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    in_arrays = persons.hashes.nbytes + persons.packed.nbytes
    assert in_arrays == 12 * persons.n_persons
    assert kept <= in_arrays + n_rows
    assert peak <= in_arrays * (1 + 1 / module.SMALL_TABLE) + 64 * n_rows


def test_texts_are_hashed_as_by_python():
    """CPython hashes texts by SipHash-1-3; its key is zero if it is told not to be random."""
    if sys.hash_info.algorithm != "siphash13":
        pytest.skip("needs a Python that hashes by siphash13")
    generator = np.random.default_rng(0)
    texts = [generator.bytes(length).hex()[:length] for length in range(1, 60)]
    code = "import sys; print(*map(hash, sys.argv[1:]))"
    environment = {**os.environ, "PYTHONHASHSEED": "0"}
    command = [sys.executable, "-c", code, *texts]
    printed = subprocess.run(command, env=environment, capture_output=True, check=True)
    hashes, _ = hash_ids(pa.array(texts), np.zeros(2, np.uint64))
    assert hashes.view(np.int64).tolist() == [int(word) for word in printed.stdout.split()]


def test_no_two_integers_have_one_hash_and_keys_differ():
    near = np.arange(-2000, 2000)
    ids = np.unique(np.concatenate([near << shift for shift in range(0, 52, 4)]))
    hashes, _ = hash_ids(ids, module.draw_key())
    assert len(np.unique(hashes)) == len(ids)
    others, _ = hash_ids(ids, module.draw_key())
    assert not set(hashes) & set(others)
    assert isinstance(count_persons([ids]), Persons)
