"""Step counts of loops, by evaluating their conditions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper
from onnx.reference import ReferenceEvaluator

from .tensors import is_external

# Their results are no larger than what they read, so that no damaged file asks for much.
_COUNTING = {
    "Add", "And", "Cast", "Constant", "Div", "Equal", "Greater", "GreaterOrEqual", "Identity", "Less", "LessOrEqual",
    "Max", "Min", "Mod", "Mul", "Neg", "Not", "Or", "Squeeze", "Sub", "Unsqueeze", "Where", "Xor",
}  # fmt: skip


def count_trips(node: Any, constants: Mapping[str, np.ndarray], most_trips: int, version: int) -> int | None:
    """Return a ``Loop``'s constant step count up to `most_trips`, or None."""
    if any(name and name not in constants for name in node.input[:2]):
        return None
    limit, goes_on = (constants[name].item() if name else None for name in node.input[:2])
    limit = most_trips + 1 if limit is None else min(limit, most_trips + 1)
    try:
        control = _Control(node, constants, version)
        steps = 0
        while goes_on is not False and steps < limit:
            goes_on = control.step(steps)
            steps += 1
    except Exception:  # noqa: BLE001 - the evaluator raises what its operators do; the runtime may know better
        return None
    return steps if steps <= most_trips else None


class _Control:
    """Nodes behind a loop's condition, with their carried values.

    Raises `ValueError` if a frame decides, or what might be large.
    """

    def __init__(self, node: Any, constants: Mapping[str, np.ndarray], version: int) -> None:
        body = next(attribute.g for attribute in node.attribute if attribute.name == "body")
        self._number, condition, *states = [value.name for value in body.input]
        self._next_states = dict(zip(states, (value.name for value in body.output[1:]), strict=False))
        nodes, leaves = _find_deciding(body, self._next_states)
        initial_states = {name: constants.get(source) for name, source in zip(states, node.input[2:], strict=True)}
        # No step is taken after one that says no.
        number, goes_on = np.array(0, np.int64), np.array(True)
        values = {**constants, **_initializers(body), **initial_states, self._number: number, condition: goes_on}
        self._values = {name: values.get(name) for name in leaves}
        if any(value is None for value in self._values.values()) or not _COUNTING.issuperset(
            inner_node.op_type for inner_node in nodes
        ):
            raise ValueError("whether it goes on is not known")
        self._next_states = {name: result for name, result in self._next_states.items() if name in leaves}
        self._results = list(dict.fromkeys([body.output[0].name, *self._next_states.values()]))
        self._evaluator = _evaluator(nodes, leaves, self._results, version)

    def step(self, number: int) -> bool:
        """Take a step; True if another one follows."""
        if self._number in self._values:
            self._values[self._number] = np.array(number, np.int64)
        results = dict(zip(self._results, self._evaluator.run(None, self._values), strict=True))
        self._values |= {name: results[result] for name, result in self._next_states.items()}
        return bool(results[self._results[0]])


def _initializers(graph: Any) -> dict[str, np.ndarray]:
    return {tensor.name: numpy_helper.to_array(tensor) for tensor in graph.initializer if not is_external(tensor)}


def _find_deciding(body: Any, next_states: Mapping[str, str]) -> tuple[list[Any], set[str]]:
    """Return the nodes behind a condition in order, and their inputs."""
    makers = {name: number for number, node in enumerate(body.node) for name in node.output}
    numbers: set[int] = set()
    leaves: set[str] = set()
    pending = [body.output[0].name]
    while pending:
        name = pending.pop()
        if name in makers and makers[name] not in numbers:
            numbers.add(makers[name])
            pending += [operand for operand in body.node[makers[name]].input if operand]
        elif name not in makers and name not in leaves:
            leaves.add(name)
            pending += [next_states[name]] if name in next_states else []
    return [body.node[number] for number in sorted(numbers)], leaves


def _evaluator(nodes: list[Any], inputs: set[str], outputs: list[str], version: int) -> ReferenceEvaluator:
    infos = [[helper.make_value_info(name, onnx.TypeProto()) for name in names] for names in (inputs, outputs)]
    model = helper.make_model(
        helper.make_graph(nodes, "control", *infos), opset_imports=[helper.make_opsetid("", version)]
    )
    return ReferenceEvaluator(model)
