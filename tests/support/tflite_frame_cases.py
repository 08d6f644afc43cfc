"""TFLite models of one operator, whose indices, lengths and divisors come with the frame as well."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import tflite_cases
from tflite_writer import TfliteWriter

X = ((6, 8), "float32")
I = ((4,), "int32")  # noqa: E741 - short for indices
SCALAR = ((), "int32")
OPERATORS: list[tuple[str, list[Any], Any, dict[str, Any]]] = [
    ("GATHER", [X, I], ((4, 8), "float32"), {"options": "GatherOptions"}),
    ("GATHER", [X, ((4,), "int64")], ((6, 4), "float32"), {"options": "GatherOptions", "axis": 1}),
    ("GATHER", [((6, 8), "int8"), I], ((4, 8), "int8"), {"options": "GatherOptions"}),
    ("GATHER_ND", [X, ((3, 2), "int32")], ((3,), "float32"), {}),
    ("GATHER_ND", [X, ((3, 1), "int64")], ((3, 8), "float32"), {}),
    ("SCATTER_ND", [((4, 1), "int32"), ((4, 8), "float32"), np.array([6, 8], np.int32)], ((6, 8), "float32"), {}),
    ("EMBEDDING_LOOKUP", [I, X], ((4, 8), "float32"), {}),
    ("ONE_HOT", [I, np.int32(5), np.float32(1), np.float32(0)], ((4, 5), "float32"),
     {"options": "OneHotOptions", "axis": -1}),
    ("REVERSE_SEQUENCE", [X, ((6,), "int32")], ((6, 8), "float32"),
     {"options": "ReverseSequenceOptions", "seqDim": 1, "batchDim": 0}),
    ("SEGMENT_SUM", [X, ((6,), "int32")], ((6, 8), "float32"), {}),
    ("UNSORTED_SEGMENT_SUM", [X, ((6,), "int32"), np.int32(4)], ((4, 8), "float32"), {}),
    ("UNSORTED_SEGMENT_MAX", [X, ((6,), "int32"), np.int32(4)], ((4, 8), "float32"), {}),
    ("DYNAMIC_UPDATE_SLICE", [X, ((2, 3), "float32"), ((2,), "int32")], ((6, 8), "float32"), {}),
    ("SLICE", [X, ((2,), "int32"), np.array([2, 3], np.int32)], ((2, 3), "float32"), {"options": "SliceOptions"}),
    ("CUMSUM", [X, SCALAR], ((6, 8), "float32"), {"options": "CumsumOptions"}),
    ("ARG_MAX", [X, SCALAR], ((6,), "int32"), {"options": "ArgMaxOptions", "outputType": 2}),
    ("REVERSE_V2", [X, ((1,), "int32")], ((6, 8), "float32"), {}),
    ("TRANSPOSE", [((6, 6), "float32"), ((2,), "int32")], ((6, 6), "float32"), {"options": "TransposeOptions"}),
    ("SELECT_V2", [((6, 8), "bool"), X, X], ((6, 8), "float32"), {}),
    ("FILL", [np.array([2, 3], np.int32), ((), "float32")], ((2, 3), "float32"), {"options": "FillOptions"}),
    ("MATRIX_SET_DIAG", [((6, 6), "float32"), ((6,), "float32")], ((6, 6), "float32"), {}),
    *(
        (kind, [((4, 8), dtype), ((4, 8), dtype)], ((4, 8), dtype), {})
        for kind, dtypes in {
            "DIV": ("int32", "float32"), "FLOOR_DIV": ("int8", "int16", "int32", "float32"),
            "FLOOR_MOD": ("int8", "int16", "int32", "int64", "float32"), "POW": ("int32", "float32"),
            "RIGHT_SHIFT": ("int8", "uint8", "int16", "int32"),
        }.items() for dtype in dtypes
    ),
    *(
        ("CAST", [((4, 8), source)], ((4, 8), target), {"options": "CastOptions"})
        for source, target in (("float32", "int32"), ("float32", "int8"), ("float32", "int64"), ("int32", "float32"))
    ),
    ("CAST", [((4,), "float32")], I, {"options": "CastOptions"}),
]  # fmt: skip


def contents() -> Iterator[tuple[str, Callable[[], bytes]]]:
    """Yield names of cases, with functions that return their files."""
    for number, operator in enumerate(OPERATORS):
        yield f"{operator[0]} {number}", functools.partial(_write, *operator)
    for kind, (_, dtypes) in tflite_cases.KINDS.items():
        for dtype in dtypes:
            yield f"{kind} of {dtype}", functools.partial(_random, kind, dtype)


def _random(kind: str, dtype: str) -> bytes:
    return tflite_cases.make_case(kind, dtype, 1).content


def _write(kind: str, operands: list[Any], output: Any, options: dict[str, Any]) -> bytes:
    writer = TfliteWriter()
    inputs = [writer.input(*each) if isinstance(each, tuple) else writer.constant(each) for each in operands]
    result = writer.tensor(*output)
    writer.add(kind, inputs, [result], **options)
    return writer.content(result)
