"""Frame dtypes: dtypes of arrays, and so of inputs and outputs."""

from __future__ import annotations

import re

from pipeline.errors import ModelError

# What ONNX calls "float" and "double" has another name elsewhere.
_FRAMES = re.compile(r"bool|u?int(8|16|32|64)|float(16|32|64)?|double|complex(64|128)")


def check_dtype(model: str, name: str, dtype: str) -> None:
    """Raise `ModelError` for an input or output in another dtype."""
    if not _FRAMES.fullmatch(dtype):
        raise ModelError(
            f"{model}: {name!r} is of {dtype}, which arrays do not have; let the model cast it, "
            "from or to float32 for example"
        )
