"""Vector registers in compiled kernels: a numba type and operations on it.

A register holds :data:`LANES` float32 numbers, its lanes. A variable of this type stays
in a register, which automatic vectorization does not guarantee. The functions work
inside compiled code only. Arrays are flat and contiguous; an index is that of the first
of :data:`LANES` elements.
"""

from collections.abc import Callable
from functools import wraps
from typing import Any

import llvmlite.binding as llvm
from llvmlite import ir
from numba.core import types
from numba.core.cgutils import get_or_insert_function
from numba.extending import intrinsic, models, register_model

#: Float32 numbers in a vector register of this machine. On another machine results are
#: the same, and code is slower: the compiler splits the registers.
LANES = 16 if llvm.get_host_cpu_features().get("avx512f") else 8

_FLOAT = ir.FloatType()
_INTEGER = ir.IntType(32)
_FLOATS = ir.VectorType(_FLOAT, LANES)
_INTEGERS = ir.VectorType(_INTEGER, LANES)
_DOUBLES = ir.VectorType(ir.DoubleType(), LANES)
_BYTES = ir.IntType(8).as_pointer()
_ELEMENT_BYTES = 4
#: Typed as Any: callers leave out the first parameter, numba's typing context.
_intrinsic: Any = intrinsic


class LanesType(types.Type):
    """Numba's type of a register of float32 numbers."""

    def __init__(self) -> None:
        super().__init__(f"float32 x {LANES}")


LANES_TYPE = LanesType()
_PAIR = (LANES_TYPE, LANES_TYPE)


@register_model(LanesType)
class _LanesModel(models.PrimitiveModel):
    def __init__(self, manager: Any, numba_type: Any) -> None:
        super().__init__(manager, numba_type, _FLOATS)


def _operation(result: types.Type, *operands: Any) -> Callable[[Callable], Any]:
    """Decorate a function that emits LLVM instructions: compiled code can call it.

    The decorated function takes LLVM's builder, which callers leave out, and operands.

    Parameters
    ----------
    result : numba type
    *operands : numba type
        ``types.Array`` stands for any array: the pointer to its data is passed.
    """

    def decorate(write: Callable) -> Any:
        @wraps(write)
        def define(typing: Any, *arguments: Any) -> Any:
            # numba calls this once per signature; ``generate`` writes the code.
            expected = [
                argument if operand is types.Array else operand
                for operand, argument in zip(operands, arguments, strict=True)
            ]

            def generate(
                context: Any,
                builder: Any,
                signature: Any,
                values: Any,
            ) -> Any:
                values = [
                    _pointer(context, builder, operand, value)
                    for operand, value in zip(expected, values, strict=True)
                ]
                value = write(builder, *values)
                return context.get_dummy_value() if value is None else value

            return result(*expected), generate

        return _intrinsic(define)

    return decorate


def _pointer(
    context: Any,
    builder: Any,
    operand: types.Type,
    value: Any,
) -> Any:
    """Pointer to the data of an array; other values as they are."""
    if not isinstance(operand, types.Array):
        return value
    return context.make_array(operand)(context, builder, value).data


def _load(
    builder: Any,
    address: Any,
    vector: ir.Type,
) -> Any:
    # Arrays need not begin at a multiple of a register: align to an element only.
    pointer = builder.bitcast(address, vector.as_pointer())
    return builder.load(pointer, align=_ELEMENT_BYTES)


def _store(builder: Any, address: Any, value: Any) -> None:
    pointer = builder.bitcast(address, value.type.as_pointer())
    builder.store(value, pointer, align=_ELEMENT_BYTES)


def _shuffle(
    builder: Any,
    first: Any,
    second: Any,
    positions: list[int],
) -> Any:
    """Register of the elements at some positions of two joined vectors."""
    return builder.shuffle_vector(first, second, ir.Constant(_INTEGERS, positions))


@_operation(LANES_TYPE, types.Array, types.intp)
def load(builder: Any, array: Any, index: Any) -> Any:
    """Elements of a float32 array."""
    return _load(builder, builder.gep(array, [index]), _FLOATS)


@_operation(types.none, types.Array, types.intp)
def prefetch(builder: Any, array: Any, index: Any) -> None:
    """Ask for the cache line of a float32 element, which may lie beyond the end."""
    function_type = ir.FunctionType(ir.VoidType(), [_BYTES, *[_INTEGER] * 3])
    function = builder.module.declare_intrinsic(
        "llvm.prefetch", [_BYTES], function_type
    )
    address = builder.bitcast(builder.gep(array, [index]), _BYTES)
    # Options: 0 for a read, 3 for the first-level cache, 1 for data.
    options = [_INTEGER(option) for option in (0, 3, 1)]
    builder.call(function, [address, *options])


@_intrinsic(prefer_literal=True)
def load_strided(
    typing: Any,
    array: Any,
    index: Any,
    stride: Any,
) -> Any:
    """Elements of a float32 array ``stride`` apart, a compile-time constant."""
    # A shuffle has its positions in the instruction, so that the stride must be known
    # to the compiler.
    n_elements = LANES * stride.literal_value

    def generate(
        context: Any,
        builder: Any,
        signature: Any,
        arguments: Any,
    ) -> Any:
        data = _pointer(context, builder, signature.args[0], arguments[0])
        address = builder.gep(data, [arguments[1]])
        elements = _load(builder, address, ir.VectorType(_FLOAT, n_elements))
        positions = list(range(0, n_elements, stride.literal_value))
        return _shuffle(builder, elements, elements, positions)

    return LANES_TYPE(array, types.intp, stride), generate


