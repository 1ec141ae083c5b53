"""Vector registers in compiled kernels: a type of float32 lanes and the operations on it.

A variable of this type is a register, which the compiler's own vectorization does not
promise. The functions work inside compiled code only. Arrays are flat and contiguous;
an index is that of the first of :data:`LANES` elements.
"""

from typing import Any

import llvmlite.binding as llvm
from llvmlite import ir
from numba.core import types
from numba.core.cgutils import get_or_insert_function
from numba.extending import intrinsic, models, register_model

#: Float32 numbers in a vector register of this machine. Other registers are still
#: right, only slower: the compiler makes several of one.
LANES = 16 if llvm.get_host_cpu_features().get("avx512f") else 8

_FLOAT = ir.FloatType()
_INTEGER = ir.IntType(32)
_FLOATS = ir.VectorType(_FLOAT, LANES)
_INTEGERS = ir.VectorType(_INTEGER, LANES)
_DOUBLES = ir.VectorType(ir.DoubleType(), LANES)
_ELEMENT_BYTES = 4
#: Without its type: callers leave out the first parameter, numba's typing context.
_operation: Any = intrinsic


class LanesType(types.Type):
    """Numba's type of a register of float32 numbers."""

    def __init__(self) -> None:
        super().__init__(f"float32 x {LANES}")


LANES_TYPE = LanesType()


@register_model(LanesType)
class _LanesModel(models.PrimitiveModel):
    def __init__(self, manager: Any, numba_type: Any) -> None:
        super().__init__(manager, numba_type, _FLOATS)


def _address(
    context: Any, builder: Any, array_type: Any, array: Any, index: Any
) -> Any:
    """Pointer to an element of a flat array."""
    data = context.make_array(array_type)(context, builder, array).data
    return builder.gep(data, [index])


def _load(builder: Any, address: Any, vector: ir.Type) -> Any:
    pointer = builder.bitcast(address, vector.as_pointer())
    return builder.load(pointer, align=_ELEMENT_BYTES)


def _store(builder: Any, address: Any, value: Any) -> None:
    pointer = builder.bitcast(address, value.type.as_pointer())
    builder.store(value, pointer, align=_ELEMENT_BYTES)


@_operation
def load(typing: Any, array: Any, index: Any) -> Any:
    """Elements of a float32 array."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        address = _address(context, builder, signature.args[0], *arguments)
        return _load(builder, address, _FLOATS)

    return LANES_TYPE(array, types.intp), generate


@_operation
def prefetch(typing: Any, array: Any, index: Any) -> Any:
    """Ask for the cache line of an element of a float32 array, which may lie beyond its end."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        byte = ir.IntType(8).as_pointer()
        function_type = ir.FunctionType(
            ir.VoidType(), [byte, _INTEGER, _INTEGER, _INTEGER]
        )
        function = builder.module.declare_intrinsic(
            "llvm.prefetch", [byte], function_type
        )
        address = _address(context, builder, signature.args[0], *arguments)
        # To read, into the cache of the first level, as data.
        options = [_INTEGER(option) for option in (0, 3, 1)]
        builder.call(function, [builder.bitcast(address, byte), *options])
        return context.get_dummy_value()

    return types.none(array, types.intp), generate


@_operation(prefer_literal=True)
def load_strided(typing: Any, array: Any, index: Any, stride: Any) -> Any:
    """Elements of a float32 array ``stride`` apart, a number that is constant in compiled code."""
    n_elements = LANES * stride.literal_value

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        address = _address(context, builder, signature.args[0], *arguments[:2])
        elements = _load(builder, address, ir.VectorType(_FLOAT, n_elements))
        positions = list(range(0, n_elements, stride.literal_value))
        undefined = ir.Constant(elements.type, ir.Undefined)
        return builder.shuffle_vector(
            elements, undefined, ir.Constant(_INTEGERS, positions)
        )

    return LANES_TYPE(array, types.intp, stride), generate


@_operation
def store(typing: Any, array: Any, index: Any, value: Any) -> Any:
    """Write lanes to a float32 array."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        array, index, value = arguments
        address = _address(context, builder, signature.args[0], array, index)
        _store(builder, address, value)
        return context.get_dummy_value()

    return types.none(array, types.intp, LANES_TYPE), generate


@_operation
def add_integers(typing: Any, sums: Any, index: Any, value: Any) -> Any:
    """Add lanes, which must hold integers, to an int32 array."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        sums, index, value = arguments
        address = _address(context, builder, signature.args[0], sums, index)
        before = _load(builder, address, _INTEGERS)
        after = builder.add(before, builder.fptosi(value, _INTEGERS))
        _store(builder, address, after)
        return context.get_dummy_value()

    return types.none(sums, types.intp, LANES_TYPE), generate


