"""Signature of an exported program: inputs, constants, forbidden effects."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import torch
import tvm
from torch.export.graph_signature import InputKind, OutputKind
from tvm import relax

from pipeline.errors import ModelError, near

_STATE = {
    OutputKind.BUFFER_MUTATION: "keeps state between calls in its buffer {!r}",
    OutputKind.PARAMETER_MUTATION: "changes its parameter {!r}",
    OutputKind.USER_INPUT_MUTATION: "changes its input {!r}",
}
_DTYPES = {"bool", "uint8", *(f"{kind}{bits}" for kind in ("int", "float") for bits in (8, 16, 32, 64))} - {"float8"}
_CONSTANTS = (InputKind.PARAMETER, InputKind.BUFFER, InputKind.CONSTANT_TENSOR)


def check(program: Any, name: str) -> None:
    """Refuse a program with effects beyond its outputs.

    Raises `ModelError` if it changes its buffers, parameters or inputs, was exported in training mode, or returns no
    tensor.
    """
    mutations = [
        _STATE[kind].format(spec.target)
        for spec in program.graph_signature.output_specs
        if (kind := getattr(OutputKind, spec.kind.name)) in _STATE
    ]
    # Batch norms in training mode count batches and update their running mean and variance.
    if any("num_batches_tracked" in mutation or "running_" in mutation for mutation in mutations):
        raise ModelError(f"{name!r} was exported in training mode; call module.eval() before torch.export.export")
    if mutations:
        raise ModelError(
            f"{name!r} {mutations[0]}, which a pipeline cannot; make it an input and an output of the model"
        )
    for spec in program.graph_signature.output_specs:
        # A number or text that the module returned is a constant of the program.
        if getattr(spec.arg, "value", None) is not None:
            raise ModelError(f"{name!r} returns {spec.arg.value!r}, which is no tensor")


def inputs(program: Any, name: str, shapes: Mapping[str, Sequence[int]]) -> tuple[dict[str, Any], dict[Any, int]]:
    """Return a variable per input tensor, and each symbol's extent.

    Raises `ModelError` if an extent is open, or `shapes` does not fit.
    """
    tensors = {node.name: node.meta["val"] for node in user_inputs(program) if _is_tensor(node)}
    extents: dict[str, list[int]] = {}
    for input_name, shape in shapes.items():
        if input_name not in tensors:
            raise ModelError(
                f"{name!r} has no input {input_name!r}; it has {', '.join(tensors)}{near(input_name, tensors)}"
            )
        extents[input_name] = _check_shape(input_name, list(tensors[input_name].shape), list(shape))
    symbols = _symbols(tensors, extents)
    _check_ranges(program, symbols)
    variables = {
        input_name: relax.Var(
            input_name, relax.TensorType(_fix_extents(input_name, value.shape, symbols), dtype(value.dtype, input_name))
        )
        for input_name, value in tensors.items()
    }
    return variables, symbols


def is_number(node: Any) -> bool:
    """Check for a node on extents instead of tensors."""
    return isinstance(node.meta.get("val"), torch.SymInt | torch.SymFloat | torch.SymBool | int | float)


def number(value: Any, symbols: Mapping[Any, int]) -> Any:
    """Return an extent's number, unless values of tensors decide."""
    fixed_value = fixed_number(value, symbols)
    if fixed_value is None:
        raise ModelError(f"the program has an extent {value}, which depends on values; not supported")
    return fixed_value


def fixed_number(value: Any, symbols: Mapping[Any, int]) -> Any:
    """Return an extent's number; None where values of tensors decide."""
    if not isinstance(value, torch.SymInt | torch.SymFloat | torch.SymBool):
        return value
    # What remains free depends on the values of tensors, as the number of elements of nonzero does.
    fixed = value.node.expr.subs(symbols)
    if fixed.free_symbols:
        return None
    return bool(fixed) if isinstance(value, torch.SymBool) else int(fixed) if fixed.is_Integer else float(fixed)


def values(program: Any) -> dict[str, Any]:
    """Return the non-tensor inputs, fixed by the export."""
    specs = {spec.arg.name: spec.arg for spec in program.graph_signature.input_specs}
    return {
        node.name: getattr(specs.get(node.name), "value", None) for node in user_inputs(program) if not _is_tensor(node)
    }


