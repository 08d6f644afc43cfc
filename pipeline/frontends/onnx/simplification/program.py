"""Program that simplifies a model from standard input to output."""

from __future__ import annotations

import sys

import onnx

from .folding import fold_shapes
from .functions import expand_functions


def main() -> int:
    """Simplify a model; arguments are operators to inline."""
    try:
        model = fold_shapes(expand_functions(onnx.ModelProto.FromString(sys.stdin.buffer.read()), sys.argv[1:]))
    except Exception as error:  # noqa: BLE001 - NumPy and the converter raise several unrelated types
        print(str(error).strip() or type(error).__name__, file=sys.stderr)
        return 1
    sys.stdout.buffer.write(model.SerializeToString())
    return 0
