"""Sparse aggregation: field arithmetic, decoding against the truth, every way to fail, masks.

Salts and keys are fresh entropy; a salted locator collides once in 10^14 rounds of these sizes.
"""

import math

import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from pkm.federation import sparse
from pkm.federation.sparse import (
    N_CHECK_SUMS,
    PRIME,
    DecodeFailure,
    SparseCode,
    aggregate_sparse,
    decode,
    encode,
    power_sums,
    sum_by_bin,
    zero_sum_masks,
)

SALT = b"0123456789abcdef"


def some_vectors(seed, clients=3, k=2, d=3, n_bins=10, low=1, high=50):
    rng = np.random.default_rng(seed)
    return [(rng.integers(0, n_bins, (k, d)), rng.integers(low, high, k)) for _ in range(clients)]


def together(vectors):
    return sum_by_bin(
        np.concatenate([b for b, _ in vectors]), np.concatenate([c for _, c in vectors])
    )


def added(code, vectors, salt=SALT):
    return (
        sum(
            (encode(code, salt, *vector) for vector in vectors),
            np.zeros(code.n_elements, code.dtype),
        )
        % code.prime
    )


# Field


@given(
    st.lists(st.tuples(st.integers(0, PRIME - 1), st.integers(1, PRIME - 1)), max_size=5),
    st.integers(1, 8),
)
@settings(deadline=None)
def test_power_sums_are_exact(pairs, length):
    values = [v for v, _ in pairs]
    locators = [x for _, x in pairs]
    expected = [sum(v * pow(x, i, PRIME) for v, x in pairs) % PRIME for i in range(length)]
    assert power_sums(values, locators, length).tolist() == expected
    other = 2**89 - 1
    expected = [sum(v * pow(x, i, other) for v, x in pairs) % other for i in range(length)]
    assert power_sums(values, locators, length, other).tolist() == expected


@pytest.mark.parametrize(
    "edge", [PRIME - 1, PRIME - 2, 1 << 60, (1 << 32) - 1, 1 << 32, (1 << 61) - (1 << 32)]
)
def test_products_at_the_edges_of_the_field(edge):
    for other in (1, 2, PRIME - 1, 1 << 60, 0xFFFFFFFF):
        assert power_sums([edge], [other], 3).tolist() == [
            edge,
            edge * other % PRIME,
            edge * other**2 % PRIME,
        ]


# Decoding


@given(
    st.integers(0, 10**6),
    st.integers(1, 6),
    st.integers(1, 4),
    st.sampled_from([(1, 2), (3, 10), (13, 111), (2, 2**30)]),
)
@settings(max_examples=60, deadline=None)
def test_decoding_gives_the_sum_back(seed, clients, k, shape):
    d, n_bins = shape
    vectors = some_vectors(seed, clients, k, d, n_bins)
    code = SparseCode(d, n_bins, clients * k)
    bins, counts, report = aggregate_sparse(code, vectors)
    expected = together(vectors)
    assert (bins == expected[0]).all() and (counts == expected[1]).all()
    assert report.attempts == 1 and report.bytes_per_client == math.ceil(61 * code.n_elements / 8)


@given(st.integers(0, 10**6))
@settings(max_examples=20, deadline=None)
def test_the_literal_construction_decodes_alike(seed):
    vectors = some_vectors(seed, d=10, n_bins=111)
    literal = SparseCode(10, 111, 6, "literal")
    salted = SparseCode(10, 111, 6)
    assert literal.prime > 111**10 and literal.elements_per_bin == 0
    a = aggregate_sparse(literal, vectors)
    b = aggregate_sparse(salted, vectors)
    assert (a[0] == b[0]).all() and (a[1] == b[1]).all()


def test_the_first_bin_is_not_lost():
    """Counted from 0 its locator would be 0, which has no power sums but one."""
    for locators in ("literal", "salted"):
        code = SparseCode(2, 4, 3, locators)
        bins, counts = decode(
            code, SALT, encode(code, SALT, np.array([[0, 0], [3, 3]]), np.array([5, 7])), 12
        )
        assert bins.tolist() == [[0, 0], [3, 3]] and counts.tolist() == [5, 7]
    assert 0 not in SparseCode(1, 4, 3, "literal").locate(np.arange(4)[:, None], SALT)


