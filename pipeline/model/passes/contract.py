"""Contracts of passes: properties that a pass requires of a model, and those that it ensures."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from enum import Enum
from typing import Any, TypeVar, cast


class Property(Enum):
    """A property of the bindings of a model and of its outputs."""

    ORDERED = "a binding reads inputs and what bindings before it make"
    PLAIN = "a binding is a call of operands, or a part of a result: no constant, and no second name of a variable"
    NAMED = "no two bindings have one name"
    LIVE = "an output depends on each binding"
    COMPUTED = "no output is a constant"
    SUNK = "what is dequantised has one reader"
    OWN = "an output is a binding of its own, with its name"


Watcher = Callable[[Callable[..., Any], Mapping[str, Any], Any], None]
"""Takes a pass, its arguments by name, and its result, or None before it has run."""

Function = TypeVar("Function", bound=Callable[..., Any])

_watcher: ContextVar[Watcher | None] = ContextVar("_watcher", default=None)

CONTRACTS: dict[str, tuple[tuple[Property, ...], tuple[Property, ...]]] = {}
"""What a pass requires, and what it ensures, by its name."""


def contract(*, requires: tuple[Property, ...] = (), ensures: tuple[Property, ...]) -> Callable[[Function], Function]:
    """State what a pass requires and ensures; its parameters are called ``bindings`` and ``outputs``."""

    def decorate(function: Function) -> Function:
        CONTRACTS[function.__name__] = requires, ensures

        @functools.wraps(function)
        def run(*arguments: Any, **keywords: Any) -> Any:
            if (watcher := _watcher.get()) is None:
                return function(*arguments, **keywords)
            bound_arguments = inspect.signature(function).bind(*arguments, **keywords).arguments
            watcher(function, bound_arguments, None)
            result = function(*arguments, **keywords)
            watcher(function, bound_arguments, result)
            return result

        return cast("Function", run)

    return decorate


@contextmanager
def watch(watcher: Watcher) -> Iterator[None]:
    """Let a function see each pass, before it and after it."""
    token = _watcher.set(watcher)
    try:
        yield
    finally:
        _watcher.reset(token)