@_operation
def add_doubles(typing: Any, sums: Any, index: Any, value: Any) -> Any:
    """Add lanes to a float64 array."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        sums, index, value = arguments
        address = _address(context, builder, signature.args[0], sums, index)
        before = _load(builder, address, _DOUBLES)
        after = builder.fadd(before, builder.fpext(value, _DOUBLES))
        _store(builder, address, after)
        return context.get_dummy_value()

    return types.none(sums, types.intp, LANES_TYPE), generate


@_operation
def broadcast(typing: Any, number: Any) -> Any:
    """Lanes that all hold the same float32 number."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        undefined = ir.Constant(_FLOATS, ir.Undefined)
        first = builder.insert_element(undefined, arguments[0], _INTEGER(0))
        return builder.shuffle_vector(
            first, undefined, ir.Constant(_INTEGERS, [0] * LANES)
        )

    return LANES_TYPE(types.float32), generate


@_operation
def multiply_add(typing: Any, a: Any, b: Any, c: Any) -> Any:
    """``a * b + c``, rounded once."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        name = f"llvm.fma.v{LANES}f32"
        function_type = ir.FunctionType(_FLOATS, [_FLOATS] * 3)
        function = get_or_insert_function(builder.module, function_type, name)
        return builder.call(function, arguments)

    return LANES_TYPE(LANES_TYPE, LANES_TYPE, LANES_TYPE), generate


@_operation
def add(typing: Any, a: Any, b: Any) -> Any:
    """``a + b``."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.fadd(*arguments)

    return LANES_TYPE(LANES_TYPE, LANES_TYPE), generate


@_operation
def subtract(typing: Any, a: Any, b: Any) -> Any:
    """``a - b``."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.fsub(*arguments)

    return LANES_TYPE(LANES_TYPE, LANES_TYPE), generate


@_operation
def any_less(typing: Any, a: Any, b: Any) -> Any:
    """Whether ``a < b`` in any lane."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        bits = builder.bitcast(builder.fcmp_ordered("<", *arguments), ir.IntType(LANES))
        return builder.icmp_unsigned("!=", bits, bits.type(0))

    return types.boolean(LANES_TYPE, LANES_TYPE), generate


@_operation
def count_equal(typing: Any, a: Any, b: Any) -> Any:
    """Number of lanes in which ``a == b``."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        bits = builder.bitcast(
            builder.fcmp_ordered("==", *arguments), ir.IntType(LANES)
        )
        return builder.zext(builder.ctpop(bits), ir.IntType(64))

    return types.int64(LANES_TYPE, LANES_TYPE), generate


@_operation
def where_less(typing: Any, a: Any, b: Any, x: Any, y: Any) -> Any:
    """In each lane ``x`` where ``a < b``, else ``y``."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        a, b, x, y = arguments
        return builder.select(builder.fcmp_ordered("<", a, b), x, y)

    return LANES_TYPE(LANES_TYPE, LANES_TYPE, LANES_TYPE, LANES_TYPE), generate


@_operation
def where_equal(typing: Any, a: Any, b: Any, x: Any, y: Any) -> Any:
    """In each lane ``x`` where ``a == b``, else ``y``."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        a, b, x, y = arguments
        return builder.select(builder.fcmp_ordered("==", a, b), x, y)

    return LANES_TYPE(LANES_TYPE, LANES_TYPE, LANES_TYPE, LANES_TYPE), generate


@_operation
def transpose(
    typing: Any, rows: Any, start: Any, stride: Any, columns: Any, to: Any, step: Any
) -> Any:
    """Transpose a tile of :data:`LANES` rows of as many elements, between float32 arrays.

    Row i is read at ``start + i * stride``, column h written at ``to + h * step``.
    """

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        rows, start, stride, columns, to, step = arguments
        index = start.type
        vectors = []
        for i in range(LANES):
            position = builder.add(start, builder.mul(stride, index(i)))
            address = _address(context, builder, signature.args[0], rows, position)
            vectors.append(_load(builder, address, _FLOATS))

        # Interleaving each vector of the first half with one of the second rotates the
        # bits of an element's position by one; after log2(LANES) rounds its row and
        # column have swapped.
        half = LANES // 2
        low_halves = [i // 2 + i % 2 * LANES for i in range(LANES)]
        high_halves = [i + half for i in low_halves]
        for _ in range(LANES.bit_length() - 1):
            vectors = [
                builder.shuffle_vector(
                    vectors[i], vectors[i + half], ir.Constant(_INTEGERS, mask)
                )
                for i in range(half)
                for mask in (low_halves, high_halves)
            ]

        for h, vector in enumerate(vectors):
            position = builder.add(to, builder.mul(step, index(h)))
            address = _address(context, builder, signature.args[3], columns, position)
            _store(builder, address, vector)
        return context.get_dummy_value()

    positions = (types.intp, types.intp)
    return types.none(rows, *positions, columns, *positions), generate