def test_equal_bins_are_one_entry_and_nothing_is_nothing():
    code = SparseCode(2, 10, 4)
    vectors = [(np.array([[1, 2], [1, 2]]), np.array([3, 4])), (np.array([[1, 2]]), np.array([5]))]
    bins, counts, _ = aggregate_sparse(code, vectors)
    assert bins.tolist() == [[1, 2]] and counts.tolist() == [12]
    empty = np.empty((0, 2), np.int64), np.empty(0, np.int64)
    bins, counts, _ = aggregate_sparse(code, [empty, empty])
    assert bins.shape == (0, 2) and len(counts) == 0
    assert not encode(code, SALT, *empty).any()


def test_signed_differences_lose_entries_that_cancel():
    code = SparseCode(2, 10, 6)
    vectors = [
        (np.array([[1, 1], [2, 2]]), np.array([-1, 4])),
        (np.array([[2, 2], [3, 3]]), np.array([-4, -2])),
    ]
    bins, counts, _ = aggregate_sparse(code, vectors, signed=True)
    assert bins.tolist() == [[1, 1], [3, 3]] and counts.tolist() == [-1, -2]


def test_as_many_bins_as_allowed_and_one_more():
    rng = np.random.default_rng(0)
    bins = rng.permutation(1000)[:9].repeat(2).reshape(9, 2) // [1, 1]
    code = SparseCode(2, 1000, 8)
    kept, _ = decode(code, SALT, encode(code, SALT, bins[:8], np.arange(1, 9)), 36)
    assert len(kept) == 8
    for extra in range(1, 5):
        more = rng.integers(0, 1000, (8 + extra, 2))
        with pytest.raises(DecodeFailure):
            decode(code, SALT, encode(code, SALT, more, np.ones(8 + extra, int)), 8 + extra)
    with pytest.raises(DecodeFailure):
        aggregate_sparse(code, [(rng.integers(0, 1000, (12, 2)), np.ones(12, int))])


@given(st.integers(0, 10**6), st.integers(1, 2**60), st.data())
@settings(max_examples=60, deadline=None)
def test_a_damaged_message_is_found_out(seed, change, data):
    vectors = some_vectors(seed)
    code = SparseCode(3, 10, 6)
    words = added(code, vectors)
    (_, counts) = together(vectors)
    place = data.draw(st.integers(0, code.n_elements - 1))
    used = code.n_sums + len(
        counts
    )  # payload sums from the number of bins on are not needed, and not looked at
    words[place] = (int(words[place]) + change) % PRIME
    if place < used:
        with pytest.raises(DecodeFailure):
            decode(code, SALT, words, int(counts.sum()))


def test_a_wrong_total_or_salt_is_found_out():
    vectors = some_vectors(1)
    code = SparseCode(3, 10, 6)
    words = added(code, vectors)
    total = int(together(vectors)[1].sum())
    decode(code, SALT, words, total)
    with pytest.raises(DecodeFailure, match="counts must add up"):
        decode(code, SALT, words, total + 1)
    with pytest.raises(DecodeFailure, match="hashes"):
        decode(code, b"another salt 123", words, total)


def test_negative_counts_are_refused_where_none_can_be():
    code = SparseCode(1, 10, 4)
    words = encode(code, SALT, np.array([[1], [2]]), np.array([9, -1]))
    with pytest.raises(DecodeFailure, match="each of them possible"):
        decode(code, SALT, words, 8)
    assert decode(code, SALT, words, 8, signed=True)[1].tolist() == [9, -1]


def test_a_collision_of_hashes_is_answered_by_a_fresh_salt(monkeypatch):
    locate = SparseCode.locate
    calls = []

    def colliding(self, bins, salt):
        calls.append(salt)
        if salt == calls[0]:  # under the first salt all bins look alike
            return [7] * len(bins)
        return locate(self, bins, salt)

    monkeypatch.setattr(SparseCode, "locate", colliding)
    vectors = some_vectors(3)
    bins, counts, report = aggregate_sparse(SparseCode(3, 10, 6), vectors)
    assert (
        report.attempts == 2
        and (bins == together(vectors)[0]).all()
        and (counts == together(vectors)[1]).all()
    )