def constants(program: Any) -> dict[Any, Any]:
    """Return the parameters, buffers and constants by their placeholders."""
    nodes = {node.name: node for node in program.graph.nodes if node.op == "placeholder"}
    return {
        nodes[spec.arg.name]: _tensor(program, spec.target)
        for spec in program.graph_signature.input_specs
        if spec.kind in _CONSTANTS
    }


def _tensor(program: Any, target: str) -> Any:
    # Parameters and buffers are in the state; tensors that the module made itself are constants.
    value = program.state_dict.get(target, program.constants.get(target))
    if not isinstance(value, torch.Tensor):
        raise ModelError(f"the program holds {target!r}, which is no tensor")
    # oneDNN and sparse layouts have no strides, which NumPy needs.
    return (value.detach().to_dense() if value.layout != torch.strided else value.detach()).cpu()


def constant(value: Any, name: str) -> Any:
    """Return a tensor as a constant of Relax.

    The tensor is copied: the program's own may not be aligned as kernels need it, and may change.
    """
    kind = dtype(value.dtype, name)
    return relax.const(tvm.runtime.tensor(np.array(value.resolve_neg().contiguous().numpy(), order="C")), kind)


def is_dtype(kind: Any) -> bool:
    """Check a PyTorch dtype for kernels and files."""
    return str(kind).removeprefix("torch.") in _DTYPES


def dtype(kind: Any, tensor: str) -> str:
    """Return NumPy's name of a dtype of PyTorch; `ModelError` if kernels and files do not know it."""
    name = str(kind).removeprefix("torch.")
    if not is_dtype(kind):
        raise ModelError(f"tensor {tensor!r} is of dtype {name}, which is not supported; convert the model to float32")
    return name


def user_inputs(program: Any) -> Iterator[Any]:
    """Yield the placeholders of the caller's inputs, tensors or not."""
    names = {spec.arg.name for spec in program.graph_signature.input_specs if spec.kind == InputKind.USER_INPUT}
    return (node for node in program.graph.nodes if node.op == "placeholder" and node.name in names)


def _is_tensor(node: Any) -> bool:
    return isinstance(node.meta.get("val"), torch.Tensor)


def _check_shape(name: str, declared_shape: Sequence[Any], shape: Sequence[int]) -> list[int]:
    if len(declared_shape) != len(shape):
        raise ModelError(
            f"input {name!r} has {len(declared_shape)} dimensions, but the given shape {shape} has {len(shape)}"
        )
    for extent, expected_extent in zip(declared_shape, shape, strict=True):
        if isinstance(extent, int) and extent != expected_extent:
            raise ModelError(
                f"input {name!r} has a fixed extent {extent} where the shape {list(shape)} has {expected_extent}"
            )
    return list(shape)


def _symbols(tensors: Mapping[str, Any], extents: Mapping[str, Sequence[int]]) -> dict[Any, int]:
    """Return the value of each symbol in the inputs' shapes."""
    symbols: dict[Any, int] = {}
    for name, shape in extents.items():
        for symbolic, extent in zip(tensors[name].shape, shape, strict=True):
            # Extents that are computed of others, such as 2 * n, follow from those.
            if not isinstance(symbolic, torch.SymInt) or not symbolic.node.expr.is_Symbol:
                continue
            if (earlier_extent := symbols.setdefault(symbolic.node.expr, extent)) != extent:
                raise ModelError(
                    f"input {name!r} has {extent} where another input has {earlier_extent} for the same extent"
                )
    return symbols


def _check_ranges(program: Any, symbols: Mapping[Any, int]) -> None:
    for symbol, bounds in program.range_constraints.items():
        # A symbol without an extent counts as its lower bound, which is never outside.
        extent = symbols.get(symbol, bounds.lower)
        if not bounds.lower <= extent <= bounds.upper:
            raise ModelError(
                f"an input has the extent {extent}, but the program was exported for {bounds.lower} to {bounds.upper}"
            )


def _fix_extents(name: str, shape: Sequence[Any], symbols: Mapping[Any, int]) -> list[int]:
    extents = [extent.node.expr.subs(symbols) if isinstance(extent, torch.SymInt) else extent for extent in shape]
    if not all(isinstance(extent, int) or extent.is_Integer for extent in extents):
        example = ",".join(str(extent) if isinstance(extent, int) or extent.is_Integer else "1" for extent in extents)
        raise ModelError(
            f"input {name!r} has the shape {[str(extent) for extent in shape]}; give it fixed extents, such as "
            f"--shape {name}={example}"
        )
    return [int(extent) for extent in extents]
