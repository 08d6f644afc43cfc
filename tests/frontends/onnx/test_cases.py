"""The cases of the onnx package's own tests: each is read or refused, none hangs the reader or breaks it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import onnx
import pytest

import pipeline
from pipeline.errors import ModelError, PipelineError
from tests.support.onnx_cases import cases
from tests.support.onnx_models import assert_close, by_onnxruntime, frame, in_stages, node, save
from tests.support.time_limits import time_limit

SIMPLE = Path(str(onnx.__file__)).parent / "backend/test/data/simple"
LIMIT = 30.0
"""Seconds that reading a case may take; the longest takes one."""


@pytest.mark.parametrize("number", [1, 2, 4, 5])
def test_sequences_of_tensors(number: int) -> None:
    path = SIMPLE / f"test_sequence_model{number}" / "model.onnx"
    with time_limit(LIMIT):
        graph = pipeline.read(path)
    values = frame(graph)
    assert_close(in_stages(graph, [], values), by_onnxruntime(path, values))


def test_a_tensor_in_place_of_a_sequence(tmp_path: Path) -> None:
    nodes = [node("ConcatFromSequence", "x", "y", "glue", axis=0)]
    path = save(tmp_path / "m.onnx", nodes, {"x": (2, 3)}, ["y"])
    with time_limit(LIMIT), pytest.raises(ModelError, match=r"glue|valid ONNX"):
        pipeline.read(path)


def test_a_sequence_in_place_of_a_tensor(tmp_path: Path) -> None:
    nodes = [
        node("SequenceConstruct", "x x", "s"),
        node("Optional", "s", "t"),
        node("OptionalHasElement", "t", "y"),
    ]
    path = save(tmp_path / "m.onnx", nodes, {"x": (2, 3)}, ["y"], dtypes={"y": onnx.TensorProto.BOOL}, opset=18)
    with pytest.raises(ModelError, match=r"Optional.*takes a sequence, which only operators for sequences can"):
        pipeline.read(path, fallback=False)


def models() -> Iterator[tuple[str, bytes]]:
    """Names and contents of all models that the package makes or ships."""
    yield from ((name, case.model.SerializeToString()) for name, case in cases().items())
    yield from ((path.parent.name, path.read_bytes()) for path in sorted(SIMPLE.glob("*/model.onnx")))


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_every_case_is_read_or_refused(tmp_path: Path) -> None:
    results = {"read": 0, "refused": 0}
    for name, content in models():
        (tmp_path / "case.onnx").write_bytes(content)
        try:
            with time_limit(LIMIT):
                pipeline.read(tmp_path / "case.onnx")
            results["read"] += 1
        except PipelineError:
            results["refused"] += 1
        except BaseException as error:
            raise AssertionError(f"{name}: {type(error).__name__}: {error}") from error
    assert results["read"] > 700, results
