"""Renaming: old arguments and options, refused or taken, with the new name."""

from __future__ import annotations

import argparse
import functools
import warnings
from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")


def refuse_renamed(**names: str) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Decorate a function with renamed arguments, as ``old="new"``.

    Raises `TypeError` if the function is called with an old name.
    """

    def decorate(function: Callable[P, R]) -> Callable[P, R]:
        @functools.wraps(function)
        def refuse_old_names(*args: P.args, **kwargs: P.kwargs) -> R:
            for old_name in names.keys() & kwargs:
                raise TypeError(f"{function.__name__}() has no argument {old_name!r}; it is called {names[old_name]!r}")
            return function(*args, **kwargs)

        return refuse_old_names

    return decorate


def accept_renamed(**names: str) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Decorate a function taking old argument names, ``old="new"``, with a warning."""

    def decorate(function: Callable[P, R]) -> Callable[P, R]:
        @functools.wraps(function)
        def accept_old_names(*args: P.args, **kwargs: P.kwargs) -> R:
            for old_name in names.keys() & kwargs:
                text = f"{function.__name__}() calls {old_name!r} {names[old_name]!r} now"
                warnings.warn(text, DeprecationWarning, stacklevel=2)
                kwargs[names[old_name]] = kwargs.pop(old_name)
            return function(*args, **kwargs)

        return accept_old_names

    return decorate


def add_renamed_option(parser: argparse._ActionsContainer, old_name: str, new_name: str) -> None:
    """Let the parser refuse `old_name` with `new_name`, and hide it."""
    parser.add_argument(
        old_name, action=_RenamedOption, new_name=new_name, dest=argparse.SUPPRESS, help=argparse.SUPPRESS
    )


class _RenamedOption(argparse.Action):
    def __init__(self, *args: Any, new_name: str, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._new = new_name

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> None:
        parser.error(f"{self.option_strings[0]} is called {self._new}")
