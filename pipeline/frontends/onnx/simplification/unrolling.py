"""Loops with a constant step count, unrolled."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from onnx import helper, numpy_helper

from .copying import copy_nodes, count_nodes
from .tensors import is_external, static_shape
from .trips import count_trips

MOST_STEPS = 64
"""Bound on steps of a loop; longer ones are left to a runtime with loops."""

MOST_NODES = 500
"""Bound on nodes of all unrolled loops; TVM compiles some two hundred operators in a second."""

# Before, a scan had a batch, and an operator its axes as an attribute.
_FIRST_SCAN, _FIRST_AXES = 9, 13


class Unroller:
    """Writer of unrolled loops, within a size limit."""

    def __init__(self, version: int) -> None:
        self._version = version
        self._nodes = self._loops = 0

    def unroll(self, node: Any, constants: Mapping[str, np.ndarray], types: Mapping[str, Any]) -> list[Any] | None:
        """Return an unrolled loop's nodes; None for any other node."""
        if node.domain not in ("", "ai.onnx") or node.op_type not in ("Loop", "Scan"):
            return None
        if node.op_type == "Scan" and self._version < _FIRST_SCAN:
            return None
        kind = _Loop if node.op_type == "Loop" else _Scan
        loop = kind(node, f"{next(filter(None, (node.name, *node.output)))}#{self._loops}", self._version)
        steps = loop.count_steps(constants, types)
        if not steps or steps > MOST_STEPS or any(map(is_external, loop.body.initializer)):
            return None
        if (size := self._nodes + steps * count_nodes(loop.body)) > MOST_NODES:
            return None
        self._nodes, self._loops = size, self._loops + 1
        return list(loop.write(steps))


class _Loop:
    """A ``Loop`` with carried and stacked results."""

    def __init__(self, node: Any, prefix: str, version: int) -> None:
        self._node, self._prefix, self._version = node, prefix, version
        self._attributes = {attribute.name: helper.get_attribute_value(attribute) for attribute in node.attribute}
        self.body = self._attributes["body"]
        self._carried = self._initial_values()

    def _initial_values(self) -> list[str]:
        return list(self._node.input[2:])

    def count_steps(self, constants: Mapping[str, np.ndarray], _: Mapping[str, Any]) -> int | None:
        """Return a small constant number of steps, or None."""
        return count_trips(self._node, constants, MOST_STEPS, self._version)

    def write(self, steps: int) -> Iterator[Any]:
        """Yield all steps' nodes in order, then the loop's results."""
        constants = {tensor.name: f"{self._prefix}/{tensor.name}" for tensor in self.body.initializer}
        for tensor in self.body.initializer:
            yield helper.make_node("Constant", [], [constants[tensor.name]], value=tensor)
        carried = self._carried
        stacks: list[list[str]] = []
        for step in range(steps):
            prefix = f"{self._prefix}/{step}/"
            nodes, operands = self._operands(step, steps, prefix, carried)
            yield from nodes
            names = constants | dict(zip((value.name for value in self.body.input), operands, strict=True))
            names = yield from copy_nodes(self.body, names, prefix)
            results = [names.get(value.name, value.name) for value in self._body_results()]
            carried = results[: len(carried)]
            stacks.append(results[len(carried) :])
        yield from self._finish(carried, list(zip(*stacks, strict=True)))

    def _body_results(self) -> Sequence[Any]:
        # The first says whether to go on.
        return list(self.body.output[1:])

    def _operands(self, step: int, _: int, prefix: str, carried: Sequence[str]) -> tuple[list[Any], list[str]]:
        """Return nodes for a step's operands, and all operands' names."""
        number, condition = f"{prefix}number", f"{prefix}condition"
        nodes = [_constant(number, np.array(step, np.int64)), _constant(condition, np.array(True))]
        return nodes, [number, condition, *carried]

    def _stack_axis(self, _: int) -> tuple[int, bool]:
        """Return a stacked result's axis, and True for reversed steps."""
        return 0, False

    def _finish(self, carried: Sequence[str], stacks: Sequence[Sequence[str]]) -> Iterator[Any]:
        for source, name in zip(carried, self._node.output, strict=False):
            if name:
                yield helper.make_node("Identity", [source], [name], name=self._node.name)
        for number, (parts, name) in enumerate(zip(stacks, self._node.output[len(carried) :], strict=False)):
            if name:
                axis, is_reversed = self._stack_axis(number)
                yield from self._stack(parts[::-1] if is_reversed else parts, axis, name)

    def _stack(self, parts: Sequence[str], axis: int, name: str) -> Iterator[Any]:
        axes = f"{self._prefix}/{name}/axes"
        yield _constant(axes, np.array([axis], np.int64))
        slices = [f"{self._prefix}/{name}/{number}" for number in range(len(parts))]
        for part, result in zip(parts, slices, strict=True):
            if self._version < _FIRST_AXES:
                yield helper.make_node("Unsqueeze", [part], [result], axes=[axis])
            else:
                yield helper.make_node("Unsqueeze", [part, axes], [result])
        yield helper.make_node("Concat", slices, [name], name=self._node.name, axis=axis)


class _Scan(_Loop):
    """A ``Scan``: a loop over slices of tensors."""

    def _initial_values(self) -> list[str]:
        return list(self._node.input[: len(self._node.input) - self._attributes["num_scan_inputs"]])

    def count_steps(self, constants: Mapping[str, np.ndarray], types: Mapping[str, Any]) -> int | None:
        """Return the known extent of the sliced tensors, or None."""
        if not self._attributes["num_scan_inputs"]:
            return None
        name = self._node.input[len(self._carried)]
        shape = constants[name].shape if name in constants else static_shape(types.get(name))
        axis = self._option("scan_input_axes", 0)
        return shape[axis] if shape and -len(shape) <= axis < len(shape) else None

    def _body_results(self) -> Sequence[Any]:
        return list(self.body.output)

    def _operands(self, step: int, steps: int, prefix: str, carried: Sequence[str]) -> tuple[list[Any], list[str]]:
        nodes, slices = [], []
        for number, source in enumerate(self._node.input[len(self._carried) :]):
            index_name, result = f"{prefix}place{number}", f"{prefix}slice{number}"
            is_reversed = self._option("scan_input_directions", number)
            nodes.append(_constant(index_name, np.array(steps - 1 - step if is_reversed else step, np.int64)))
            axis = self._option("scan_input_axes", number)
            nodes.append(helper.make_node("Gather", [source, index_name], [result], axis=axis))
            slices.append(result)
        return nodes, [*carried, *slices]

    def _stack_axis(self, number: int) -> tuple[int, bool]:
        return self._option("scan_output_axes", number), bool(self._option("scan_output_directions", number))

    def _option(self, name: str, number: int) -> int:
        values = self._attributes.get(name, [])
        return int(values[number]) if number < len(values) else 0


def _constant(name: str, value: np.ndarray) -> Any:
    return helper.make_node("Constant", [], [name], value=numpy_helper.from_array(value, name))
