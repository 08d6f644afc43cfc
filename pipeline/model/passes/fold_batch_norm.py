"""Batch-norm folding: chains of scales and shifts merge into weights."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from tvm import relax
from tvm.ir import Call

from pipeline.model.passes.bindings import Binding, array, calls, constant, replace, variables
from pipeline.model.passes.contract import Property, contract
from pipeline.model.passes.naming import unique


@dataclass
class Affine:
    """``base * scale + shift`` per channel (axis 1).

    `base` is a variable, or the call of a convolution.

    `scale` and `shift` are float64 arrays of one value per channel.
    """

    base: Any
    scale: np.ndarray
    shift: np.ndarray
    type: Any


# A signalling NaN among the weights lets NumPy warn of any conversion; a device is silent about it.
@np.errstate(all="ignore")
@contract(
    # A dead reader would keep a norm from vanishing in its convolution.
    requires=(Property.ORDERED, Property.PLAIN, Property.NAMED, Property.LIVE, Property.COMPUTED),
    ensures=(Property.ORDERED, Property.PLAIN, Property.NAMED),
)
def fold_affine(
    bindings: Sequence[Binding], outputs: Sequence[Any], reserved_names: Iterable[str]
) -> tuple[list[Binding], dict[str, str]]:
    """Merge chains of per-channel affine bindings, and their convolution.

    Returns the name of each removed binding's successor, which may be removed too.
    """
    # An output counts as a reader, so that what the caller gets is never absorbed.
    uses = Counter(variable for binding in bindings for variable in variables(binding.value))
    uses.update(output for output in outputs if isinstance(output, relax.Var))
    producers = {binding.var: binding for binding in bindings}
    successors: dict[str, str] = {}
    for binding in bindings:
        binding.value = _as_affine(binding.value, producers) or binding.value
        while isinstance(binding.value, Affine) and (producer := _absorbable(binding.value.base, producers, uses)):
            binding.value = _compose(producer, binding.value)
            successors[producer.name] = binding.name
            del producers[producer.var]
    kept_bindings = [binding for binding in bindings if binding.var in producers]
    used_names = {*reserved_names, *(binding.name for binding in kept_bindings)}
    return [lowered for binding in kept_bindings for lowered in _lower(binding, used_names)], successors


def _as_affine(value: Any, producers: Mapping[Any, Binding]) -> Affine | None:
    if isinstance(value, relax.TupleGetItem) and value.index == 0:
        binding = producers.get(value.tuple_value)
        return _batch_norm(binding.value) if binding and calls(binding.value, "nn.batch_norm") else None
    if calls(value, "multiply", "add", "subtract", "divide"):
        return _with_constant(value)
    return None


def _batch_norm(call: Any) -> Affine | None:
    # gamma, beta, mean and variance, in this order.
    arrays = [array(parameter) for parameter in call.args[1:5]]
    # In training, mean and variance come from the frame.
    if call.attrs.training or call.attrs.axis != 1 or any(parameter is None for parameter in arrays):
        return None
    gamma, beta, mean, variance = (np.asarray(parameter, np.float64) for parameter in arrays)
    scale = (gamma if call.attrs.scale else 1.0) / np.sqrt(variance + call.attrs.epsilon)
    shift = (beta if call.attrs.center else 0.0) - mean * scale
    return Affine(call.args[0], scale, shift, call.args[0].ty)


def _with_constant(call: Any) -> Affine | None:
    first, second = call.args
    kind = call.op.name.removeprefix("relax.")
    if array(second) is not None:
        base, constant = first, second
    elif array(first) is not None and kind in ("multiply", "add"):
        base, constant = second, first
    else:
        return None
    channels = _per_channel(constant, base.ty)
    if channels is None:
        return None
    neutral, zeros = np.ones_like(channels), np.zeros_like(channels)
    # A division by zero stays in the model, whose infinities it makes.
    scale = {"multiply": channels, "divide": 1 / channels if channels.all() else None}.get(kind, neutral)
    shift = {"add": channels, "subtract": -channels}.get(kind, zeros)
    return None if scale is None else Affine(base, scale, shift, base.ty)


def _per_channel(constant: Any, ty: Any) -> np.ndarray | None:
    """Return a constant as one value per channel, or None."""
    # Two dimensions and fewer have no channels beside a batch: what comes before a dense layer stays.
    values = np.asarray(array(constant))
    if not isinstance(ty, relax.TensorType) or ty.shape is None or ty.ndim < 3 or not str(ty.dtype).startswith("float"):
        return None
    shape = (1,) * (ty.ndim - values.ndim) + values.shape
    channels = int(ty.shape[1])
    if len(shape) != ty.ndim or shape not in {(1, extent) + (1,) * (ty.ndim - 2) for extent in (1, channels)}:
        return None
    return np.broadcast_to(values.reshape(-1).astype(np.float64), (channels,))


def _absorbable(base: Any, producers: Mapping[Any, Binding], uses: Mapping[Any, int]) -> Binding | None:
    """Return the convolution before an affine, if it has no other reader."""
    binding = producers.get(base) if isinstance(base, relax.Var) and uses[base] == 1 else None
    return binding if binding and (isinstance(binding.value, Affine) or _is_convolution(binding.value)) else None


def _is_convolution(value: Any) -> bool:
    return (
        # Output channels have to be the first axis of the weights, and the second one of the result.
        calls(value, "nn.conv1d", "nn.conv2d", "nn.conv3d")
        and str(value.attrs.kernel_layout).startswith("OI")
        and str(value.attrs.data_layout).startswith("NC")
        and array(value.args[1]) is not None
    )


def _compose(producer: Binding, affine: Affine) -> Affine:
    base = producer.value
    if isinstance(base, Affine):
        return Affine(base.base, base.scale * affine.scale, base.shift * affine.scale + affine.shift, affine.type)
    return Affine(base, affine.scale, affine.shift, affine.type)


def _lower(binding: Binding, used_names: set[str]) -> list[Binding]:
    """Return a binding as plain Relax, its variable made last."""
    affine = binding.value
    if not isinstance(affine, Affine):
        return [binding]
    steps = [("conv2d", _scale_weights(affine))] if isinstance(affine.base, Call) else []
    if not isinstance(affine.base, Call) and not np.all(affine.scale == 1):
        steps.append(("multiply", lambda base: relax.op.multiply(base, _constant(affine.scale, affine.type))))
    if np.any(affine.shift) or not steps:
        steps.append(("add", lambda base: relax.op.add(base, _constant(affine.shift, affine.type))))
    bindings: list[Binding] = []
    base = affine.base
    for kind, step in steps:
        last = len(bindings) == len(steps) - 1
        name = binding.name if last else unique(f"{binding.name}:{kind}", used_names)
        var = binding.var if last else relax.Var(name, affine.type)
        bindings.append(Binding(var, name, step(base)))
        base = var
    return bindings


def _scale_weights(affine: Affine) -> Any:
    def step(call: Any) -> Any:
        weights = np.asarray(array(call.args[1]))
        # Float64 until the product is rounded: one rounding instead of one for each norm in a chain.
        scale = affine.scale.reshape((-1,) + (1,) * (weights.ndim - 1))
        scaled_weights = weights if np.all(scale == 1) else (weights * scale).astype(weights.dtype)
        return replace(
            call,
            lambda operand: constant(scaled_weights) if operand is call.args[1] or operand == call.args[1] else operand,
        )

    return step


def _constant(channels: np.ndarray, ty: Any) -> Any:
    return constant(channels.reshape((1, -1) + (1,) * (ty.ndim - 2)).astype(str(ty.dtype)))
