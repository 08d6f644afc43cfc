"""Marker ``one_in``: of a test with many sets of parameters one in so many is fast, and the others are slow.

Sums of the values' positions decide.  So the choice is the same whichever tests are collected, and it has every value
of a parameter where another parameter has enough values.
"""

from __future__ import annotations

import operator
from collections.abc import Iterator
from typing import Any

import pytest


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark what is left out as slow, before pytest looks at that marker."""
    for item in items:
        rule = item.get_closest_marker("one_in")
        if rule is not None and sum(_positions(item)) % rule.args[0]:
            item.add_marker("slow")


def _positions(item: Any) -> Iterator[int]:
    """Yield the position of a test's value in each of its lists of values."""
    for mark in item.iter_markers("parametrize"):
        names = mark.args[0].replace(",", " ").split() if isinstance(mark.args[0], str) else mark.args[0]
        parameters = [item.callspec.params[name] for name in names]
        rows = [_row(value, len(names)) for value in mark.args[1]]
        yield next(number for number, row in enumerate(rows) if all(map(operator.is_, row, parameters)))


def _row(value: Any, names: int) -> Any:
    if isinstance(value, type(pytest.param())):
        return value.values
    return value if names > 1 else (value,)
