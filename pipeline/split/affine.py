"""Batch-norm folding: chains of per-channel scales and shifts merge, and vanish in a convolution's weights."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from tvm import relax
from tvm.ir import Call

from pipeline.split.lines import Line, array, calls, constant, operands, replace
from pipeline.split.naming import unique


@dataclass
class Affine:
    """``base * scale + shift`` per channel (axis 1); `base` is a variable, or the call of a convolution.

    `scale` and `shift` are float64 arrays of one value per channel.
    """

    base: Any
    scale: np.ndarray
    shift: np.ndarray
    type: Any


def fold_affine(
    lines: Sequence[Line], outputs: Sequence[Any], reserved: Iterable[str]
) -> tuple[list[Line], dict[str, str]]:
    """Merge each chain of per-channel affine lines into its last one, and into the convolution before it.

    Parameters
    ----------
    lines : sequence of Line
    outputs : sequence of relax.Expr
        What leaves the function.
    reserved : iterable of str
        Names that no new line may have.

    Returns
    -------
    lines : list of Line
    merged : dict of str to str
        From the name of each line that has gone to the name of its successor, which may have gone too.
    """
    uses = Counter(each for line in lines for each in operands(line.value) if isinstance(each, relax.Var))
    uses.update(output for output in outputs if isinstance(output, relax.Var))
    made = {line.var: line for line in lines}
    merged: dict[str, str] = {}
    for line in lines:
        line.value = _as_affine(line.value, made) or line.value
        while isinstance(line.value, Affine) and (before := _absorbable(line.value.base, made, uses)):
            line.value = _compose(before, line.value)
            merged[before.name] = line.name
            del made[before.var]
    left = [line for line in lines if line.var in made]
    taken = {*reserved, *(line.name for line in left)}
    return [new for line in left for new in _lowered(line, taken)], merged


def _as_affine(value: Any, made: Mapping[Any, Line]) -> Affine | None:
    if isinstance(value, relax.TupleGetItem) and value.index == 0:
        line = made.get(value.tuple_value)
        return _batch_norm(line.value) if line and calls(line.value, "nn.batch_norm") else None
    if calls(value, "multiply", "add", "subtract", "divide"):
        return _with_constant(value)
    return None


def _batch_norm(call: Any) -> Affine | None:
    arrays = [array(each) for each in call.args[1:5]]
    if call.attrs.training or call.attrs.axis != 1 or any(each is None for each in arrays):
        return None
    gamma, beta, mean, variance = (np.asarray(each, np.float64) for each in arrays)
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
    one, zero = np.ones_like(channels), np.zeros_like(channels)
    scale = {"multiply": channels, "divide": 1 / channels if channels.all() else None}.get(kind, one)
    shift = {"add": channels, "subtract": -channels}.get(kind, zero)
    return None if scale is None else Affine(base, scale, shift, base.ty)


def _per_channel(constant: Any, ty: Any) -> np.ndarray | None:
    """Return the constant as one value per channel of a tensor of type `ty`, if it is no more than that."""
    values = np.asarray(array(constant))
    if not isinstance(ty, relax.TensorType) or ty.shape is None or ty.ndim < 3 or not str(ty.dtype).startswith("float"):
        return None
    shape = (1,) * (ty.ndim - values.ndim) + values.shape
    channels = int(ty.shape[1])
    if len(shape) != ty.ndim or shape not in {(1, each) + (1,) * (ty.ndim - 2) for each in (1, channels)}:
        return None
    return np.broadcast_to(values.reshape(-1).astype(np.float64), (channels,))


def _absorbable(base: Any, made: Mapping[Any, Line], uses: Mapping[Any, int]) -> Line | None:
    """Return the line that makes `base`, if nobody else reads it and it can take a scale and a shift."""
    line = made.get(base) if isinstance(base, relax.Var) and uses[base] == 1 else None
    return line if line and (isinstance(line.value, Affine) or _is_convolution(line.value)) else None


def _is_convolution(value: Any) -> bool:
    return (
        calls(value, "nn.conv1d", "nn.conv2d", "nn.conv3d")
        and str(value.attrs.kernel_layout).startswith("OI")
        and str(value.attrs.data_layout).startswith("NC")
        and array(value.args[1]) is not None
    )


def _compose(before: Line, after: Affine) -> Affine:
    first = before.value
    if isinstance(first, Affine):
        return Affine(first.base, first.scale * after.scale, first.shift * after.scale + after.shift, after.type)
    return Affine(first, after.scale, after.shift, after.type)


def _lowered(line: Line, taken: set[str]) -> list[Line]:
    """Return a line as plain Relax; the last one of the result makes the line's variable."""
    affine = line.value
    if not isinstance(affine, Affine):
        return [line]
    steps = [("conv2d", _scaled(affine))] if isinstance(affine.base, Call) else []
    if not isinstance(affine.base, Call) and not np.all(affine.scale == 1):
        steps.append(("multiply", lambda base: relax.op.multiply(base, _constant(affine.scale, affine.type))))
    if np.any(affine.shift) or not steps:
        steps.append(("add", lambda base: relax.op.add(base, _constant(affine.shift, affine.type))))
    lines: list[Line] = []
    base = affine.base
    for kind, step in steps:
        last = len(lines) == len(steps) - 1
        name = line.name if last else unique(f"{line.name}:{kind}", taken)
        var = line.var if last else relax.Var(name, affine.type)
        lines.append(Line(var, name, step(base)))
        base = var
    return lines


def _scaled(affine: Affine) -> Any:
    def step(call: Any) -> Any:
        weights = np.asarray(array(call.args[1]))
        scale = affine.scale.reshape((-1,) + (1,) * (weights.ndim - 1))
        changed = weights if np.all(scale == 1) else (weights * scale).astype(weights.dtype)
        return replace(call, lambda each: constant(changed) if each is call.args[1] or each == call.args[1] else each)

    return step


def _constant(channels: np.ndarray, ty: Any) -> Any:
    return constant(channels.reshape((1, -1) + (1,) * (ty.ndim - 2)).astype(str(ty.dtype)))
