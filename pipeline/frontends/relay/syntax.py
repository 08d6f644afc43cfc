"""Tree of a Relay program as plain values, from text or JSON.

A position is a number that `Program.locate` turns into words: an offset into the text, or a node of the JSON.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

import numpy as np

from pipeline.errors import ModelError


@dataclass(frozen=True)
class TensorType:
    """``Tensor[(1, 3, ?), float32]``; an open extent is None."""

    shape: tuple[int | None, ...]
    dtype: str


@dataclass(frozen=True)
class OtherType:
    """A type of no tensor: a tuple, a function, or none given."""

    text: str


Type: TypeAlias = TensorType | OtherType


@dataclass(frozen=True)
class Reference:
    """A local variable: ``%conv1`` is ``conv1``, ``%12`` keeps its sign."""

    name: str
    position: int


@dataclass(frozen=True)
class GlobalReference:
    """A function of the module: ``@main`` is called ``main``."""

    name: str
    position: int


@dataclass(frozen=True)
class OperatorReference:
    """An operator, such as ``nn.conv2d``."""

    name: str
    position: int


@dataclass(frozen=True)
class Literal:
    """A constant."""

    value: np.ndarray
    position: int


@dataclass(frozen=True)
class Call:
    """Operator or function with operands and plain attributes."""

    function: Expression
    arguments: tuple[Expression, ...]
    attributes: Mapping[str, object]
    position: int


@dataclass(frozen=True)
class TupleOf:
    """``(a, b)``."""

    fields: tuple[Expression, ...]
    position: int


@dataclass(frozen=True)
class Projection:
    """``a.1``."""

    tuple: Expression
    index: int
    position: int


@dataclass(frozen=True)
class If:
    """``if (a) { b } else { c }``."""

    condition: Expression
    consequence: Expression
    alternative: Expression
    position: int


@dataclass(frozen=True)
class LetBinding:
    """``let %x = a;`` or ``%3 = a;``."""

    name: str
    value: Expression
    position: int


@dataclass(frozen=True)
class LetBlock:
    """Bindings, then the block's value."""

    bindings: tuple[LetBinding, ...]
    result: Expression
    position: int


@dataclass(frozen=True)
class Parameter:
    """An argument of a function."""

    name: str
    type: Type
    position: int


@dataclass(frozen=True)
class RelayFunction:
    """``fn (%x: Tensor[(1), float32]) { ... }``."""

    parameters: tuple[Parameter, ...]
    body: Expression
    position: int


Expression: TypeAlias = (
    Reference
    | GlobalReference
    | OperatorReference
    | Literal
    | Call
    | TupleOf
    | Projection
    | If
    | LetBlock
    | RelayFunction
)


@dataclass(frozen=True)
class RelayProgram:
    """A module."""

    file: str
    functions: Mapping[str, RelayFunction]
    locate: Callable[[int], str] = field(repr=False, compare=False)

    def error(self, position: int, message: str) -> ModelError:
        """Return an error at file and position."""
        return ModelError(f"{self.file!r}, {self.locate(position)}: {message}")


def children(expression: Expression) -> Sequence[Expression]:
    """Return an expression's parts in order of computation."""
    if isinstance(expression, Call):
        return (expression.function, *expression.arguments)
    if isinstance(expression, TupleOf):
        return expression.fields
    if isinstance(expression, Projection):
        return (expression.tuple,)
    if isinstance(expression, If):
        return (expression.condition, expression.consequence, expression.alternative)
    if isinstance(expression, LetBlock):
        return (*(binding.value for binding in expression.bindings), expression.result)
    return (expression.body,) if isinstance(expression, RelayFunction) else ()


def make_line_finder(text: str) -> Callable[[int], str]:
    """Return a function from offset to line and column, from 1."""
    # The text is searched once, not again for each position.
    starts = [0]
    while (end := text.find("\n", starts[-1])) >= 0:
        starts.append(end + 1)

    def locate(offset: int) -> str:
        line = bisect_right(starts, offset)
        return f"line {line}, column {offset - starts[line - 1] + 1}"

    return locate
