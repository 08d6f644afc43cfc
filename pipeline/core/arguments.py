"""Arguments: checks of numbers and choices from users, before anything else."""

from __future__ import annotations

import functools
import inspect
import math
import numbers
import operator
import threading
from collections.abc import Callable, Collection
from typing import Any, ParamSpec, TypeVar

from pipeline.errors import ArgumentError, near

P = ParamSpec("P")
R = TypeVar("R")


def time_limit(name: str, value: Any) -> float | None:
    """Return seconds to wait; None means no limit.

    Raises `ArgumentError` if it is not a number of seconds, negative or not a number.
    """
    if value is None:
        return None
    seconds = _number(name, value, "a number of seconds, at least 0, or None to wait as long as it takes")
    # Written so that NaN, which compares with nothing, is refused as well.
    if not seconds >= 0:
        raise ArgumentError(
            f"{name} is {_describe_value(value)}; it must be at least 0, or None to wait as long as it takes"
        )
    # Beyond that, about 290 years, no lock can wait.
    return seconds if seconds < threading.TIMEOUT_MAX else None


def duration(name: str, value: Any) -> float:
    """Return seconds above 0, infinity included; else raise `ArgumentError`."""
    seconds = _number(name, value, "a time in seconds, above 0")
    # Refuses NaN, too.
    if not seconds > 0:
        raise ArgumentError(f"{name} is {_describe_value(value)}; it must be a time in seconds, above 0")
    return seconds if seconds < threading.TIMEOUT_MAX else math.inf


def moment(name: str, value: Any) -> float:
    """Return a `time.time`; raise `ArgumentError` for a datetime and the like."""
    kind = "seconds as time.time() gives them; of a datetime, its timestamp()"
    seconds = _number(name, value, kind)
    if not math.isfinite(seconds):
        raise ArgumentError(f"{name} is {_describe_value(value)}; it must be {kind}")
    return seconds


def count(name: str, value: Any, minimum: int) -> int:
    """Return an integer; raise `ArgumentError` below `minimum`."""
    message = f"{name} is {_describe_value(value)}; it must be a whole number, at least {minimum}"
    # Python takes True for 1; who writes it has mixed up two arguments.
    if isinstance(value, bool):
        raise ArgumentError(message)
    try:
        # Takes NumPy's integers as well, and no floats, not even whole ones.
        number = operator.index(value)
    except TypeError:
        raise ArgumentError(message) from None
    if number < minimum:
        raise ArgumentError(message)
    return number


def choice(name: str, value: Any, choices: Collection[str]) -> str:
    """Return one of `choices`; raise `ArgumentError` for another word."""
    if not isinstance(value, str) or value not in choices:
        words = [repr(word) for word in choices]
        alternatives = " or ".join(words) if len(words) == 2 else f"one of {', '.join(words)}"
        raise ArgumentError(f"{name} is {_describe_value(value)}; it must be {alternatives}")
    return value


def names_keywords(function: str, kind: Any) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Decorate a function with the keyword arguments of a `TypedDict`.

    Other keywords are refused by `TypeError`, as Python does.  The signature has all names, so that `help` shows them.
    """
    names = kind.__optional_keys__

    def decorate(inner: Callable[P, R]) -> Callable[P, R]:
        @functools.wraps(inner)
        def refuse_unknown_names(*args: P.args, **kwargs: P.kwargs) -> R:
            for name in kwargs.keys() - names - explicit.keys():
                raise TypeError(f"{function}() has no argument {name!r}{near(name, [*names, *explicit])}")
            return inner(*args, **kwargs)

        signature = inspect.signature(inner)
        explicit = {
            name: parameter
            for name, parameter in signature.parameters.items()
            if parameter.kind != parameter.VAR_KEYWORD
        }
        further = [
            inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=..., annotation=_text(annotation))
            for name, annotation in kind.__annotations__.items()
        ]
        refuse_unknown_names.__signature__ = signature.replace(parameters=[*explicit.values(), *further])  # type: ignore[attr-defined]
        return refuse_unknown_names

    return decorate


def _text(annotation: Any) -> Any:
    """Text of an annotation whose names are not imported."""
    return getattr(annotation, "__forward_arg__", annotation)


def _number(name: str, value: Any, requirement: str) -> float:
    if isinstance(value, bool) or not isinstance(value, numbers.Real):
        raise ArgumentError(f"{name} is {_describe_value(value)}; it must be {requirement}")
    try:
        return float(value)
    except OverflowError:
        raise ArgumentError(f"{name} is a number with hundreds of digits; it must be {requirement}") from None


def _describe_value(value: Any) -> str:
    """Return a value as text, in a line."""
    try:
        text = repr(value)
    except Exception:  # noqa: BLE001 - of a class that is not ours, or an integer that is too long to be written
        text = f"a {type(value).__name__}"
    return text if len(text) <= 80 else f"{text[:77]}..."
