"""Sparse aggregation: field arithmetic, decoding against the exact sum, failures, masks.

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
    derive_mask,
    encode,
    sum_by_bin,
    sum_powers,
)

SALT = b"0123456789abcdef"
SEEDS = st.integers(0, 10**6)
VALUES = st.integers(0, PRIME - 1)
LOCATORS = st.integers(1, PRIME - 1)


def random_vectors(seed, n_clients=3, k=2, d=3, n_bins=10, low=1, high=50):
    """Bins and counts of each client."""
    rng = np.random.default_rng(seed)
    vectors = []
    for _ in range(n_clients):
        bins = rng.integers(0, n_bins, (k, d))
        counts = rng.integers(low, high, k)
        vectors.append((bins, counts))
    return vectors


def exact_sum(vectors):
    """Distinct bins of all clients, and the sums of their counts."""
    bins = np.concatenate([vector[0] for vector in vectors])
    counts = np.concatenate([vector[1] for vector in vectors])
    return sum_by_bin(bins, counts)


def sum_of_messages(code, vectors, salt=SALT):
    """The sum of all clients' encoded vectors in the field."""
    total = np.zeros(code.n_elements, code.dtype)
    for bins, counts in vectors:
        total = total + encode(code, salt, bins, counts)
    return total % code.prime


# Field


def power_sums_by_integers(values, locators, length, prime):
    """Power sums in Python's integers."""
    sums = []
    for exponent in range(length):
        terms = [
            value * pow(locator, exponent, prime)
            for value, locator in zip(values, locators, strict=True)
        ]
        sums.append(sum(terms) % prime)
    return sums


@given(
    st.lists(st.tuples(VALUES, LOCATORS), max_size=5),
    st.integers(1, 8),
)
@settings(deadline=None)
def test_power_sums_are_exact(pairs, length):
    values = [value for value, _ in pairs]
    locators = [locator for _, locator in pairs]
    expected = power_sums_by_integers(values, locators, length, PRIME)
    assert sum_powers(values, locators, length).tolist() == expected

    larger_prime = 2**89 - 1
    expected = power_sums_by_integers(values, locators, length, larger_prime)
    assert sum_powers(values, locators, length, larger_prime).tolist() == expected


@pytest.mark.parametrize(
    "value",
    [
        PRIME - 1,
        PRIME - 2,
        1 << 60,
        (1 << 32) - 1,
        1 << 32,
        (1 << 61) - (1 << 32),
    ],
)
def test_products_at_the_limits_of_the_field(value):
    for locator in (1, 2, PRIME - 1, 1 << 60, 0xFFFFFFFF):
        expected = [
            value,
            value * locator % PRIME,
            value * locator**2 % PRIME,
        ]
        assert sum_powers([value], [locator], 3).tolist() == expected


# Decoding


@given(
    SEEDS,
    st.integers(1, 6),
    st.integers(1, 4),
    st.sampled_from([(1, 2), (3, 10), (13, 111), (2, 2**30)]),
)
@settings(max_examples=60, deadline=None)
def test_decode_recovers_the_sum(seed, n_clients, k, shape):
    d, n_bins = shape
    vectors = random_vectors(seed, n_clients, k, d, n_bins)
    code = SparseCode(d, n_bins, n_clients * k)
    bins, counts, report = aggregate_sparse(code, vectors)

    expected_bins, expected_counts = exact_sum(vectors)
    assert (bins == expected_bins).all()
    assert (counts == expected_counts).all()
    assert report.attempts == 1
    assert report.bytes_per_client == math.ceil(61 * code.n_elements / 8)


@given(SEEDS)
@settings(max_examples=20, deadline=None)
def test_literal_and_salted_locators_agree(seed):
    vectors = random_vectors(seed, d=10, n_bins=111)
    literal = SparseCode(10, 111, 6, "literal")
    salted = SparseCode(10, 111, 6)
    assert literal.prime > 111**10
    assert literal.elements_per_bin == 0

    literal_bins, literal_counts, _ = aggregate_sparse(literal, vectors)
    salted_bins, salted_counts, _ = aggregate_sparse(salted, vectors)
    assert (literal_bins == salted_bins).all()
    assert (literal_counts == salted_counts).all()


def test_first_bin_is_decoded():
    """Counted from 0 its locator would be 0, whose power sums are all 0 but the first."""
    corners = np.array([[0, 0], [3, 3]])
    for locators in ("literal", "salted"):
        code = SparseCode(2, 4, 3, locators)
        message = encode(code, SALT, corners, np.array([5, 7]))
        bins, counts = decode(code, SALT, message, 12)
        assert bins.tolist() == [[0, 0], [3, 3]]
        assert counts.tolist() == [5, 7]

    literal = SparseCode(1, 4, 3, "literal")
    all_bins = np.arange(4)[:, None]
    assert 0 not in literal.locate(all_bins, SALT)


