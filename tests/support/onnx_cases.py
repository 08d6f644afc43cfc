"""Cases of the onnx package's own tests, which it computes for half a minute: once for all processes."""

from __future__ import annotations

import functools
import pickle
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import onnx

from tests.support.locks import build_folder


@functools.cache
def cases() -> dict[str, Any]:
    """Return the package's cases of single operators by name."""
    with build_folder("onnx-cases") as folder:
        path = folder / f"{onnx.__version__}.pickle"
        if not path.is_file():
            _write(path)
        result: dict[str, Any] = pickle.loads(path.read_bytes())
        return result


def _write(path: Path) -> None:
    from onnx.backend.test.case.node import collect_testcases

    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        result = {case.name: case for case in collect_testcases(None) if case.model is not None}
    unfinished = path.with_suffix(".part")
    unfinished.write_bytes(pickle.dumps(result))
    unfinished.replace(path)
