"""Contracts of passes: properties required of a model, and ensured."""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from typing import Any, NamedTuple, TypeVar

Function = TypeVar("Function", bound=Callable[..., Any])


class Property(Enum):
    """Property of a model's bindings and outputs, checked around passes."""

    ORDERED = "a binding reads inputs and what bindings before it make"
    PLAIN = "a binding is a call of operands, or a part of a result: no constant, and no second name of a variable"
    NAMED = "no two bindings have one name"
    LIVE = "an output depends on each binding"
    COMPUTED = "no output is a constant"
    SUNK = "what is dequantised has one reader"
    OWN = "an output is a binding of its own, with its name"


class Contract(NamedTuple):
    """Properties before a pass, and after it."""

    requires: tuple[Property, ...]
    ensures: tuple[Property, ...]


CONTRACTS: dict[Any, Contract] = {}
"""Contracts by the code of their passes, whose parameters are called ``bindings`` and ``outputs``."""


def contract(*, requires: tuple[Property, ...] = (), ensures: tuple[Property, ...]) -> Callable[[Function], Function]:
    """State what a pass requires and ensures."""

    def decorate(function: Function) -> Function:
        CONTRACTS[function.__code__] = Contract(requires, ensures)
        return function

    return decorate
