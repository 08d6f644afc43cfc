"""Quantised models: integer weights stay integers, and between groups travels what is quantised."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from tvm import relax
from tvm.ir import Call

from pipeline.split.lines import Line, array, calls, constant, live, operands, replace
from pipeline.split.naming import unique

_HALF = 128
"""What makes an unsigned byte of a signed one."""

# They take values to other places, so that it makes no difference whether those are quantised.
_MOVERS = {"reshape", "permute_dims", "squeeze", "expand_dims", "nn.max_pool2d", "concat", "strided_slice"}
_INTEGER = {"nn.conv2d", "matmul"}


def dequantized(values: np.ndarray, scale: np.ndarray, zero: np.ndarray, axis: int) -> np.ndarray:
    """Return the numbers that quantised `values` stand for, with a scale for all or for each place along `axis`."""
    shape = [1] * values.ndim
    shape[axis] = -1
    scale, zero = (each.reshape(shape if each.size > 1 else ()) for each in (scale, zero))
    # Others than integers are quantised as well, to eight bits of floating point.
    whole = np.int32 if values.dtype.kind in "iu" else np.float32
    made: np.ndarray = (values.astype(whole) - zero.astype(whole)).astype(np.float32) * scale
    return made


def integer_weights(bindings: Iterable[Any]) -> set[Any]:
    """Return the variables between integer weights and the operators that can take them as integers."""
    made = {each.var: each.value for each in bindings}
    users: dict[Any, list[tuple[Any, int]]] = {}
    for value in made.values():
        for position, each in enumerate(value.args if isinstance(value, Call) else ()):
            users.setdefault(each, []).append((value, position))
    return {
        var
        for var, value in made.items()
        if calls(value, "dequantize", "permute_dims")
        and _are_weights(value, made)
        and all(_takes_integers(user, position, made, users) for user, position in users.get(var, ()))
    }


def _are_weights(value: Any, made: Mapping[Any, Any]) -> bool:
    if calls(value, "permute_dims"):
        value = made.get(value.args[0]) if isinstance(value.args[0], relax.Var) else None
    if not calls(value, "dequantize") or str(value.attrs.out_dtype) != "float32":
        return False
    values, *others = (array(each) for each in value.args)
    return values is not None and str(values.dtype) in ("int8", "uint8") and all(each is not None for each in others)


def _takes_integers(
    user: Any, position: int, made: Mapping[Any, Any], users: Mapping[Any, Sequence[tuple[Any, int]]]
) -> bool:
    if calls(user, "permute_dims"):
        var = next((each for each, value in made.items() if value is user), None)
        return all(not calls(by, "permute_dims") and _takes_integers(by, at, made, users) for by, at in users[var])
    data = made.get(user.args[0]) if position == 1 and calls(user, *_INTEGER) else None
    return data is not None and calls(data, "dequantize") and isinstance(data.args[0], relax.Var)


def arrange(
    lines: Sequence[Line], outputs: Sequence[Any], reserved: Iterable[str]
) -> tuple[list[Line], dict[str, str]]:
    """Let each reader dequantise for itself, what only moves values move bytes, and activations be unsigned.

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
        From the name of each line that has gone to that of the line in its place.
    """
    if not any(calls(line.value, "dequantize") for line in lines):
        return list(lines), {}
    made = {line.var: line for line in lines}
    heirs: dict[str, str] = {}
    for line in lines:
        _turn_weights(line, made)
    _unsign(lines, outputs)
    for line in lines:
        heirs |= _move(line, made, outputs)
    sunk = _sink(live(lines, outputs), made, {*reserved, *(line.name for line in lines)}, heirs)
    left = live(sunk, outputs)
    names = {line.name for line in left}
    return left, {name: heir for name, heir in heirs.items() if name not in names}


def _readers(lines: Iterable[Line]) -> dict[Any, list[Line]]:
    found: dict[Any, list[Line]] = {}
    for line in lines:
        for each in dict.fromkeys(each for each in operands(line.value) if isinstance(each, relax.Var)):
            found.setdefault(each, []).append(line)
    return found


def _turn_weights(line: Line, made: Mapping[Any, Line]) -> None:
    """Transpose integer weights instead of the numbers they stand for."""
    before = made.get(line.value.args[0]) if calls(line.value, "permute_dims") else None
    if before is None or not calls(before.value, "dequantize") or (values := array(before.value.args[0])) is None:
        return
    axes = line.value.attrs.axes
    order = [int(axis) for axis in axes] if axes is not None else list(range(values.ndim))[::-1]
    _, scale, zero = before.value.args
    axis = order.index(int(before.value.attrs.axis) % values.ndim)
    line.value = relax.op.dequantize(constant(values.transpose(order)), scale, zero, axis=axis, out_dtype="float32")


def _unsign(lines: Sequence[Line], outputs: Sequence[Any]) -> None:
    """Shift signed activations by half the range: processors multiply unsigned with signed bytes."""
    readers = _readers(lines)
    for line in lines:
        value = line.value
        if not calls(value, "quantize") or str(value.attrs.out_dtype) != "int8" or line.var in outputs:
            continue
        found = readers.get(line.var, [])
        if not all(calls(each.value, "dequantize") and each.value.args[0] == line.var for each in found):
            continue
        if any(array(each.value.args[2]) is None for each in (line, *found)):
            continue
        line.value = relax.op.quantize(
            *value.args[:2], _shifted(value.args[2]), axis=value.attrs.axis, out_dtype="uint8"
        )
        for each in found:
            _, scale, zero = each.value.args
            attrs = each.value.attrs
            each.value = relax.op.dequantize(
                line.var, scale, _shifted(zero), axis=attrs.axis, out_dtype=str(attrs.out_dtype)
            )


def _shifted(zero: Any) -> Any:
    return constant((np.asarray(array(zero), np.int32) + _HALF).astype(np.uint8))


def _move(line: Line, made: Mapping[Any, Line], outputs: Sequence[Any]) -> dict[str, str]:
    """Move quantised values where they are dequantised, moved, and quantised in the same way again."""
    if not calls(line.value, "quantize") or line.var in outputs:
        return {}
    mover = made.get(line.value.args[0])
    if mover is None or not calls(mover.value, *_MOVERS) or mover.var in outputs:
        return {}
    source = mover.value.args[0]
    sources = list(source.fields) if isinstance(source, relax.Tuple) else [source]
    before = [made.get(each) for each in sources]
    if not all(each is not None and _same(each.value, line.value) for each in before):
        return {}
    known = {each.var: each.value.args[0] for each in before if each is not None}
    line.value = replace(mover.value, lambda each: known.get(each, each) if isinstance(each, relax.Var) else each)
    return {mover.name: line.name}


def _same(dequantize: Any, quantize: Any) -> bool:
    """Whether quantising gives the bytes that were dequantised."""
    if not calls(dequantize, "dequantize") or not isinstance(dequantize.args[0], relax.Var):
        return False
    pairs = [(array(a), array(b)) for a, b in zip(dequantize.args[1:], quantize.args[1:], strict=True)]
    return all(a is not None and b is not None and a.size == 1 and a.dtype == b.dtype and a == b for a, b in pairs)


def _sink(lines: Sequence[Line], made: Mapping[Any, Line], taken: set[str], heirs: dict[str, str]) -> list[Line]:
    """Give each reader a line of its own that dequantises what it reads, right in front of it."""
    placed: list[Line] = []
    for line in lines:
        own: dict[Any, Line] = {}
        for each in operands(line.value):
            source = made.get(each) if isinstance(each, relax.Var) else None
            if source is None or not calls(source.value, "dequantize") or each in own:
                continue
            data = source.value.args[0]
            constant_weights = not isinstance(data, relax.Var)
            name = unique(f"{line.name}:{'weights' if constant_weights else 'dequantize'}", taken)
            own[each] = Line(relax.Var(name, each.ty), name, source.value)
            heirs[source.name] = line.name if constant_weights else made[data].name if data in made else str(data.name)
        if own:
            line.value = replace(line.value, _renamed({var: copy.var for var, copy in own.items()}))
        placed += [*own.values(), line]
    return placed


def _renamed(names: Mapping[Any, Any]) -> Callable[[Any], Any]:
    return lambda each: names.get(each, each) if isinstance(each, relax.Var) else each
