"""TFLite files -> Relax, with the names of the model's tensors."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from pipeline.core.native_output import quietly
from pipeline.core.tvm_access import compiler_lock
from pipeline.errors import MissingExtra, ModelError, near
from pipeline.split.model import ImportedModel

try:
    import tflite  # noqa: F401 - each module of this folder needs it
except ImportError as error:
    message = "reading TFLite models needs the 'tflite' extra; run: pip install 'soc-pipeline[tflite]'"
    raise MissingExtra(message) from error

from pipeline.split.frontends.tflite.conversion import convert, has_runtime
from pipeline.split.frontends.tflite.flatbuffer import TfliteGraph


def load(path: Path, shapes: Mapping[str, Sequence[int]], *, fallback: bool = True) -> ImportedModel:
    """Read a TFLite file; `shapes` may state the extents of inputs.

    What is not converted to just what LiteRT computes is left to LiteRT if `fallback` says so and that is installed.

    Raises
    ------
    ModelError
        If the file is damaged, or uses what is not supported; all such operators are named.
    """
    with _reading(path):
        graph = TfliteGraph(path.read_bytes())
        if not graph.operators:
            raise ModelError(f"{str(path)!r} is not a valid TFLite model: it has no operators")
        _check(path, graph, shapes)
    with compiler_lock, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return quietly(lambda: convert(path, graph, fallback=fallback and has_runtime()))


@contextmanager
def _reading(path: Path) -> Iterator[None]:
    """Turn what reading a damaged file raises into a `ModelError`: each field may point beside the buffer."""
    try:
        yield
    except ModelError:
        raise
    except OSError as error:
        raise ModelError(f"cannot read {str(path)!r}: {error.strerror or error}") from None
    except Exception as error:  # noqa: BLE001 - of struct, NumPy, flatbuffers, and whatever follows a wrong number
        raise ModelError(f"{str(path)!r} is not a valid TFLite model: {error}; convert it again") from None


def _check(path: Path, graph: TfliteGraph, shapes: Mapping[str, Sequence[int]]) -> None:
    inputs = {tensor.name: tensor for tensor in graph.inputs}
    for name, tensor in inputs.items():
        table = graph.subgraph.Tensors(tensor.number)
        # The signature holds -1 where the converter left an extent open; the shape has 1 in that place.
        if table.ShapeSignatureLength() and min(table.ShapeSignatureAsNumpy()) < 0 and name in shapes:
            raise ModelError(f"input {name!r} has open extents; convert the model with fixed ones, which are checked")
    for name, shape in shapes.items():
        if name not in inputs:
            raise ModelError(f"{str(path)!r} has no input {name!r}; it has {', '.join(inputs)}{near(name, inputs)}")
        if tuple(shape) != inputs[name].shape:
            declared_shape = list(inputs[name].shape)
            raise ModelError(f"input {name!r} has the fixed shape {declared_shape}, not {list(shape)}")
