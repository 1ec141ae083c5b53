"""Persons whose rows are read in blocks: a keyed hash of each id, and its weight.

Nothing is kept of a row. A table has 12 bytes for each person: a hash of 64 bits, and
the number of rows or the weight that follows from it. Ids are integers or texts.
Integers are permuted, so that no two of them collide. Two texts collide with a
probability of 2**-64 by SipHash, whose key nobody knows.
"""

import secrets
from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numba import njit

from pkm.compute.storage.points import SCALE, RowWeights, multiply_units
from pkm.row_blocks import ChangedRows

Word = np.uint64
#: Hashes of persons, ascending, uint64; their numbers of rows, int32; and the number of
#: rows without an id, int64, of shape (1,).
PersonCounts = tuple[np.ndarray, ...]

#: Rows of a person are counted up to this number, from which on a row weighs nothing.
MAX_ROWS = SCALE + 1
#: Bits of a weight, which is 2**16 at most.
WEIGHT_BITS = 17
MAX_WEIGHT = (1 << WEIGHT_BITS) - 1
#: Bound on a drift, which the other bits hold with a sign; see :class:`Persons`.
MAX_DRIFT = 1 << (31 - WEIGHT_BITS)
#: Persons are counted in a small table first, which is merged into the large one when
#: it has a sixteenth of its size.
SMALL_TABLE = 16
#: Hashes that are looked up at a time.
BATCH_HASHES = 64


@dataclass(frozen=True, eq=False)
class Persons:
    """Weights of rows by the ids of their persons; see :func:`count_persons`.

    Attributes
    ----------
    key : ndarray of shape (2,), uint64
        Key of the hashes.
    hashes : ndarray of shape (p,), uint64
        Hashes of the ids, ascending.
    packed : ndarray of shape (p,), int32
        Two numbers each. The lower 17 bits of the i-th are the weight of a row of
        person i, in units of 2**-16 records. The upper ones are a drift, for look-ups.
        It is the position of the first hash that is at least i / p of the range of
        hashes, less i.
    n_without_id : int
        Number of rows without an id, each of which is a person.
    row_units : ndarray of shape (n,), int32, or None
        Further weights of all rows, in units of 2**-16 records: those of persons are
        multiplied by them.
    """

    key: np.ndarray
    hashes: np.ndarray
    packed: np.ndarray
    n_without_id: int
    row_units: np.ndarray | None = None

    @property
    def n_persons(self) -> int:
        """Number of persons."""
        return len(self.hashes) + self.n_without_id

    def weigh(self, ids: Any, row_units: np.ndarray | None = None) -> RowWeights:
        """Weights of the rows with these ids.

        Parameters
        ----------
        ids : Arrow array or ndarray of shape (m,)
        row_units : ndarray of shape (m,), int32, optional
            Further weights of these rows, by which those of persons are multiplied.

        Raises
        ------
        ChangedRows
            If there was no such id when persons were counted.
        """
        hashes, null = hash_ids(ids, self.key)
        units = _look_up(self.hashes, self.packed, hashes)
        units[null] = SCALE
        if units.min(initial=0) < 0:
            raise ChangedRows(
                "groups has other ids than in the first pass: all passes must read the "
                "same rows"
            )
        if row_units is not None:
            units = multiply_units(units, row_units)
        return RowWeights(units, self.n_persons)


def draw_key() -> np.ndarray:
    """Draw a key for hashes of ids, (2,), uint64, from the operating system."""
    return np.frombuffer(secrets.token_bytes(16), Word)


def count_persons(ids: Iterable[Any], name: str = "groups") -> Persons:
    """Count the rows of each person.

    Parameters
    ----------
    ids : iterable of Arrow arrays
        Ids, which are integers or texts.
    name : str
        Name of the ids in messages.

    Raises
    ------
    ValueError
        If ids are of another type.

    Examples
    --------
    >>> import pyarrow as pa
    >>> ids = pa.array(["ann", "bob", "ann", None])
    >>> persons = count_persons([ids])
    >>> (persons.weigh(ids).units / SCALE).tolist(), persons.n_persons
    ([0.5, 1.0, 0.5, 1.0], 3)
    """
    key = draw_key()
    count = partial(count_ids, key=key, name=name)
    total = count(())
    recent = count(())
    for block in ids:
        recent = merge_counts(recent, count(block))
        if SMALL_TABLE * len(recent[0]) >= len(total[0]):
            total = merge_counts(total, recent)
            recent = count(())
    return make_persons(merge_counts(total, recent), key)


def count_ids(
    ids: Any,
    key: np.ndarray,
    name: str = "groups",
) -> PersonCounts:
    """Count the rows of each person in a block of ids."""
    hashes, null = hash_ids(ids, key, name)
    hashes = np.delete(hashes, null)
    hashes, sizes = np.unique(hashes, return_counts=True)
    sizes = np.minimum(sizes, MAX_ROWS).astype(np.int32)
    return hashes, sizes, np.array([len(null)])


