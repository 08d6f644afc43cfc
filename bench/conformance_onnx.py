"""ONNX: the cases that the onnx package ships for backends (node, simple, operators and models from PyTorch).

Each is compared with its own expected outputs, with its own tolerances.  Due are those that ONNX Runtime's CPU provider
passes.
"""

from __future__ import annotations

import functools
import tempfile
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from conformance_trial import Data, Tolerance, attempt, by_pipeline, compare

RUNTIME = "ONNX Runtime"
KINDS = ("node", "simple", "pytorch-operator", "pytorch-converted")

# Of the cases, in their order: every so many with --quick.
QUICK_STRIDE = 40


def case_names(every: int) -> list[tuple[str, str]]:
    """Return kind and name of each case, or of every so many."""
    return [(kind, case.name) for kind in KINDS for case in load_cases(kind)][::every]


@functools.cache
def load_cases(kind: str) -> list[Any]:
    """Return the onnx package's cases of one kind."""
    from onnx.backend.test import loader

    with warnings.catch_warnings():  # some cases divide by zero on purpose while they are made
        warnings.simplefilter("ignore")
        return list(loader.load_model_tests(kind=kind))


def judge(kind: str, name: str, *, fallback: bool) -> tuple[bool, str]:
    """Return whether ONNX Runtime passes, and why we do not."""
    case = next(case for case in load_cases(kind) if case.name == name)
    tolerance = Tolerance(case.rtol, case.atol)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.onnx"
        model = load_model(case)
        path.write_bytes(model.SerializeToString())
        data = list(data_sets(case, model))
        # A case that ONNX Runtime has no kernel for, or another opinion of, is not due.
        is_due = not attempt(lambda: by_onnxruntime(path, data, tolerance))
        return is_due, attempt(lambda: by_pipeline(path, data, tolerance, fallback=fallback))


def load_model(case: Any) -> Any:
    """Return a case's model, from memory or from its folder."""
    import onnx

    return case.model if case.model is not None else onnx.load(Path(case.model_dir) / "model.onnx")


def data_sets(case: Any, model: Any) -> Iterator[tuple[dict[str, Any], list[Any]]]:
    """Yield inputs by name and expected outputs."""
    initial = {tensor.name for tensor in model.graph.initializer}
    values = [value for value in model.graph.input if value.name not in initial]
    if case.data_sets is not None:
        for inputs, outputs in case.data_sets:
            yield dict(zip((value.name for value in values), inputs, strict=False)), list(outputs)
        return
    for folder in sorted(Path(case.model_dir).glob("test_data_set_*")):
        inputs = [load_value(folder / f"input_{number}.pb", value) for number, value in enumerate(values)]
        outputs = [load_value(folder / f"output_{n}.pb", value) for n, value in enumerate(model.graph.output)]
        yield dict(zip((value.name for value in values), inputs, strict=True)), outputs


def load_value(path: Path, value: Any) -> Any:
    """Return a tensor or a sequence of tensors that a file holds."""
    import onnx
    from onnx import numpy_helper

    content = path.read_bytes()
    if value.type.WhichOneof("value") == "sequence_type":
        return numpy_helper.to_list(onnx.SequenceProto.FromString(content))
    return numpy_helper.to_array(onnx.TensorProto.FromString(content))


def by_onnxruntime(path: Path, data: Data, tolerance: Tolerance) -> None:
    """Raise unless ONNX Runtime's CPU provider passes."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    for inputs, expected in data:
        compare(session.run(None, inputs), expected, tolerance)
