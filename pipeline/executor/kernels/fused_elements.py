"""Fused elements as one expression, common reads computed once.

Written out at each reading, a chain of operators that read their operand twice doubles with each of them: rounding as
TFLite does reads its operand three times, and light curves of pictures are polynomials of polynomials.
"""

from __future__ import annotations

import collections
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import tvm
from tvm import tirx

from pipeline.tvm import statements as tir
from pipeline.tvm.objects import mutate

Leaf = Callable[[Any, Sequence[Any]], Any]


class FusedElements:
    """Operators computing tensor elements."""

    def __init__(self, blocks: Mapping[Any, Any]) -> None:
        self._blocks = blocks
        readings = collections.Counter(load.source for block in blocks.values() for load in loads(block.body.value))
        self._repeated = {buffer for buffer in blocks if readings[buffer] > 1}

    def store(self, source: Any, target: Any, indices: Sequence[Any], leaf: Leaf = tirx.BufferLoad) -> list[Any]:
        """Compute an element of the buffer `source` and store it in `target`.

        `leaf` makes the element's value from a buffer that no operator makes, and indices.
        """
        writer = _ElementWriter(self._blocks, self._repeated, source.shape, indices, leaf)
        value = writer.element(source, indices)
        return [*writer.statements, tir.store(target, value, *indices)]


class _ElementWriter:
    """Writes one element, collecting its preparation in `statements`."""

    def __init__(
        self, blocks: Mapping[Any, Any], repeated: set[Any], shape: Sequence[Any], indices: Sequence[Any], leaf: Leaf
    ) -> None:
        self.statements: list[Any] = []
        self._blocks, self._repeated, self._leaf = blocks, repeated, leaf
        self._extents = {_identity(index): _identity(extent) for index, extent in zip(indices, shape, strict=True)}
        self._elements: dict[tuple[Any, ...], Any] = {}

    def element(self, buffer: Any, indices: Sequence[Any]) -> Any:
        """Return an element's value or its register's load."""
        block = self._blocks.get(buffer)
        if block is None:
            return self._leaf(buffer, list(indices))
        if buffer not in self._repeated or not self._is_there(buffer, indices):
            return self._inline(block, indices)
        key = (buffer, *map(_identity, indices))
        if key not in self._elements:
            # In memory that becomes a register: of a variable TVM's code generation goes through the value again at
            # each reading, and through the values of the variables in it, so that time doubles with each of them.
            value, (register, position, allocation) = self._inline(block, indices), tir.register(str(buffer.dtype))
            self.statements += [*allocation, tir.store(register, value, position)]
            self._elements[key] = tir.load(register, position)
        return self._elements[key]

    def _is_there(self, buffer: Any, indices: Sequence[Any]) -> bool:
        """Test if an element needs no guarding condition."""
        return all(
            isinstance(index, tirx.IntImm) or self._extents.get(_identity(index)) == _identity(extent)
            for index, extent in zip(indices, buffer.shape, strict=True)
        )

    def _inline(self, block: Any, indices: Sequence[Any]) -> Any:
        # A block is inlined by putting the indices in the place of its own axes.
        # That of a number without axes has one of a single element, of which a load says nothing.
        positions = indices or [tirx.const(0, axis.var.ty.dtype) for axis in block.iter_vars]
        values = {axis.var: index for axis, index in zip(block.iter_vars, positions, strict=True)}

        def variable(var: Any, _: Any) -> Any:
            return values.get(var, var)

        def element(load: Any, mutator: Any) -> Any:
            return self.element(load.source, [mutator.mutate(index) for index in load.indices])

        return mutate(block.body.value, [(tvm.ir.TensorLoad, element), (tvm.ir.Var, variable)])


def loads(node: Any) -> list[Any]:
    """Return the loads of a node, outermost first, without index loads."""
    nodes: list[Any] = []

    def look(load: Any, _: Any) -> Any:
        nodes.append(load)
        return load

    mutate(node, [(tvm.ir.TensorLoad, look)])
    return nodes


def _identity(index: Any) -> Any:
    """Return a structural key of equal indices: `==` builds expressions."""
    return int(index) if isinstance(index, tirx.IntImm) else str(index.__chandle__())
