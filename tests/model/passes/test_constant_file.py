"""Large constants of a model lie in a temporary file."""

from __future__ import annotations

import gc
import re
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pipeline.model.passes.bindings import array, constant
from pipeline.model.passes.constant_file import ConstantFile
from pipeline.system.memory import ALIGNMENT, LARGE

VALUES = np.arange(LARGE // 4, dtype=np.float32).reshape(4, -1)


def file_of(values: np.ndarray) -> str:
    """Return which file the system says that an array lies in; nothing if it is in none."""
    position = values.ctypes.data
    for line in Path("/proc/self/maps").read_text().splitlines():
        first, last = (int(each, 16) for each in line.split()[0].split("-"))
        if first <= position < last:
            return " ".join(line.split()[5:])
    raise AssertionError("not in memory")


def move_constant(constant_file: ConstantFile, expression: Any) -> np.ndarray:
    output = array(constant_file.replacement(expression))
    assert output is not None
    return output


def test_large_constants_lie_in_a_file_without_a_name() -> None:
    expressions = [constant(VALUES), constant(VALUES.astype(np.int64)), constant(VALUES > 7)]
    constant_file = ConstantFile(expressions)
    operands: list[np.ndarray] = [VALUES, VALUES.astype(np.int64), VALUES > 7]
    for expression, values in zip(expressions, operands, strict=True):
        output = move_constant(constant_file, expression)
        assert output.dtype == values.dtype
        np.testing.assert_array_equal(output, values)
        assert output.ctypes.data % ALIGNMENT == 0
        assert bool(re.search(r"\(deleted\)$", file_of(output))) == (values.nbytes >= LARGE)


def test_what_is_released_is_there_again() -> None:
    expression = constant(VALUES)
    constant_file = ConstantFile([expression])
    output = move_constant(constant_file, expression)
    constant_file.release()
    np.testing.assert_array_equal(output, VALUES)


def test_one_constant_for_several_operators_stays_one() -> None:
    expression = constant(VALUES)
    constant_file = ConstantFile([expression, expression])
    assert constant_file.replacement(expression).same_as(constant_file.replacement(expression))


def test_small_constants_stay() -> None:
    expression = constant(VALUES[0])
    constant_file = ConstantFile([expression])
    assert constant_file.replacement(expression).same_as(expression)
    constant_file.release()


def test_without_room_they_are_in_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "TemporaryFile", lambda buffering: open("/dev/full", "wb"))  # noqa: PTH123, SIM115
    expression = constant(VALUES)
    output = move_constant(ConstantFile([expression]), expression)
    np.testing.assert_array_equal(output, VALUES)
    assert not file_of(output).endswith("(deleted)")


def test_constants_outlive_what_moved_them() -> None:
    expression = constant(VALUES)
    output = move_constant(ConstantFile([expression]), expression)
    del expression
    gc.collect()
    np.testing.assert_array_equal(output, VALUES)
