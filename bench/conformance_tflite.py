"""TFLite: models of one operator, random in shape, type, options and scale; see `tflite_cases`.

Integers have to be those of LiteRT's reference kernels bit for bit, real numbers within a tolerance.  Its default
kernels round some sums in another way, by processor: their integers differ by a step now and then.
"""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import tflite_cases
from conformance_trial import Tolerance, attempt, by_pipeline

RUNTIME = "LiteRT"
KINDS = ("float32", "int8", "uint8", "int16")
SEEDS = 20
TOLERANCE = Tolerance(1e-4, 1e-5)
"""Of real numbers; integers are never so large that it is a step."""

# Of the cases, in their order: every so many with --quick.
QUICK_STRIDE = 60


def case_names(every: int) -> list[tuple[str, str]]:
    """Return dtype and name of each case, or of every so many."""
    names = [
        (dtype, f"{kind}-{dtype}-{seed}")
        for kind, (_, dtypes) in tflite_cases.KINDS.items()
        for dtype in dtypes
        for seed in range(SEEDS)
    ]
    return names[::every]


def judge(dtype: str, name: str, *, fallback: bool) -> tuple[bool, str]:
    """Return whether LiteRT runs a case, and why we do not, with its answers."""
    kind, _, seed = name.split("-")
    content = tflite_cases.make_case(kind, dtype, int(seed)).content
    try:
        frame, expected = by_litert(content)
    except (RuntimeError, ValueError):  # what it raises for what it has no kernel for
        return False, "LiteRT has no kernel"
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.tflite"
        path.write_bytes(content)
        tolerance = TOLERANCE if dtype == "float32" else Tolerance(0, 0)
        return True, attempt(lambda: by_pipeline(path, [(frame, expected)], tolerance, fallback=fallback))


def by_litert(content: bytes) -> tuple[dict[str, np.ndarray], list[Any]]:
    """Return a random frame, and what LiteRT's reference kernels make of it."""
    from ai_edge_litert.interpreter import Interpreter, OpResolverType

    interpreter = Interpreter(model_content=content, experimental_op_resolver_type=OpResolverType.BUILTIN_REF)
    interpreter.allocate_tensors()
    frame = {}
    for number, detail in enumerate(interpreter.get_input_details()):
        frame[detail["name"]] = random_values(number, detail["shape"], np.dtype(detail["dtype"]))
        interpreter.set_tensor(detail["index"], frame[detail["name"]])
    interpreter.invoke()
    return frame, [np.array(interpreter.get_tensor(detail["index"])) for detail in interpreter.get_output_details()]


def random_values(seed: int, shape: Sequence[int], dtype: np.dtype) -> np.ndarray:
    """Return values over the whole range of integers, or real numbers around zero."""
    random = np.random.default_rng(seed)
    if dtype.kind == "f":
        return np.asarray(random.standard_normal(shape) * 2, dtype)
    limits = np.iinfo(dtype)
    return np.asarray(random.integers(limits.min, limits.max + 1, shape), dtype)
