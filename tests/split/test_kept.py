"""Large constants of a model lie in a temporary file."""

from __future__ import annotations

import gc
import re
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pipeline.memory import ALIGNMENT, LARGE
from pipeline.split.kept import Kept
from pipeline.split.lines import array, constant

VALUES = np.arange(LARGE // 4, dtype=np.float32).reshape(4, -1)


def file_of(values: np.ndarray) -> str:
    """Return which file the system says that an array lies in; nothing if it is in none."""
    place = values.ctypes.data
    for line in Path("/proc/self/maps").read_text().splitlines():
        first, last = (int(each, 16) for each in line.split()[0].split("-"))
        if first <= place < last:
            return " ".join(line.split()[5:])
    raise AssertionError("not in memory")


def moved(kept: Kept, expression: Any) -> np.ndarray:
    found = array(kept.instead(expression))
    assert found is not None
    return found


def test_large_constants_lie_in_a_file_without_a_name() -> None:
    expressions = [constant(VALUES), constant(VALUES.astype(np.int64)), constant(VALUES > 7)]
    kept = Kept(expressions)
    given: list[np.ndarray] = [VALUES, VALUES.astype(np.int64), VALUES > 7]
    for expression, values in zip(expressions, given, strict=True):
        found = moved(kept, expression)
        assert found.dtype == values.dtype
        np.testing.assert_array_equal(found, values)
        assert found.ctypes.data % ALIGNMENT == 0
        assert bool(re.search(r"\(deleted\)$", file_of(found))) == (values.nbytes >= LARGE)


def test_what_is_released_is_there_again() -> None:
    expression = constant(VALUES)
    kept = Kept([expression])
    found = moved(kept, expression)
    kept.release()
    np.testing.assert_array_equal(found, VALUES)


def test_one_constant_for_several_operators_stays_one() -> None:
    expression = constant(VALUES)
    kept = Kept([expression, expression])
    assert kept.instead(expression).same_as(kept.instead(expression))


def test_small_constants_stay() -> None:
    small = constant(VALUES[0])
    kept = Kept([small])
    assert kept.instead(small).same_as(small)
    kept.release()


def test_without_room_they_are_in_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "TemporaryFile", lambda buffering: open("/dev/full", "wb"))  # noqa: PTH123, SIM115
    expression = constant(VALUES)
    found = moved(Kept([expression]), expression)
    np.testing.assert_array_equal(found, VALUES)
    assert not file_of(found).endswith("(deleted)")


def test_constants_outlive_what_moved_them() -> None:
    expression = constant(VALUES)
    found = moved(Kept([expression]), expression)
    del expression
    gc.collect()
    np.testing.assert_array_equal(found, VALUES)
