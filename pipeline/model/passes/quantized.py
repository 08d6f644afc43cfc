"""Quantised models: weights stay integers, groups exchange integers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from tvm import relax
from tvm.ir import Call

from pipeline.model.passes.bindings import Binding, array, calls, constant, live, replace, variables
from pipeline.model.passes.contract import Property, contract
from pipeline.model.passes.naming import unique

HALF = 128
"""Offset between signed and unsigned bytes."""

# They take values to other places, so that it makes no difference whether those are quantised.
_MOVERS = {"reshape", "permute_dims", "squeeze", "expand_dims", "nn.max_pool2d", "concat", "strided_slice"}
# Operators that take integer weights; others need the real numbers in any case.
_INTEGER = {"matmul", *(f"nn.conv{rank}d{suffix}" for rank in (1, 2, 3) for suffix in ("", "_transpose"))}


def dequantize_values(values: np.ndarray, scale: np.ndarray, zero: np.ndarray, axis: int) -> np.ndarray:
    """Return real numbers of quantised values, scaled along `axis`."""
    if scale.size > 1 or zero.size > 1:
        shape = [1] * values.ndim
        shape[axis] = -1
        scale, zero = (parameter.reshape(shape if parameter.size > 1 else ()) for parameter in (scale, zero))
    else:
        scale, zero = scale.reshape(()), zero.reshape(())
    # Others than integers are quantised as well, to eight bits of floating point.
    wide_dtype = np.int32 if values.dtype.kind in "iu" else np.float32
    real_values: np.ndarray = (values.astype(wide_dtype) - zero.astype(wide_dtype)).astype(np.float32) * scale
    return real_values


def integer_weights(bindings: Iterable[Any]) -> set[Any]:
    """Return the variables from integer weights to their operators."""
    producers = {argument.var: argument.value for argument in bindings}
    users: dict[Any, list[tuple[Any, int]]] = {}
    for value in producers.values():
        for position, argument in enumerate(value.args if isinstance(value, Call) else ()):
            users.setdefault(argument, []).append((value, position))
    return {
        var
        for var, value in producers.items()
        if calls(value, "dequantize", "permute_dims")
        and _are_weights(value, producers)
        and all(_takes_integers(user, position, producers, users) for user, position in users.get(var, ()))
    }


def _are_weights(value: Any, producers: Mapping[Any, Any]) -> bool:
    if calls(value, "permute_dims"):
        value = producers.get(value.args[0]) if isinstance(value.args[0], relax.Var) else None
    if not calls(value, "dequantize") or str(value.attrs.out_dtype) != "float32":
        return False
    values, *parameters = (array(argument) for argument in value.args)
    return (
        values is not None
        and str(values.dtype) in ("int8", "uint8")
        and all(parameter is not None for parameter in parameters)
    )


def _takes_integers(
    user: Any, position: int, producers: Mapping[Any, Any], users: Mapping[Any, Sequence[tuple[Any, int]]]
) -> bool:
    if calls(user, "permute_dims"):
        var = next((candidate for candidate, value in producers.items() if value is user), None)
        return all(
            not calls(by, "permute_dims") and _takes_integers(by, index, producers, users) for by, index in users[var]
        )
    data = producers.get(user.args[0]) if position == 1 and calls(user, *_INTEGER) else None
    return data is not None and calls(data, "dequantize") and isinstance(data.args[0], relax.Var)


@contract(
    requires=(Property.ORDERED, Property.PLAIN, Property.NAMED, Property.LIVE, Property.COMPUTED),
    ensures=(Property.ORDERED, Property.PLAIN, Property.NAMED, Property.LIVE, Property.SUNK),
)
def arrange(
    bindings: Sequence[Binding], outputs: Sequence[Any], reserved_names: Iterable[str]
) -> tuple[list[Binding], dict[str, str]]:
    """Give readers their own dequantisation, bytes to movers, unsigned activations.

    Returns the name of the binding in place of each removed one.
    """
    # Most models are not quantised.
    if not any(calls(binding.value, "dequantize") for binding in bindings):
        return list(bindings), {}
    producers = {binding.var: binding for binding in bindings}
    heirs: dict[str, str] = {}
    for binding in bindings:
        _turn_weights(binding, producers)
    # Before bytes move: where they did, a mover stands instead of the quantize that is changed here.
    _unsign(bindings, outputs)
    for binding in bindings:
        heirs |= _move(binding, producers, outputs)
    sunk = _sink(live(bindings, outputs), producers, {*reserved_names, *(binding.name for binding in bindings)}, heirs)
    live_bindings = live(sunk, outputs)
    names = {binding.name for binding in live_bindings}
    return live_bindings, {name: heir for name, heir in heirs.items() if name not in names}


def _readers(bindings: Iterable[Binding]) -> dict[Any, list[Binding]]:
    readers: dict[Any, list[Binding]] = {}
    for binding in bindings:
        for variable in dict.fromkeys(variables(binding.value)):
            readers.setdefault(variable, []).append(binding)
    return readers


def _turn_weights(binding: Binding, producers: Mapping[Any, Binding]) -> None:
    """Transpose integer weights instead of the numbers they stand for."""
    source = producers.get(binding.value.args[0]) if calls(binding.value, "permute_dims") else None
    if source is None or not calls(source.value, "dequantize") or (values := array(source.value.args[0])) is None:
        return
    axes = binding.value.attrs.axes
    order = [int(axis) for axis in axes] if axes is not None else list(range(values.ndim))[::-1]
    _, scale, zero = source.value.args
    # The scales stay with their axis, wherever that has gone.
    axis = order.index(int(source.value.attrs.axis) % values.ndim)
    binding.value = relax.op.dequantize(constant(values.transpose(order)), scale, zero, axis=axis, out_dtype="float32")


def _unsign(bindings: Sequence[Binding], outputs: Sequence[Any]) -> None:
    """Shift signed activations by half the range. Processors multiply unsigned with signed bytes."""
    readers = _readers(bindings)
    for binding in bindings:
        value = binding.value
        if not calls(value, "quantize") or str(value.attrs.out_dtype) != "int8" or binding.var in outputs:
            continue
        consumers = readers.get(binding.var, [])
        if not all(calls(reader.value, "dequantize") and reader.value.args[0] == binding.var for reader in consumers):
            continue
        if any(array(reader.value.args[2]) is None for reader in (binding, *consumers)):
            continue
        binding.value = relax.op.quantize(
            *value.args[:2], _shift_zero_point(value.args[2]), axis=value.attrs.axis, out_dtype="uint8"
        )
        for reader in consumers:
            _, scale, zero = reader.value.args
            attrs = reader.value.attrs
            reader.value = relax.op.dequantize(
                binding.var, scale, _shift_zero_point(zero), axis=attrs.axis, out_dtype=str(attrs.out_dtype)
            )


def _shift_zero_point(zero: Any) -> Any:
    return constant((np.asarray(array(zero), np.int32) + HALF).astype(np.uint8))


def _move(binding: Binding, producers: Mapping[Any, Binding], outputs: Sequence[Any]) -> dict[str, str]:
    """Move quantised values without dequantising them in between."""
    if not calls(binding.value, "quantize") or binding.var in outputs:
        return {}
    mover = producers.get(binding.value.args[0])
    if mover is None or not calls(mover.value, *_MOVERS) or mover.var in outputs:
        return {}
    source = mover.value.args[0]
    sources = list(source.fields) if isinstance(source, relax.Tuple) else [source]
    dequantizers = [producers.get(operand) for operand in sources]
    if not all(operand is not None and _restores_bytes(operand.value, binding.value) for operand in dequantizers):
        return {}
    quantized_sources = {operand.var: operand.value.args[0] for operand in dequantizers if operand is not None}
    binding.value = replace(
        mover.value,
        lambda operand: quantized_sources.get(operand, operand) if isinstance(operand, relax.Var) else operand,
    )
    return {mover.name: binding.name}


def _restores_bytes(dequantize: Any, quantize: Any) -> bool:
    """Check if quantising restores the dequantised bytes."""
    if not calls(dequantize, "dequantize") or not isinstance(dequantize.args[0], relax.Var):
        return False
    pairs = [(array(a), array(b)) for a, b in zip(dequantize.args[1:], quantize.args[1:], strict=True)]
    return all(a is not None and b is not None and a.size == 1 and a.dtype == b.dtype and a == b for a, b in pairs)


def _sink(
    bindings: Sequence[Binding], producers: Mapping[Any, Binding], used_names: set[str], heirs: dict[str, str]
) -> list[Binding]:
    """Give each reader its own dequantisation, right before it."""
    result: list[Binding] = []
    for binding in bindings:
        copies: dict[Any, Binding] = {}
        for operand in variables(binding.value):
            source = producers.get(operand)
            if source is None or not calls(source.value, "dequantize") or operand in copies:
                continue
            data = source.value.args[0]
            constant_weights = not isinstance(data, relax.Var)
            name = unique(f"{binding.name}:{'weights' if constant_weights else 'dequantize'}", used_names)
            copies[operand] = Binding(relax.Var(name, operand.ty), name, source.value)
            heirs[source.name] = (
                binding.name if constant_weights else producers[data].name if data in producers else str(data.name)
            )
        if copies:
            binding.value = replace(binding.value, _substitution({var: copy.var for var, copy in copies.items()}))
        result += [*copies.values(), binding]
    return result


def _substitution(names: Mapping[Any, Any]) -> Callable[[Any], Any]:
    return lambda operand: names.get(operand, operand) if isinstance(operand, relax.Var) else operand