@_operation(types.none, types.Array, types.intp, LANES_TYPE)
def store(
    builder: Any,
    array: Any,
    index: Any,
    value: Any,
) -> None:
    """Write lanes to a float32 array."""
    _store(builder, builder.gep(array, [index]), value)


@_operation(types.none, types.Array, types.intp, LANES_TYPE)
def add_integers(
    builder: Any,
    sums: Any,
    index: Any,
    value: Any,
) -> None:
    """Add lanes, which must hold integers, to an int32 array."""
    address = builder.gep(sums, [index])
    before = _load(builder, address, _INTEGERS)
    after = builder.add(before, builder.fptosi(value, _INTEGERS))
    _store(builder, address, after)


@_operation(types.none, types.Array, types.intp, LANES_TYPE)
def add_doubles(
    builder: Any,
    sums: Any,
    index: Any,
    value: Any,
) -> None:
    """Add lanes to a float64 array."""
    address = builder.gep(sums, [index])
    before = _load(builder, address, _DOUBLES)
    after = builder.fadd(before, builder.fpext(value, _DOUBLES))
    _store(builder, address, after)


@_operation(LANES_TYPE, types.float32)
def broadcast(builder: Any, number: Any) -> Any:
    """Lanes that all hold the same float32 number."""
    # Insert at lane 0 and shuffle it to all lanes: LLVM's idiom of a broadcast.
    undefined = ir.Constant(_FLOATS, ir.Undefined)
    first = builder.insert_element(undefined, number, _INTEGER(0))
    return _shuffle(builder, first, undefined, [0] * LANES)


@_operation(LANES_TYPE, *_PAIR, LANES_TYPE)
def multiply_add(
    builder: Any,
    a: Any,
    b: Any,
    c: Any,
) -> Any:
    """``a * b + c``, rounded once."""
    # The intrinsic, because the error bound of the scan counts one rounding for both.
    name = f"llvm.fma.v{LANES}f32"
    function_type = ir.FunctionType(_FLOATS, [_FLOATS] * 3)
    function = get_or_insert_function(builder.module, function_type, name)
    return builder.call(function, [a, b, c])


@_operation(LANES_TYPE, *_PAIR)
def add(builder: Any, a: Any, b: Any) -> Any:
    """``a + b``."""
    return builder.fadd(a, b)


@_operation(LANES_TYPE, *_PAIR)
def subtract(builder: Any, a: Any, b: Any) -> Any:
    """``a - b``."""
    return builder.fsub(a, b)


def _compare(
    builder: Any,
    relation: str,
    a: Any,
    b: Any,
) -> Any:
    """Bits of a comparison, one per lane."""
    # Ordered: false in a lane with NaN.
    lanes = builder.fcmp_ordered(relation, a, b)
    return builder.bitcast(lanes, ir.IntType(LANES))


@_operation(types.boolean, *_PAIR)
def any_less(builder: Any, a: Any, b: Any) -> Any:
    """Whether ``a < b`` in any lane."""
    bits = _compare(builder, "<", a, b)
    return builder.icmp_unsigned("!=", bits, bits.type(0))


@_operation(types.int64, *_PAIR)
def count_equal(builder: Any, a: Any, b: Any) -> Any:
    """Number of lanes in which ``a == b``."""
    bits = _compare(builder, "==", a, b)
    return builder.zext(builder.ctpop(bits), ir.IntType(64))


def _make_where(relation: str) -> Any:
    @_operation(LANES_TYPE, *_PAIR, *_PAIR)
    def where(
        builder: Any,
        a: Any,
        b: Any,
        x: Any,
        y: Any,
    ) -> Any:
        return builder.select(builder.fcmp_ordered(relation, a, b), x, y)

    return where


#: In each lane ``x`` where ``a < b`` (or ``a == b``), else ``y``.
where_less = _make_where("<")
where_equal = _make_where("==")


@_operation(types.none, *[types.Array, types.intp, types.intp] * 2)
def transpose(
    builder: Any,
    rows: Any,
    start: Any,
    stride: Any,
    columns: Any,
    to: Any,
    step: Any,
) -> None:
    """Transpose a tile of :data:`LANES` rows and columns between float32 arrays.

    Row i is read at ``start + i * stride``, column h written at ``to + h * step``.
    """
    # One register per row.
    index = start.type
    vectors = []
    for i in range(LANES):
        position = builder.add(start, builder.mul(stride, index(i)))
        vectors.append(_load(builder, builder.gep(rows, [position]), _FLOATS))

    # Interleaving each vector of the first half with one of the second rotates the
    # bits of an element's position by one; after log2(LANES) rounds its row and
    # column have swapped.
    half = LANES // 2
    low_halves = [i // 2 + i % 2 * LANES for i in range(LANES)]
    high_halves = [i + half for i in low_halves]
    for _ in range(LANES.bit_length() - 1):
        vectors = [
            _shuffle(builder, vectors[i], vectors[i + half], positions)
            for i in range(half)
            for positions in (low_halves, high_halves)
        ]

    for h, vector in enumerate(vectors):
        position = builder.add(to, builder.mul(step, index(h)))
        _store(builder, builder.gep(columns, [position]), vector)