def test_equal_bins_are_merged():
    code = SparseCode(2, 10, 4)
    vectors = [
        (np.array([[1, 2], [1, 2]]), np.array([3, 4])),
        (np.array([[1, 2]]), np.array([5])),
    ]
    bins, counts, _ = aggregate_sparse(code, vectors)
    assert bins.tolist() == [[1, 2]]
    assert counts.tolist() == [12]

    # Empty vectors have an empty sum and a message of zeros.
    empty = (np.empty((0, 2), np.int64), np.empty(0, np.int64))
    bins, counts, _ = aggregate_sparse(code, [empty, empty])
    assert bins.shape == (0, 2)
    assert len(counts) == 0
    assert not encode(code, SALT, *empty).any()


def test_signed_counts_that_cancel_are_dropped():
    code = SparseCode(2, 10, 6)
    vectors = [
        (np.array([[1, 1], [2, 2]]), np.array([-1, 4])),
        (np.array([[2, 2], [3, 3]]), np.array([-4, -2])),
    ]
    bins, counts, _ = aggregate_sparse(code, vectors, signed=True)
    assert bins.tolist() == [[1, 1], [3, 3]]
    assert counts.tolist() == [-1, -2]


def test_decode_refuses_too_many_bins():
    rng = np.random.default_rng(0)
    bins = rng.permutation(1000)[:9].repeat(2).reshape(9, 2) // [1, 1]
    code = SparseCode(2, 1000, 8)

    # As many bins as the code allows.
    message = encode(code, SALT, bins[:8], np.arange(1, 9))
    decoded_bins, _ = decode(code, SALT, message, 36)
    assert len(decoded_bins) == 8

    # One to four bins more.
    for n_extra in range(1, 5):
        n_bins = 8 + n_extra
        too_many = rng.integers(0, 1000, (n_bins, 2))
        message = encode(code, SALT, too_many, np.ones(n_bins, int))
        with pytest.raises(DecodeFailure):
            decode(code, SALT, message, n_bins)

    too_many = rng.integers(0, 1000, (12, 2))
    with pytest.raises(DecodeFailure):
        aggregate_sparse(code, [(too_many, np.ones(12, int))])


@given(
    SEEDS,
    st.integers(1, 2**60),
    st.data(),
)
@settings(max_examples=60, deadline=None)
def test_decode_detects_a_damaged_message(seed, change, data):
    vectors = random_vectors(seed)
    code = SparseCode(3, 10, 6)
    words = sum_of_messages(code, vectors)
    _, counts = exact_sum(vectors)

    index = data.draw(st.integers(0, code.n_elements - 1))
    words[index] = (int(words[index]) + change) % PRIME

    # Payload sums from the number of bins on are not needed, and not read.
    n_read = code.n_sums + len(counts)
    if index < n_read:
        with pytest.raises(DecodeFailure):
            decode(code, SALT, words, int(counts.sum()))


def test_decode_detects_a_wrong_total_or_salt():
    vectors = random_vectors(1)
    code = SparseCode(3, 10, 6)
    words = sum_of_messages(code, vectors)
    _, counts = exact_sum(vectors)
    total = int(counts.sum())
    decode(code, SALT, words, total)
    with pytest.raises(DecodeFailure, match="counts must add up"):
        decode(code, SALT, words, total + 1)
    with pytest.raises(DecodeFailure, match="hashes"):
        decode(code, b"another salt 123", words, total)


def test_negative_counts_are_refused_unless_signed():
    code = SparseCode(1, 10, 4)
    bins = np.array([[1], [2]])
    words = encode(code, SALT, bins, np.array([9, -1]))
    with pytest.raises(DecodeFailure, match="each of them possible"):
        decode(code, SALT, words, 8)
    _, counts = decode(code, SALT, words, 8, signed=True)
    assert counts.tolist() == [9, -1]


def test_hash_collision_is_retried_with_a_fresh_salt(monkeypatch):
    locate = SparseCode.locate
    salts = []

    def colliding(self, bins, salt):
        """Equal locators for all bins under the first salt."""
        salts.append(salt)
        if salt == salts[0]:
            return [7] * len(bins)
        return locate(self, bins, salt)

    monkeypatch.setattr(SparseCode, "locate", colliding)
    vectors = random_vectors(3)
    code = SparseCode(3, 10, 6)
    bins, counts, report = aggregate_sparse(code, vectors)
    expected_bins, expected_counts = exact_sum(vectors)
    assert report.attempts == 2
    assert (bins == expected_bins).all()
    assert (counts == expected_counts).all()


