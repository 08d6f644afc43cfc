"""Statements of TVM's tensor IR, as kernels write them."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, NamedTuple

from tvm import tirx
from tvm.tirx import ForKind

_numbers = itertools.count()

SERIAL, PARALLEL, VECTORIZED, UNROLLED = ForKind.SERIAL, ForKind.PARALLEL, ForKind.VECTORIZED, ForKind.UNROLLED


def parallel(tasks: int) -> Any:
    """Return the loop kind for parallel `tasks`."""
    return PARALLEL if tasks > 1 else SERIAL


def number(value: int) -> Any:
    """Return a 64-bit constant; TVM rejects mixed index widths."""
    return tirx.IntImm("int64", value)


def variable(name: str) -> Any:
    """Return a fresh index variable."""
    # Numbered for people alone: TVM tells variables apart as objects, and prints them by name.
    return tirx.Var(f"{name}{next(_numbers)}", "int64")


def buffer(name: str, shape: Sequence[int], dtype: str = "float32") -> Any:
    """Return a buffer variable."""
    return tirx.decl_buffer([number(extent) for extent in shape], dtype, name=name, layout=None)


def sequence(statements: Sequence[Any]) -> Any:
    """Return the statements as one."""
    return statements[0] if len(statements) == 1 else tirx.SeqStmt(list(statements))


def statements(statement: Any) -> list[Any]:
    """Return a sequence's statements, or the single statement."""
    return list(statement.seq) if isinstance(statement, tirx.SeqStmt) else [statement]


def loop(name: str, extent: int, body: Callable[[Any], Any], kind: Any = SERIAL) -> Any:
    """Return ``for name in range(extent): body(name)``, unlooped for one turn."""
    # A constant index is folded at once, and what is inside can be a part of the loop around it.
    if extent == 1:
        return body(number(0))
    index = variable(name)
    if kind != VECTORIZED:
        return tirx.For(index, number(0), number(extent), kind, body(index))
    with lanes(index, extent) as registers:
        statement = body(index)
    # Before the loop: TVM does not turn what is allocated inside into vectors.
    allocations = [tirx.AllocBuffer(register) for register in registers]
    return sequence([*allocations, tirx.For(index, number(0), number(extent), kind, statement)])


class _Lanes(NamedTuple):
    """Loop over lanes under construction, with its requested registers."""

    index: Any
    extent: int
    registers: list[Any]


_lanes: ContextVar[_Lanes | None] = ContextVar("lanes", default=None)


@contextmanager
def lanes(index: Any, extent: int) -> Iterator[list[Any]]:
    """Collect registers requested inside, one value per lane."""
    context = _Lanes(index, extent, [])
    token = _lanes.set(context)
    try:
        yield context.registers
    finally:
        _lanes.reset(token)


def register(dtype: str) -> tuple[Any, Any, list[Any]]:
    """Return a register's buffer, index, and allocating statements."""
    context = _lanes.get()
    extent = 1 if context is None else context.extent
    memory = buffer("register", [extent], dtype)
    if context is None:
        return memory, number(0), [tirx.AllocBuffer(memory)]
    context.registers.append(memory)
    return memory, context.index, []


def pieces(name: str, total: int, size: int, body: Callable[[Any, Any, int], Any]) -> list[Any]:
    """Divide `total` into loops: ``body(index, start, size)`` per piece and remainder."""
    count, remainder = divmod(total, size)
    statements = [loop(name, count, lambda index: body(index, index * size, size))] if count else []
    return [*statements, body(number(count), number(count * size), remainder)] if remainder else statements


def run(length: int, lanes: int, step: Callable[[Any, int], Any]) -> Any:
    """Return ``step(offset, size)`` over `length`: whole vectors, then a remainder."""
    vector_count, remainder = divmod(length, lanes)
    statements = [loop("vector", vector_count, lambda index: step(index * lanes, lanes))] if vector_count else []
    if remainder:
        statements.append(step(number(vector_count * lanes), remainder))
    return sequence(statements) if statements else None


def bound(name: str, value: Any, body: Callable[[Any], Sequence[Any]]) -> list[Any]:
    """Bind `value` to a variable around statements."""
    var = variable(name)
    return [tirx.Bind(var, value), *body(var)]


def bind_values(name: str, values: Sequence[Any], dtype: str) -> tuple[list[Any], list[Any]]:
    """Bind values of a dtype to variables."""
    variables = [tirx.Var(f"{name}{index}", dtype) for index in range(len(values))]
    return variables, [tirx.Bind(var, value) for var, value in zip(variables, values, strict=True)]


