"""PyTorch operators as plain data: a call list, free of model code.

The data are JSON: ``inputs`` and ``outputs`` are numbers of values, ``calls`` a list of ``[operator, arguments,
keywords, result]`` in order.  An argument is a plain value, a list, or a mapping of one key: ``value`` is the number of
a value, ``dtype``, ``layout`` and ``memory_format`` name a constant of PyTorch's, ``complex`` has two parts, and
``program`` is a branch or a body, in the same form.
"""

from __future__ import annotations

import functools
import json
import math
import operator
import re
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

import numpy as np

from pipeline.core.packed_model import FAMILIES
from pipeline.errors import BundleError
from pipeline.system.optional import require

_OPERATOR = re.compile(rf"({'|'.join(FAMILIES)})\.(\w+)\.(\w+)")
# These read and write files.
_FILES = {"from_file", "save"}
_NAME = re.compile(r"[a-z]\w*")

_NUMBERS = (
    *("add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "neg", "pos", "abs", "eq", "ne", "lt", "le", "gt"),
    *("ge", "and_", "or_", "xor", "not_", "lshift", "rshift", "getitem"),
)
_PLAIN: Mapping[str, Callable[..., Any]] = {
    **{f"_operator.{name}": getattr(operator, name) for name in _NUMBERS},
    **{f"math.{name}": getattr(math, name) for name in ("ceil", "floor", "trunc", "sqrt", "log2")},
    "torch.sym_float": float,
    "torch.sym_int": int,
    "torch.sym_ite": lambda condition, first, second: first if condition else second,
    "torch.sym_max": max,
    "torch.sym_min": min,
    "torch.sym_not": operator.not_,
}
"""Functions on extents, and on the results of operators that have several."""


class TorchProgram:
    """Calls of operators, checked.

    Raises `BundleError` if it is no such list, or calls something else than operators without side effects.
    """

    def __init__(self, content: Any) -> None:
        try:
            self.inputs: list[int] = [int(number) for number in content["inputs"]]
            self._outputs: list[int] = [int(number) for number in content["outputs"]]
            self._calls = [_Call(*call) for call in content["calls"]]
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise BundleError(f"a part of a PyTorch model is damaged: {error}; build it again") from error
        self._dead_values = self._last_uses()

    def run(self, tensors: Sequence[Any]) -> list[Any]:
        """Return the outputs for the inputs."""
        values: dict[int, Any] = dict(zip(self.inputs, tensors, strict=True))
        for call, dead_values in zip(self._calls, self._dead_values, strict=True):
            values[call.result] = call.run(values)
            for number in dead_values:
                values.pop(number, None)
        return [values[number] for number in self._outputs]

    def _last_uses(self) -> list[list[int]]:
        """Return the values per call without later readers, to free them."""
        known_values, dead_values = set(self._outputs), []
        for call in reversed(self._calls):
            numbers = {*_numbers(call.arguments), *_numbers(list(call.keywords.values())), call.result}
            dead_values.append([number for number in numbers if number not in known_values])
            known_values |= numbers
        return dead_values[::-1]


class _Call:
    def __init__(self, name: str, arguments: list[Any], keywords: dict[str, Any], result: int) -> None:
        self._function = _function(name)
        self.arguments = [_parse(argument) for argument in arguments]
        self.keywords = {str(name): _parse(argument) for name, argument in keywords.items()}
        self.result = int(result)

    def run(self, values: Mapping[int, Any]) -> Any:
        keywords = {name: _resolve(argument, values) for name, argument in self.keywords.items()}
        return self._function(*(_resolve(argument, values) for argument in self.arguments), **keywords)


def _function(name: str) -> Callable[..., Any]:
    """Return a name's function."""
    if (function := _PLAIN.get(name) or _CONTROL.get(name)) is not None:
        return function
    match = _OPERATOR.fullmatch(name)
    if match is None or match[2] in _FILES:
        raise ValueError(f"{name[:80]!r} is no operator on tensors")
    family, packet, overload = match.groups()
    if family == "torchvision":
        require("torchvision", "torch", f"the operator {packet}")
    torch = _torch()
    callee = getattr(getattr(getattr(torch.ops, family), packet), overload)
    # By its type: names lead to other attributes of these objects as well.
    if not isinstance(callee, torch._ops.OpOverload) or callee._schema.is_mutable:  # noqa: SLF001
        raise ValueError(f"{name!r} changes what it reads")
    return cast("Callable[..., Any]", callee)


def _torch() -> Any:
    return require("torch", "torch", "operators that PyTorch computes")


def _parse(argument: Any) -> Any:
    """Return an argument with PyTorch constants for their names."""
    if isinstance(argument, list):
        return [_parse(item) for item in argument]
    if not isinstance(argument, dict):
        return argument
    ((kind, content),) = argument.items()
    return _KINDS[kind](content)


def _constant(kind: str, name: str) -> Any:
    constant = getattr(_torch(), name if _NAME.fullmatch(name) else "", None)
    if not isinstance(constant, getattr(_torch(), kind)):
        raise ValueError(f"{name!r} is no {kind}")  # noqa: TRY004 - of the data, not of an argument
    return constant


class _Value:
    """Numbered value in place of an argument."""

    __slots__ = ("number",)

    def __init__(self, number: int) -> None:
        self.number = number


def _resolve(argument: Any, values: Mapping[int, Any]) -> Any:
    if isinstance(argument, _Value):
        return values[argument.number]
    return [_resolve(item, values) for item in argument] if isinstance(argument, list) else argument


def _numbers(argument: Any) -> list[int]:
    if isinstance(argument, _Value):
        return [argument.number]
    return [number for item in argument for number in _numbers(item)] if isinstance(argument, list) else []


def _cond(condition: Any, first: TorchProgram, second: TorchProgram, operands: Sequence[Any]) -> Any:
    return (first if condition else second).run(operands)


def _while_loop(condition: TorchProgram, body: TorchProgram, carried: Sequence[Any], fixed: Sequence[Any]) -> Any:
    carried = list(carried)
    while condition.run([*carried, *fixed])[0]:
        carried = body.run([*carried, *fixed])
    return carried


_CONTROL: Mapping[str, Callable[..., Any]] = {"higher_order.cond": _cond, "higher_order.while_loop": _while_loop}

_KINDS: Mapping[str, Callable[[Any], Any]] = {
    "value": lambda content: _Value(int(content)),
    "program": TorchProgram,
    "complex": lambda content: complex(*content),
    **{kind: functools.partial(_constant, kind) for kind in ("dtype", "layout", "memory_format")},
    "device": lambda _: _torch().device("cpu"),
}
"""Arguments that are mappings, by their keys."""


def parse(model: bytes) -> TorchProgram:
    """Return a packed model's program, or raise `BundleError`."""
    try:
        return TorchProgram(json.loads(model))
    except (ValueError, RecursionError) as error:
        if isinstance(error, BundleError):
            raise
        raise BundleError("a part of a PyTorch model is no JSON; build it again") from error


_thread = threading.local()
"""State of a thread: its number of computing threads. PyTorch asks its library at every change."""


def open_model(model: bytes, threads: int) -> Callable[[Sequence[np.ndarray]], None]:
    """Return a function of a packed program, outputs behind inputs, or raise `BundleError`."""
    torch = require("torch", "torch", "operators that PyTorch computes")
    program = parse(model)
    count = len(program.inputs)

    def compute(arrays: Sequence[np.ndarray]) -> None:
        if getattr(_thread, "count", 0) != threads:
            torch.set_num_threads(threads)
            _thread.count = threads
        with torch.inference_mode():
            results = program.run([torch.from_numpy(array) for array in arrays[:count]])
        for target, result in zip(arrays[count:], results, strict=True):
            np.copyto(target, result.numpy(), casting="no")

    return compute
