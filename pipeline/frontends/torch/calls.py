"""Nodes of an exported program -> calls for `pipeline.executor.torch_program`."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from pipeline.core.packed_model import FAMILIES
from pipeline.errors import ModelError

Numbers = Callable[[Any], Any]
"""Values of nodes on extents; None where tensors' values decide."""

# Promises on extents, which the values keep or not; the rest runs all the same.
_PROMISES = {"sym_constrain_range_for_size.default", "sym_constrain_range.default", "_assert_scalar.default"}
_PROMISES |= {"_assert_async.msg", "_assert_async.default", "_assert_tensor_metadata.default"}

_CONSTANTS = {torch.dtype: "dtype", torch.layout: "layout", torch.memory_format: "memory_format"}


def write(nodes: Sequence[Any], inputs: Sequence[Any], outputs: Sequence[Any], number: Numbers) -> bytes:
    """Return a packed model of some nodes.

    Raises `ModelError` if a node takes what is no plain data. The nodes are in the order of computation; `inputs` and
    `outputs` are nodes of the operands and of the results.
    """
    return json.dumps(_program(nodes, inputs, outputs, number)).encode()


def _program(nodes: Sequence[Any], inputs: Sequence[Any], outputs: Sequence[Any], number: Numbers) -> dict[str, Any]:
    values = {node: index for index, node in enumerate([*inputs, *(node for node in nodes if node not in set(inputs))])}
    return {
        "inputs": [values[node] for node in inputs],
        "calls": [
            [
                operator_name(node),
                [_argument(argument, values, number) for argument in node.args],
                {name: _argument(argument, values, number) for name, argument in node.kwargs.items()},
                values[node],
            ]
            for node in nodes
            if node.op == "call_function" and node not in set(inputs) and not is_promise(node)
        ],
        "outputs": [values[node] for node in outputs],
    }


def is_promise(node: Any) -> bool:
    """Check for a node that only asserts something of values."""
    return node.op == "call_function" and node.target.__name__ in _PROMISES


def operator_name(node: Any) -> str:
    """Return an operator's name, to be found again."""
    target = node.target
    if isinstance(target, torch._ops.OpOverload):  # noqa: SLF001 - there is no public class
        if target.namespace not in FAMILIES:
            raise ModelError(f"{node.name!r} calls {target}, an operator of another library, which is not supported")
        # PyTorch does not check them, and reads and writes wherever a frame says.
        if target.__name__.startswith("segment_reduce") and node.kwargs.get("offsets") is not None:
            raise ModelError(f"{node.name!r} calls {target} with offsets, which is not supported; give it lengths")
        return f"{target.namespace}.{target._schema.name.partition('::')[2]}.{target._overloadname}"  # noqa: SLF001
    if isinstance(target, torch._ops.HigherOrderOperator):  # noqa: SLF001
        return f"higher_order.{target.__name__}"
    module = getattr(target, "__module__", "")
    return f"{'torch' if module.startswith('torch') else module}.{target.__name__}"


def _argument(value: Any, values: Mapping[Any, int], number: Numbers) -> Any:
    """Return an argument as plain data."""
    if isinstance(value, torch.fx.Node):
        return _node_argument(value, values, number)
    if isinstance(value, list | tuple):
        return [_argument(item, values, number) for item in value]
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, complex):
        return {"complex": [value.real, value.imag]}
    if isinstance(value, torch.device):
        return {"device": "cpu"}
    for kind, name in _CONSTANTS.items():
        if isinstance(value, kind):
            return {name: str(value).removeprefix("torch.")}
    raise ModelError(f"the program hands a {type(value).__name__} to an operator, which is not supported")


def _node_argument(node: Any, values: Mapping[Any, int], number: Numbers) -> Any:
    if node.op == "get_attr":
        return {"program": _branch(getattr(node.graph.owning_module, node.target), number)}
    if (fixed_value := number(node)) is not None:
        return fixed_value
    return {"value": values[node]}


def _branch(module: Any, number: Numbers) -> dict[str, Any]:
    """Return a branch or a body as plain data."""
    if not isinstance(module, torch.fx.GraphModule):
        raise ModelError(f"the program hands a {type(module).__name__} to an operator, which is not supported")
    nodes = list(module.graph.nodes)
    (output,) = (node for node in nodes if node.op == "output")
    results = output.args[0] if isinstance(output.args[0], list | tuple) else [output.args[0]]
    inputs = [node for node in nodes if node.op == "placeholder"]
    return _program([node for node in nodes if node.op == "call_function"], inputs, results, number)