def merge_counts(
    totals: PersonCounts,
    more: PersonCounts,
) -> PersonCounts:
    """Add the counts of more rows to totals, in place."""
    hashes, sizes, n_without_id = totals
    n_before = len(hashes)
    n_after = n_before + _count_new(hashes, more[0])
    # No view of the arrays is left, so that they may move.
    for array in (hashes, sizes):
        array.resize(n_after, refcheck=False)
    _merge(hashes, sizes, n_before, more[0], more[1])
    n_without_id += more[2]
    return totals


def make_persons(
    counts: PersonCounts,
    key: np.ndarray,
) -> Persons:
    """Replace the numbers of rows by weights, in place."""
    hashes, sizes, n_without_id = counts
    _pack(hashes, sizes)
    return Persons(key, hashes, sizes, int(n_without_id[0]))


def hash_ids(
    ids: Any,
    key: np.ndarray,
    name: str = "groups",
) -> tuple[np.ndarray, np.ndarray]:
    """Keyed hashes of ids, uint64, and the positions of those that are null.

    Raises
    ------
    ValueError
        If ids are neither integers nor texts.
    """
    import pyarrow as pa

    if not isinstance(ids, pa.Array):
        try:
            ids = pa.array(ids, from_pandas=True)
        except (pa.ArrowException, OverflowError):
            raise make_type_error(name, "mixed") from None
    if pa.types.is_dictionary(ids.type):
        ids = ids.dictionary_decode()
    id_type = ids.type
    null = np.empty(0, np.int64)
    if ids.null_count:
        null = np.flatnonzero(ids.is_null())
    if len(null) == len(ids):
        return np.zeros(len(ids), Word), null
    if pa.types.is_integer(id_type):
        numbers = ids.fill_null(0).to_numpy()
        numbers = numbers.astype(np.int64, copy=False)
        return _hash_numbers(numbers.view(Word), key[0]), null
    texts = (pa.types.is_string, pa.types.is_large_string, pa.types.is_string_view)
    if not any(is_text(id_type) for is_text in texts):
        raise make_type_error(name, str(id_type))
    ids = ids.cast(pa.large_string())
    _, offsets, content = ids.buffers()
    starts = np.frombuffer(offsets, np.int64)[ids.offset :]
    starts = starts[: len(ids) + 1]
    letters = np.frombuffer(content or b"", np.uint8)
    return _hash_texts(letters, starts, *key), null


def make_type_error(name: str, id_type: str) -> ValueError:
    """Say that ids are of a wrong type."""
    return ValueError(
        f"{name} are of type {id_type}, and persons must be integers or texts: floats "
        "may be rounded, convert them"
    )


@njit(cache=True, nogil=True)
def _hash_numbers(numbers: np.ndarray, key: Word) -> np.ndarray:
    """Permute integers of 64 bits, by the output function of SplitMix64."""
    hashes = np.empty_like(numbers)
    for i in range(len(numbers)):
        mixed = numbers[i] ^ key
        mixed ^= mixed >> Word(30)
        mixed *= Word(0xBF58476D1CE4E5B9)
        mixed ^= mixed >> Word(27)
        mixed *= Word(0x94D049BB133111EB)
        hashes[i] = mixed ^ (mixed >> Word(31))
    return hashes


@njit(cache=True, nogil=True)
def _hash_texts(
    letters: np.ndarray,
    starts: np.ndarray,
    key: Word,
    second_key: Word,
) -> np.ndarray:
    """SipHash-1-3 of texts; text i is the bytes from start i to the next one."""
    hashes = np.empty(len(starts) - 1, Word)
    for i in range(len(hashes)):
        v0 = key ^ Word(0x736F6D6570736575)
        v1 = second_key ^ Word(0x646F72616E646F6D)
        v2 = key ^ Word(0x6C7967656E657261)
        v3 = second_key ^ Word(0x7465646279746573)
        position = starts[i]
        end = starts[i + 1]
        last = Word(end - position) << Word(56)
        while position + 8 <= end:
            word = _read_word(letters, position)
            v3 ^= word
            v0, v1, v2, v3 = _mix(v0, v1, v2, v3)
            v0 ^= word
            position += 8
        # The last word has the other bytes, and the length above them.
        if position + 8 <= len(letters):
            n_bits = Word(8 * (end - position))
            mask = (Word(1) << n_bits) - Word(1)
            last |= _read_word(letters, position) & mask
        else:
            for b in range(end - position):
                last |= Word(letters[position + b]) << Word(8 * b)
        v3 ^= last
        v0, v1, v2, v3 = _mix(v0, v1, v2, v3)
        v0 ^= last
        v2 ^= Word(0xFF)
        for _ in range(3):
            v0, v1, v2, v3 = _mix(v0, v1, v2, v3)
        hashes[i] = v0 ^ v1 ^ v2 ^ v3
    return hashes