def test_a_locator_of_zero_is_refused():
    code = SparseCode(1, 10, 4)
    words = encode(code, SALT, np.array([[1]]), np.array([9]))
    words[0] = (int(words[0]) + 3) % PRIME  # what a bin with locator 0 and count 3 would add
    with pytest.raises(DecodeFailure, match="zero"):
        decode(code, SALT, words, 12)


def test_bins_outside_the_grid_are_refused():
    for bad in (-1, 10):
        with pytest.raises(ValueError, match=r"bins must be in 0 \.\. 9"):
            encode(SparseCode(1, 10, 4), SALT, np.array([[bad]]), np.array([1]))
    for given_, message in (
        ((0, 2, 1), "n_features=0"), ((1, 0, 1), "n_bins=0"), ((1, 2, 0), "max_bins=0"),
        ((1, 2**61, 1), "n_bins="),
    ):  # fmt: skip
        with pytest.raises(ValueError, match=message):
            SparseCode(*given_)
    with pytest.raises(ValueError, match="locators='hash' is unknown"):
        SparseCode(1, 2, 1, "hash")


@given(st.integers(1, 30), st.integers(1, 2**20), st.integers(0, 1000))
def test_coordinates_are_packed_without_loss(d, n_bins, seed):
    code = SparseCode(d, n_bins, 4)
    bins = np.random.default_rng(seed).integers(0, n_bins, (5, d))
    packed = code.pack(bins)
    assert all(len(row) == code.elements_per_bin and max(row) < 2**60 for row in packed)
    assert [code.unpack(row) for row in packed] == bins.tolist()


def test_size_of_a_message():
    code = SparseCode(10, 111, 400)  # 7 bits, 8 coordinates to an element
    assert code.elements_per_bin == 2 and code.n_elements == 2 * 400 + N_CHECK_SUMS + 2 * 400
    assert SparseCode(10, 111, 400, "literal").n_elements == 802


# Masks


@pytest.mark.parametrize("locators", ["salted", "literal"])
@pytest.mark.parametrize("clients", [1, 2, 5])
def test_masks_of_a_round_add_up_to_zero(clients, locators):
    code = SparseCode(10, 111, 3, locators)
    private = [X25519PrivateKey.generate() for _ in range(clients)]
    public = [key.public_key() for key in private]
    rounds = [
        [zero_sum_masks(key, client, public, name, code) for client, key in enumerate(private)]
        for name in "ab"
    ]
    for masks in rounds:
        assert not (sum(mask.astype(object) for mask in masks) % code.prime).any()
        assert all(0 <= int(word) < code.prime for mask in masks for word in mask)
    if clients > 1:
        assert not any(
            (a == b).any() for a, b in zip(*rounds, strict=True)
        )  # fresh for every round


@pytest.mark.statistical
def test_masked_messages_are_uniform_whatever_is_in_them():
    code = SparseCode(3, 10, 500)
    private = [X25519PrivateKey.generate() for _ in range(3)]
    public = [key.public_key() for key in private]
    seen = []
    for vector in (
        (np.empty((0, 3), int), np.empty(0, int)),
        (np.full((1, 3), 9), np.array([10**6])),
    ):
        for name in range(20):
            message = encode(code, SALT, *vector) + zero_sum_masks(
                private[1], 1, public, f"{vector[1]} {name}", code
            )
            seen.append(message % code.prime)
    for group in (seen[:20], seen[20:]):
        words = np.concatenate(group)
        for shift in (0, 30, 53):
            observed = np.bincount(
                ((words >> np.uint64(shift)) & np.uint64(255)).astype(int), minlength=256
            )
            assert stats.chisquare(observed).pvalue > 1e-8
    assert (
        stats.ks_2samp(
            *(np.concatenate(group).astype(float) for group in (seen[:20], seen[20:]))
        ).pvalue
        > 1e-8
    )


@pytest.mark.statistical
def test_uniform_elements_are_drawn_by_rejection():
    """In a field just above a power of two nearly half of the draws are refused, and no element is
    favored.
    """
    code = SparseCode(1, 10, 20_000, "literal")
    object.__setattr__(code, "__dict__", {**code.__dict__, "prime": 5})
    found = sparse._uniform_elements(bytes(32), code)
    observed = np.bincount(found.astype(int), minlength=5)
    assert len(observed) == 5 and stats.chisquare(observed).pvalue > 1e-6