def piece_start(index: Any, size: int, total: int) -> Any:
    """Return a piece's start; the last overlaps rather than shrinks."""
    start = index * size
    return start if total % size == 0 else tirx.Min(start, number(total - size))


class Bindings:
    """Values of an expression, computed once, in order.

    The result is a list, since no value may hold a let itself: code generation looks at it in several ways, takes what
    they find for different values of the inner variable, and gives up.
    """

    def __init__(self) -> None:
        self._values: list[tuple[Any, Any]] = []

    def bind(self, dtype: str, value: Any) -> Any:
        """Bind a value to a variable."""
        var = tirx.Var(f"let{next(_numbers)}", dtype)
        self._values.append((var, value))
        return var

    def around(self, result: Any) -> Any:
        """Wrap an expression in all bindings."""
        for var, value in reversed(self._values):
            result = tirx.Let(var, value, result)
        return result


def ramp(base: Any, lanes: int) -> Any:
    """Return the index of `lanes` neighbours from `base` on."""
    return tirx.Ramp(base, number(1), lanes)


def span(base: Any, lanes: int) -> Any:
    """Return the index of one or more adjacent lanes."""
    return base if lanes == 1 else ramp(base, lanes)


def lanewise(dtype: str, lanes: int) -> str:
    """Return a vector's dtype, scalar for one lane."""
    return dtype if lanes == 1 else f"{dtype}x{lanes}"


def convert(value: Any, dtype: str, lanes: int) -> Any:
    """Convert a vector or scalar, if necessary."""
    kind = lanewise(dtype, lanes)
    return value if str(value.ty.dtype) == kind else value.astype(kind)


def load(source: Any, *indices: Any) -> Any:
    """Load an element, or a vector at a ramp index."""
    return tirx.BufferLoad(source, list(indices))


def store(target: Any, value: Any, *indices: Any) -> Any:
    """Store an element or a vector."""
    return tirx.BufferStore(target, value, list(indices))


def vector(value: Any, lanes: int) -> Any:
    """Return a scalar in all lanes of a vector."""
    return tirx.Broadcast(value, lanes)


def lane(value: Any, index: int) -> Any:
    """Return one lane of a vector."""
    return tirx.Shuffle([value], [tirx.IntImm("int32", index)])


def wide(value: Any, lanes: int) -> Any:
    """Broadcast a scalar to all lanes."""
    return value if lanes == 1 else vector(value, lanes)


def constant(value: float, lanes: int = 1) -> Any:
    """Return a float32 constant in all lanes."""
    return wide(tirx.FloatImm("float32", value), lanes)


def zeros(lanes: int, dtype: str = "float32") -> Any:
    """Return a vector of zeros."""
    return vector(tirx.FloatImm(dtype, 0.0), lanes)


def unravel(index: Any, extents: Sequence[int]) -> list[Any]:
    """Return the axis indices of a flat index."""
    indices: list[Any] = []
    # From the last axis on; the first one needs no remainder, as the index is within all of them.
    for axis, extent in reversed(list(enumerate(extents))):
        indices.insert(0, number(0) if extent == 1 else index if axis == 0 else index % extent)
        index = index // extent if extent > 1 else index
    return indices


def flat(source: Any, name: str, size: int, dtype: str = "float32") -> tuple[Any, Any]:
    """Return a one-dimensional buffer view and its declaration."""
    # Kernels compute offsets themselves, also over the end of an axis into the next row.
    view = buffer(name, [size], dtype)
    return view, tirx.DeclBuffer(view, data=tirx.buffer.buffer_data(source))


def fetch(source: Any, *indices: Any, write: bool = False, to_l1: bool = True) -> Any:
    """Prefetch an element's cache line.

    Unless `to_l1`, the line goes to the second-level cache only.
    """
    # A prefetch of an address outside of all memory does no harm, so nobody has to check the end.
    address = tirx.address_of(load(source, *indices))
    # As LLVM counts them: read or write, locality from 0 to 3, and 1 for the cache of data.
    flags = [tirx.IntImm("int32", flag) for flag in (int(write), 3 if to_l1 else 2, 1)]
    return tirx.Evaluate(tirx.call_llvm_intrin("void", "llvm.prefetch", address, *flags))


def schedule_boundary(value: Any) -> Any:
    """Return a code-free statement as barrier to LLVM's schedulers."""
    return tirx.Evaluate(tirx.call_llvm_intrin("void", "llvm.fake.use", value))


def keep_in_memory(source: Any) -> Any:
    """Return a code-free statement keeping a small buffer out of registers."""
    return schedule_boundary(tirx.address_of(load(source, number(0))))
