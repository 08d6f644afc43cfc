"""Elements that fused operators read more than once, computed once.

Rounding as TFLite does reads its operand three times; a chain of such operators, written out, is several times as long
as it has to be, for each element of a register tile, and takes as much longer to compile.
"""

from __future__ import annotations

import collections
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import tvm
import tvm_ffi
from tvm import tirx

from pipeline.executor.kernels.tir import statements as tir


class SharedElements:
    """Elements that an expression of one element reads more than once.

    Parameters
    ----------
    buffers : collection of buffer
        Those of which elements are shared.
    indices : sequence of tvm.tirx.PrimExpr
        Of the element.
    """

    def __init__(self, buffers: Collection[Any], indices: Sequence[Any]) -> None:
        self.bindings = tir.Bindings()
        self._buffers = buffers
        self._positions = {_identity(index) for index in indices}
        self._elements: dict[tuple[Any, ...], Any] = {}

    def element(self, buffer: Any, indices: Sequence[Any], write: Callable[[], Any]) -> Any:
        """Return what stands for an element: a variable, which `write` gives the value of when it is first read."""
        positions = [_identity(index) for index in indices]
        # At another place there may be no element; a condition guards the read, and must go on to do so.
        is_there = all(isinstance(position, int) or position in self._positions for position in positions)
        if buffer not in self._buffers or not is_there:
            return write()
        key = (buffer, *positions)
        if key not in self._elements:
            value = write()
            self._elements[key] = self.bindings.bind(str(value.ty.dtype), value)
        return self._elements[key]


def _identity(index: Any) -> Any:
    """Return what two indices have in common that are the same: expressions are compared by an expression."""
    return int(index) if isinstance(index, tirx.IntImm) else str(index.__chandle__())


def repeated_buffers(values: Mapping[Any, Any]) -> set[Any]:
    """Return the buffers that several expressions of a group read, if all of it is integer arithmetic.

    What is no integer may be a function that is lowered to a let, and none may hold another.
    """
    if not all(str(buffer.dtype).startswith(("int", "uint", "bool")) for buffer in values):
        return set()
    readers: collections.Counter[Any] = collections.Counter()

    def look(load: Any, _: Any) -> Any:
        readers[load.source] += 1
        return load

    for block in values.values():
        tvm_ffi.structural_mutate(block.body.value, [(tvm.ir.TensorLoad, look)])
    return {buffer for buffer in values if readers[buffer] > 1}
