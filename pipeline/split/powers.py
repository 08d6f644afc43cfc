"""Powers of two: the scales of a quantised model are rounded up to them, and zero points go to the middle."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from tvm import relax

from pipeline.errors import ModelError
from pipeline.quantization.powers import even, odd, rounded_up
from pipeline.split.clean import clean
from pipeline.split.frontends.imported import Imported
from pipeline.split.lines import Line, array, calls, constant, function, kernels, module, operands
from pipeline.split.lines import replace as with_operands
from pipeline.split.naming import unique

_MIDDLE = {"int8": 0, "uint8": 128}
_REACH = 128
_LARGEST = 126
_MOVERS = ("nn.max_pool2d", "reshape", "permute_dims", "squeeze", "expand_dims")
"""What bytes remain bytes by, whatever their scale."""


def restricted(imported: Imported) -> Imported:
    """Return a model whose scales are powers of two, and what is constant with them means the same as before.

    Bytes that enter or leave the model keep their scale: they are quantised anew inside.

    Parameters
    ----------
    imported : Imported
        With quantised tensors between operators on real numbers; is cleaned up.

    Raises
    ------
    ModelError
        If it quantises nothing.
    """
    imported = clean(imported)
    main = imported.module["main"]
    lines = [Line(each.var, str(each.var.name), each.value) for block in main.body.blocks for each in block.bindings]
    if not any(calls(line.value, "quantize", "dequantize") for line in lines):
        raise ModelError(f"model {imported.name!r} has no scales that could be rounded to powers of two")
    body = main.body.body
    results = list(body.fields) if isinstance(body, relax.Tuple) else [body]
    restriction = _Restriction(lines, results, {str(param.name) for param in main.params})
    made = [new for line in lines for new in restriction.lines(line)]
    inner = imported.inner | {line.name for line in made} - {line.name for line in lines}
    rewritten = module(function(list(main.params), made, results), kernels(imported.module))
    bound = [each.var for block in rewritten["main"].body.blocks for each in block.bindings]
    names = {var: str(var.name) for var in bound if str(var.name) not in inner}
    return replace(imported, module=rewritten, inner=frozenset(inner), names=names)


class _Restriction:
    """Knows which bytes may change their scale, and the new units of what was read so far."""

    def __init__(self, lines: Sequence[Line], results: Sequence[Any], inputs: set[str]) -> None:
        self._made = {line.var: line.value for line in lines}
        self._inner = _inner(lines, results)
        self._taken = {*inputs, *(line.name for line in lines)}
        self._units: dict[Any, Any] = {}

    def lines(self, line: Line) -> list[Line]:
        """Return what takes the place of a line."""
        if calls(line.value, "quantize"):
            return self._quantized(line)
        if calls(line.value, "dequantize") and array(line.value.args[0]) is None:
            return self._dequantized(line)
        if calls(line.value, "nn.conv2d", "matmul"):
            return self._product(line)
        if calls(line.value, "add"):
            self._add(line)
        return [line]

    def _quantized(self, line: Line) -> list[Line]:
        found = _restricted(line.value, str(line.value.attrs.out_dtype))
        if found is None:
            return [line]
        if line.var in self._inner:
            return [Line(line.var, line.name, relax.op.quantize(line.value.args[0], *found, **_like(line.value)))]
        through = self._through(line, line.value.args[0], found, str(line.value.attrs.out_dtype))
        value = with_operands(line.value, _instead(line.value.args[0], through[-1].var))
        return [*through, Line(line.var, line.name, value)]

    def _dequantized(self, line: Line) -> list[Line]:
        data, dtype = line.value.args[0], str(line.value.args[0].ty.dtype)
        found = _restricted(line.value, dtype)
        self._units[line.var] = array((found or line.value.args[1:])[0])
        if found is None:
            return [line]
        if data in self._inner:
            return [Line(line.var, line.name, relax.op.dequantize(data, *found, **_like(line.value)))]
        first = self._line(f"{line.name}:given", line.value, line.var.ty)
        *through, last = [first, *self._through(line, first.var, found, dtype)]
        return [*through, Line(line.var, line.name, last.value)]

    def _through(self, line: Line, value: Any, scales: Sequence[Any], dtype: str) -> list[Line]:
        """Return lines that make bytes of real numbers, and real numbers of these."""
        quantize = relax.op.quantize(value, *scales, axis=0, out_dtype=dtype)
        bytes_ = self._line(f"{line.name}:restricted", quantize, relax.TensorType(value.ty.shape, dtype))
        back = relax.op.dequantize(bytes_.var, *scales, axis=0, out_dtype="float32")
        return [bytes_, self._line(f"{line.name}:back", back, value.ty)]

    def _line(self, name: str, value: Any, ty: Any) -> Line:
        name = unique(name, self._taken)
        return Line(relax.Var(name, ty), name, value)

    def _product(self, line: Line) -> list[Line]:
        """Give constant weights scales for each channel of results."""
        data, weights = line.value.args
        unit, values = self._units.get(data), self._weights(weights)
        if unit is None or values is None or (axis := _channels(line.value, values)) is None:
            return [line]
        others = tuple(each for each in range(values.ndim) if each != axis)
        largest = np.abs(values).max(others)
        scale = rounded_up(np.where(largest > 0, largest, 1) / _LARGEST)
        found = relax.op.dequantize(
            constant(even(values, scale, axis)),
            constant(scale.astype(np.float32)),
            constant(np.zeros(len(scale), np.int8)),
            axis=axis,
            out_dtype="float32",
        )
        made = self._line(f"{line.name}:weights", found, relax.TensorType(values.shape, "float32"))
        value = with_operands(line.value, _instead(weights, made.var))
        self._units[line.var] = unit * scale
        return [made, Line(line.var, line.name, value)]

    def _weights(self, value: Any) -> np.ndarray | None:
        made: Any = self._made.get(value)
        if not calls(made, "dequantize"):
            found = array(value)
            return None if found is None else found.astype(np.float64)
        values, scale, zero = (array(each) for each in made.args)
        if values is None or scale is None or zero is None:
            return None
        shape = [1] * values.ndim
        shape[int(made.attrs.axis)] = -1
        scale, zero = (each.astype(np.float64).reshape(shape if each.size > 1 else ()) for each in (scale, zero))
        return (values.astype(np.float64) - zero) * scale

    def _add(self, line: Line) -> None:
        """Give a bias the unit of the sums that it is added to."""
        for product, bias in (line.value.args, line.value.args[::-1]):
            unit, values = self._units.get(product), array(bias)
            if unit is None or values is None or not calls(self._made[product], "nn.conv2d", "matmul"):
                continue
            if values.size == len(unit):
                new = odd(values.astype(np.float64).reshape(-1), unit) * unit
                made = constant(new.astype(np.float32).reshape(values.shape))
                line.value = with_operands(line.value, _instead(bias, made))


def _instead(old: Any, new: Any) -> Callable[[Any], Any]:
    return lambda each: new if each.same_as(old) else each


def _like(value: Any) -> dict[str, Any]:
    return {"axis": int(value.attrs.axis), "out_dtype": str(value.attrs.out_dtype)}


def _channels(product: Any, weights: np.ndarray) -> int | None:
    """Return the axis of weights along which the channels of results lie."""
    if calls(product, "matmul"):
        return 1 if weights.ndim == 2 else None
    return str(product.attrs.kernel_layout).index("O")


def _restricted(value: Any, dtype: str) -> tuple[Any, Any] | None:
    """Return the new scale and zero point of what is (de)quantised; None where they remain."""
    scale, zero = array(value.args[1]), array(value.args[2])
    if dtype not in _MIDDLE or scale is None or zero is None or scale.size != 1 or zero.size != 1:
        return None
    limits = np.iinfo(dtype)
    reach = max(int(zero.item()) - limits.min, limits.max - int(zero.item()), _REACH)
    new = rounded_up(np.float64(scale.item()) * reach / _REACH)
    if new == scale.item() and zero.item() == _MIDDLE[dtype]:
        return None
    return constant(np.array(new, np.float32)), constant(np.array(_MIDDLE[dtype], dtype))


def _inner(lines: Sequence[Line], results: Iterable[Any]) -> set[Any]:
    """Return the bytes that are quantised and dequantised inside the model, or only moved between."""
    made: Mapping[Any, Any] = {line.var: line.value for line in lines}
    found = {var for var, value in made.items() if calls(value, "quantize", *_MOVERS)} - set(results)
    changed = True
    while changed:
        before = len(found)
        for var, value in made.items():
            read = {each for each in operands(value) if each in made}
            if calls(value, *_MOVERS) and (var not in found or not read <= found):
                found -= {var, *read}
            elif not calls(value, "dequantize"):
                found -= read
        changed = len(found) < before
    return found
