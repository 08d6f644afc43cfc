"""Reader: follows the operators of a stage, and collects the steps that VTA runs for them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from math import prod
from typing import Any

import numpy as np

from boards.vta.compiler.layers import MaxPool
from boards.vta.compiler.network import Step
from boards.vta.lowering import constants, products, rounding
from boards.vta.lowering.values import Copy, Pair, Sums, Tensor, Unsupported, sums
from pipeline.errors import BuildError

_HALF = 128


class Reader:
    """Knows what each variable stands for, so far.

    Parameters
    ----------
    inputs : sequence of relax.Var
        What the stage reads.
    uses : mapping of relax.Var to int
        How often each variable is read.

    Attributes
    ----------
    steps : list of Step
    tensors : list of Tensor
        The stage's inputs.
    """

    def __init__(self, inputs: Sequence[Any], uses: Mapping[Any, int]) -> None:
        self._uses = uses
        self.tensors = [_input(number, var) for number, var in enumerate(inputs)]
        self.steps: list[Step] = []
        self._known: dict[Any, Any] = dict(zip(inputs, self.tensors, strict=True))
        self._names: dict[int, Any] = dict(enumerate(inputs))

    def read(self, var: Any, value: Any) -> None:
        """Follow the binding of a variable.

        Raises
        ------
        Unsupported
            If VTA cannot run it.
        """
        if value in self._known:
            self._known[var] = self._known[value]
            return
        name = str(getattr(getattr(value, "op", None), "name", "")).removeprefix("relax.")
        rule = _RULES.get(name)
        if rule is None:
            raise Unsupported(f"VTA has no {name.split('.')[-1] or 'such operator'}")
        made = rule(self, value)
        if isinstance(made, Sums) and str(var.ty.dtype) == "int8":
            if name not in _CLIPPING:
                raise Unsupported("it computes in eight bits, and what does not fit is lost")
            made = self.rounded(made, 0.0, 0)
        self._known[var] = made
        if isinstance(made, Tensor):
            self._names[made.number] = var

    def tensor(self, var: Any) -> Tensor:
        """Return the tensor in memory that a variable stands for; raise `Unsupported` if it is none."""
        found = self._known.get(var)
        if not isinstance(found, Tensor):
            raise Unsupported("its results are not int8")
        return found

    def sums(self, value: Any) -> Sums:
        """Return a value as sums; bytes are whole numbers."""
        found = self._known.get(value)
        if isinstance(found, Tensor):
            if found.zero:
                raise Unsupported("it computes with unsigned bytes")
            return sums(Copy(found), found.shape[0], found.extents)
        if not isinstance(found, Sums):
            raise Unsupported("it combines constants only")
        return found

    def weights(self, value: Any) -> Any:
        """Return constant weights as int8, and an exponent for all or for each channel of results."""
        found = self._known.get(value)
        return found if isinstance(found, products.Weights) else products.plain(value)

    def known(self, value: Any) -> Any:
        """Return what a variable stands for; None for anything else."""
        return self._known.get(value)

    def append(self, layer: Any, sources: tuple[Tensor, ...], extents: tuple[int, ...], zero: int) -> Tensor:
        """Append a step, and return its result."""
        step = Step(layer, tuple(source.number for source in sources))
        self.steps.append(step)
        return Tensor(len(self.tensors) + len(self.steps) - 1, step.outputs, extents, zero)

    def rounded(self, found: Sums, exponent: float, zero: int) -> Tensor:
        """Return sums as bytes in units of 2^exponent."""
        made = found.made
        if isinstance(made, Copy) and not found.offset.any() and (found.exponent == exponent).all():
            return self._same(found, made.source, exponent, zero)
        layer = rounding.layer(found, exponent)
        sources = (made.left, made.right) if isinstance(made, Pair) else (made.source,)
        return self.append(layer, sources, found.extents, zero)

    def _same(self, found: Sums, source: Tensor, exponent: float, zero: int) -> Tensor:
        """Return bytes that were bytes in the same units before: what made them may clip them as well."""
        low, high = rounding.bounds(found, exponent)
        same = replace(source, extents=found.extents, zero=zero)
        if (low, high) == (-_HALF, _HALF - 1):
            return same
        place = source.number - len(self.tensors)
        maker = self.steps[place].layer if place >= 0 else None
        if maker is None or isinstance(maker, MaxPool) or self._uses.get(self._names[source.number], 0) > 1:
            return self.append(rounding.layer(found, exponent), (source,), found.extents, zero)
        ends: dict[str, Any] = {"low": int(np.clip(maker.low, low, high)), "high": int(np.clip(maker.high, low, high))}
        self.steps[place] = replace(self.steps[place], layer=replace(maker, **ends))
        return same


def _input(number: int, var: Any) -> Tensor:
    try:
        extents = tuple(int(extent) for extent in var.ty.shape)
    except TypeError:
        raise Unsupported("its input has no fixed shape") from None
    zero = {"int8": 0, "uint8": _HALF}.get(str(var.ty.dtype))
    if zero is None:
        raise Unsupported(f"its input is {var.ty.dtype}, not int8")
    if not extents or extents[0] != 1 or len(extents) not in (2, 4):
        raise Unsupported(f"its input has the shape {list(extents)}; VTA takes one image, or one row, at a time")
    shape = (extents[1], extents[2], extents[3]) if len(extents) > 2 else (extents[1], 1, 1)
    return Tensor(number, shape, extents, zero)


def _dequantize(reader: Reader, call: Any) -> Any:
    if str(call.attrs.out_dtype) != "float32":
        raise Unsupported(f"it dequantises to {call.attrs.out_dtype}")
    if constants.array(call.args[0]) is not None:
        return products.quantized(call)
    source = reader.tensor(call.args[0])
    constants.zero_point(call.args[2], str(call.args[0].ty.dtype))
    return sums(Copy(source), source.shape[0], source.extents, constants.exponent(call.args[1]))


def _quantize(reader: Reader, call: Any) -> Tensor:
    zero = constants.zero_point(call.args[2], str(call.attrs.out_dtype))
    return reader.rounded(reader.sums(call.args[0]), constants.exponent(call.args[1]), zero)


def _astype(reader: Reader, call: Any) -> Any:
    """Widen, or narrow what was clipped to what int8 holds."""
    target, found = str(call.attrs.dtype), reader.sums(call.args[0])
    if not str(call.args[0].ty.dtype).startswith("int"):
        raise Unsupported("it cuts fractions off")
    if target in ("int32", "int64"):
        return found
    if target != "int8" or (found.low < -_HALF).any() or (found.high > _HALF - 1).any():
        raise Unsupported(f"it casts to {target} what was not clipped to it")
    return reader.rounded(found, 0.0, 0)


def _conv2d(reader: Reader, call: Any) -> Sums:
    source = _source(reader, call.args[0])
    return products.convolution(source, reader.weights(call.args[1]), call)


def _matmul(reader: Reader, call: Any) -> Sums:
    source = _source(reader, call.args[0])
    return products.dense(source, reader.weights(call.args[1]), tuple(int(each) for each in call.ty.shape))


def _source(reader: Reader, value: Any) -> Sums:
    found = reader.sums(value)
    if not isinstance(found.made, Copy) or found.offset.any() or found.bounded or np.ptp(found.exponent):
        raise Unsupported("what it multiplies is not quantised")
    return found


def _add(reader: Reader, call: Any) -> Sums:
    left, right = call.args
    if constants.array(left) is not None:
        left, right = right, left
    first = reader.sums(left)
    constant = constants.per_channel(right, first.extents, first.channels)
    if constant is not None:
        return first.plus(constant)
    first, second = (_addend(reader, each) for each in (first, reader.sums(right)))
    one, other = first.made, second.made
    if not isinstance(one, Copy) or not isinstance(other, Copy) or one.source.shape != other.source.shape:
        raise Unsupported("it adds tensors of different shapes")
    pair = Pair(one.source, other.source, (int(first.exponent[0]), int(second.exponent[0])))
    return sums(pair, first.channels, first.extents, min(pair.exponents))


def _addend(reader: Reader, found: Sums) -> Sums:
    """Return a tensor times a power of two; one that was divided and rounded becomes a tensor of its own."""
    if not isinstance(found.made, Copy) or found.bounded or (found.offset.any() and not found.floored):
        raise Unsupported("it adds what is not quantised")
    if not found.floored:
        return found
    made = reader.append(rounding.layer(found, 0.0), (found.made.source,), found.extents, 0)
    return sums(Copy(made), found.channels, found.extents)


def _clipped(low: float, high: float) -> Callable[[Reader, Any], Sums]:
    return lambda reader, call: reader.sums(call.args[0]).clipped(low, high)


def _clip(reader: Reader, call: Any) -> Sums:
    low, high = (float(each.value.value if hasattr(each.value, "value") else each.value) for each in call.args[1:])
    return reader.sums(call.args[0]).clipped(low, high)


def _limit(name: str) -> Callable[[Reader, Any], Sums]:
    def rule(reader: Reader, call: Any) -> Sums:
        bound = constants.array(call.args[1])
        if bound is None or bound.size != 1:
            raise Unsupported("it compares two tensors")
        return reader.sums(call.args[0]).clipped(**{name: float(bound.reshape(-1)[0])})

    return rule


def _multiply(reader: Reader, call: Any) -> Sums:
    found = reader.sums(call.args[0])
    factors = constants.per_channel(call.args[1], found.extents, found.channels)
    if factors is None:
        raise Unsupported("it multiplies two tensors")
    return _scaled(found, constants.exponents(factors))


def _left_shift(reader: Reader, call: Any) -> Sums:
    found = reader.sums(call.args[0])
    return _scaled(found, _bits(call, found))


def _scaled(found: Sums, exponent: Any) -> Sums:
    if found.floored or (isinstance(found.made, Pair) and np.ptp(exponent)):
        raise Unsupported("it scales what was rounded")
    return found.times(exponent)


def _right_shift(reader: Reader, call: Any) -> Sums:
    found = reader.sums(call.args[0])
    if found.floored:
        raise Unsupported("it shifts right twice")
    return found.shifted(_bits(call, found))


def _bits(call: Any, found: Sums) -> Any:
    bits = constants.per_channel(call.args[1], found.extents, found.channels)
    if bits is None:
        raise Unsupported("it shifts by another tensor")
    return bits


def _max_pool2d(reader: Reader, call: Any) -> Tensor | Sums:
    attrs, found = call.attrs, reader.known(call.args[0])
    source = found if isinstance(found, Tensor) else _source(reader, call.args[0]).made.source  # type: ignore[union-attr]
    if str(attrs.layout) != "NCHW" or any(int(each) != 1 for each in attrs.dilation):
        raise Unsupported("it pools with holes, or in another layout")
    down, across, *pads = (int(each) for each in (*attrs.strides, *attrs.padding))
    kernel = (int(attrs.pool_size[0]), int(attrs.pool_size[1]))
    top, left, bottom, right = pads
    try:
        layer = MaxPool(source.shape, kernel, (down, across), (top, left, bottom, right))
    except BuildError as error:
        raise Unsupported(str(error)) from None
    extents = (1, *layer.outputs)
    if extents != tuple(int(each) for each in call.ty.shape):
        raise Unsupported("its last windows reach beyond the padding")
    made = reader.append(layer, (source,), extents, source.zero)
    if isinstance(found, Sums):
        return replace(found, made=Copy(made), extents=extents)
    return made


def _reshape(reader: Reader, call: Any) -> Any:
    """Take the channels, rows and columns of one image as one row, or give a row of channels two more axes."""
    extents, found = tuple(int(each) for each in call.ty.shape), reader.known(call.args[0])
    if not isinstance(found, Tensor | Sums):
        raise Unsupported("it gives constants another shape")
    before = found.extents
    flat = extents[0] == 1 and extents[1] == prod(before) and prod(extents[2:]) == 1
    alone = isinstance(found, Tensor) or extents[1] == before[1]
    if not (flat and alone) and extents != before:
        raise Unsupported(f"it makes {list(extents)} of {list(before)}")
    return replace(found, extents=extents)


_CLIPPING = {"nn.relu", "clip", "maximum", "minimum", "reshape", "squeeze", "expand_dims"}
"""What bytes remain bytes by."""

_RULES: dict[str, Callable[[Reader, Any], Any]] = {
    "dequantize": _dequantize,
    "quantize": _quantize,
    "astype": _astype,
    "nn.conv2d": _conv2d,
    "matmul": _matmul,
    "add": _add,
    "nn.relu": _clipped(0, np.inf),
    "clip": _clip,
    "maximum": _limit("low"),
    "minimum": _limit("high"),
    "multiply": _multiply,
    "left_shift": _left_shift,
    "right_shift": _right_shift,
    "nn.max_pool2d": _max_pool2d,
    "reshape": _reshape,
    "squeeze": _reshape,
    "expand_dims": _reshape,
}