def test_locator_zero_is_refused():
    code = SparseCode(1, 10, 4)
    words = encode(code, SALT, np.array([[1]]), np.array([9]))
    # What a bin with locator 0 and count 3 would add.
    words[0] = (int(words[0]) + 3) % PRIME
    with pytest.raises(DecodeFailure, match="zero"):
        decode(code, SALT, words, 12)


def test_bins_outside_the_grid_are_refused():
    for bin_index in (-1, 10):
        code = SparseCode(1, 10, 4)
        bins = np.array([[bin_index]])
        with pytest.raises(ValueError, match=r"bins must be in 0 \.\. 9"):
            encode(code, SALT, bins, np.array([1]))

    for arguments, message in (
        ((0, 2, 1), "n_features=0"),
        ((1, 0, 1), "n_bins=0"),
        ((1, 2, 0), "max_bins=0"),
        ((1, 2**61, 1), "n_bins="),
    ):
        with pytest.raises(ValueError, match=message):
            SparseCode(*arguments)

    with pytest.raises(ValueError, match="locators='hash' is unknown"):
        SparseCode(1, 2, 1, "hash")


@given(
    st.integers(1, 30),
    st.integers(1, 2**20),
    st.integers(0, 1000),
)
def test_unpack_inverts_pack(d, n_bins, seed):
    code = SparseCode(d, n_bins, 4)
    rng = np.random.default_rng(seed)
    bins = rng.integers(0, n_bins, (5, d))
    packed = code.pack(bins)
    for row in packed:
        assert len(row) == code.elements_per_bin
        assert max(row) < 2**60
    unpacked = [code.unpack(row) for row in packed]
    assert unpacked == bins.tolist()


def test_message_size():
    # A coordinate below 111 takes 7 bits, so an element holds 8 coordinates.
    code = SparseCode(10, 111, 400)
    assert code.elements_per_bin == 2
    assert code.n_elements == 2 * 400 + N_CHECK_SUMS + 2 * 400

    literal = SparseCode(10, 111, 400, "literal")
    assert literal.n_elements == 802


# Masks


def key_pairs(n_clients):
    """Fresh private and public keys of some clients."""
    private = [X25519PrivateKey.generate() for _ in range(n_clients)]
    public = [key.public_key() for key in private]
    return private, public


@pytest.mark.parametrize("locators", ["salted", "literal"])
@pytest.mark.parametrize("n_clients", [1, 2, 5])
def test_masks_of_a_round_sum_to_zero(n_clients, locators):
    code = SparseCode(10, 111, 3, locators)
    private, public = key_pairs(n_clients)
    rounds = []
    for name in "ab":
        masks = [derive_mask(key, client, public, name, code) for client, key in enumerate(private)]
        rounds.append(masks)

    for masks in rounds:
        total = sum(mask.astype(object) for mask in masks)
        assert not (total % code.prime).any()
        for mask in masks:
            assert all(0 <= int(word) < code.prime for word in mask)

    # Masks are fresh in every round; a single client has none.
    if n_clients > 1:
        for first, second in zip(*rounds, strict=True):
            assert not (first == second).any()


@pytest.mark.statistical
def test_masked_messages_are_uniform():
    """The law of a masked message is the same for an empty vector and for a full bin."""
    code = SparseCode(3, 10, 500)
    private, public = key_pairs(3)
    empty = (np.empty((0, 3), int), np.empty(0, int))
    single_bin = (np.full((1, 3), 9), np.array([10**6]))

    samples = []
    for bins, counts in (empty, single_bin):
        messages = []
        for number in range(20):
            name = f"{counts} {number}"
            masks = derive_mask(private[1], 1, public, name, code)
            message = encode(code, SALT, bins, counts) + masks
            messages.append(message % code.prime)
        samples.append(np.concatenate(messages))

    for words in samples:
        for shift in (0, 30, 53):
            bits = (words >> np.uint64(shift)) & np.uint64(255)
            observed = np.bincount(bits.astype(int), minlength=256)
            assert stats.chisquare(observed).pvalue > 1e-8

    first, second = (words.astype(float) for words in samples)
    assert stats.ks_2samp(first, second).pvalue > 1e-8


@pytest.mark.statistical
def test_draw_elements_are_drawn_by_rejection():
    """In a field just above a power of two nearly half of the draws are refused, and no element is
    favored.
    """
    code = SparseCode(1, 10, 20_000, "literal")
    attributes = {**code.__dict__, "prime": 5}
    object.__setattr__(code, "__dict__", attributes)
    elements = sparse._draw_elements(bytes(32), code)
    observed = np.bincount(elements.astype(int), minlength=5)
    assert len(observed) == 5
    assert stats.chisquare(observed).pvalue > 1e-6
