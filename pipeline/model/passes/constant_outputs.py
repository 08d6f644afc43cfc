"""Constant outputs, tied to an input: stages compute outputs from inputs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tvm import relax

from pipeline.model.passes.bindings import Binding, array
from pipeline.model.passes.contract import Property, contract


@contract(ensures=(Property.COMPUTED,))
def with_inputs(outputs: Mapping[str, Any], params: Sequence[Any]) -> tuple[dict[str, Any], list[Binding]]:
    """Return outputs without constants, and the bindings for this.

    `params`: the model's inputs; without any, constants stay what they are.
    """
    variables: dict[str, Any] = {}
    bindings: list[Binding] = []
    for name, output in outputs.items():
        if params and array(output) is not None:
            steps = _bindings(output, params[0], name)
            bindings += steps
            variables[name] = steps[-1].var
        else:
            variables[name] = output
    return variables, bindings


def _bindings(value: Any, param: Any, name: str) -> list[Binding]:
    """Return the bindings that choose between a constant and itself. An element of an input decides."""
    bindings: list[Binding] = []
    builder = relax.BlockBuilder()

    def emit(call: Any, step: str) -> Any:
        call = builder.normalize(call)
        bindings.append(Binding(relax.Var(step, call.ty), step, call))
        return bindings[-1].var

    element = param
    if rank := len(param.ty.shape):
        element = emit(relax.op.strided_slice(param, list(range(rank)), [0] * rank, [1] * rank), f"{name}_element")
    condition = emit(relax.op.equal(element, element), f"{name}_is_same")
    shape = [int(extent) for extent in value.ty.shape]
    condition = emit(relax.op.reshape(condition, [1] * len(shape)), f"{name}_condition")
    emit(relax.op.where(condition, value, value), name)
    return bindings