@njit(cache=True, nogil=True, inline="always")
def _read_word(letters: np.ndarray, first: int) -> Word:
    """Read eight bytes as an integer, little-endian."""
    word = Word(0)
    # The number of bytes is constant, so that the compiler reads them at once.
    for b in range(8):
        word |= Word(letters[first + b]) << Word(8 * b)
    return word


@njit(cache=True, nogil=True, inline="always")
def _mix(
    v0: Word,
    v1: Word,
    v2: Word,
    v3: Word,
) -> tuple[Word, Word, Word, Word]:
    """One round of SipHash."""
    v0 += v1
    v2 += v3
    v1 = _rotate(v1, 13) ^ v0
    v3 = _rotate(v3, 16) ^ v2
    v0 = _rotate(v0, 32)
    v2 += v1
    v0 += v3
    v1 = _rotate(v1, 17) ^ v2
    v3 = _rotate(v3, 21) ^ v0
    v2 = _rotate(v2, 32)
    return v0, v1, v2, v3


@njit(cache=True, nogil=True, inline="always")
def _rotate(word: Word, n_bits: int) -> Word:
    return (word << Word(n_bits)) | (word >> Word(64 - n_bits))


@njit(cache=True, nogil=True)
def _count_new(hashes: np.ndarray, more: np.ndarray) -> int:
    """Count the hashes that others do not have; both ascend."""
    n_new = 0
    i = 0
    for wanted in more:
        while i < len(hashes) and hashes[i] < wanted:
            i += 1
        if i == len(hashes) or hashes[i] != wanted:
            n_new += 1
    return n_new


@njit(cache=True, nogil=True)
def _merge(
    hashes: np.ndarray,  # IN the first n, OUT (p,)
    sizes: np.ndarray,  # IN the first n, OUT (p,)
    n: int,
    more: np.ndarray,  # IN (m,)
    more_sizes: np.ndarray,  # IN (m,)
) -> None:
    """Merge m persons into the n at the beginning of arrays that have room for all."""
    # From the last person on: what is overwritten has been read.
    i = n - 1
    j = len(more) - 1
    target = len(hashes) - 1
    while j >= 0:
        if i < 0 or hashes[i] < more[j]:
            hashes[target] = more[j]
            sizes[target] = more_sizes[j]
            j -= 1
        else:
            n_rows = sizes[i]
            if hashes[i] == more[j]:
                n_rows = min(n_rows + more_sizes[j], MAX_ROWS)
                j -= 1
            hashes[target] = hashes[i]
            sizes[target] = n_rows
            i -= 1
        target -= 1


@njit(cache=True, nogil=True, inline="always")
def _expect(wanted: Word, n: int) -> int:
    """Position of a hash among n if they were spread evenly."""
    share = np.float64(wanted) / 2.0**64
    return min(int(share * n), n - 1)


@njit(cache=True, nogil=True)
def _pack(hashes: np.ndarray, sizes: np.ndarray) -> None:
    """Replace sizes by weights and drifts: see :class:`Persons`. OUT: sizes."""
    n = len(hashes)
    first = 0
    for i in range(n):
        while first < n and _expect(hashes[first], n) < i:
            first += 1
        drift = first - i
        drift = max(drift, -MAX_DRIFT)
        drift = min(drift, MAX_DRIFT - 1)
        weight = SCALE // sizes[i]
        sizes[i] = (drift << WEIGHT_BITS) | weight


@njit(cache=True, nogil=True)
def _look_up(
    hashes: np.ndarray,
    packed: np.ndarray,
    wanted: np.ndarray,
) -> np.ndarray:
    """Weight of a row for each hash, int32; -1 for one that is not there."""
    n = len(hashes)
    units = np.full(len(wanted), -1, np.int32)
    if n == 0:
        return units
    positions = np.empty(BATCH_HASHES, np.int64)
    candidates = np.empty(BATCH_HASHES, Word)
    for start in range(0, len(wanted), BATCH_HASHES):
        batch = wanted[start : start + BATCH_HASHES]
        # Without branches, so that the processor waits for many reads at once.
        for b in range(len(batch)):
            expected = _expect(batch[b], n)
            drift = packed[expected] >> WEIGHT_BITS
            position = min(expected + drift, n - 1)
            positions[b] = position
            candidates[b] = hashes[position]
        for b in range(len(batch)):
            position = positions[b]
            # Where a drift is cut off, the search begins at another hash.
            while position > 0 and candidates[b] > batch[b]:
                position -= 1
                candidates[b] = hashes[position]
            while position < n - 1 and candidates[b] < batch[b]:
                position += 1
                candidates[b] = hashes[position]
            if candidates[b] == batch[b]:
                units[start + b] = packed[position] & MAX_WEIGHT
    return units
