"""Cases of the fuzzer of frames: models of one operator, or of few, of all five formats, each with a right frame."""

from __future__ import annotations

import contextlib
import itertools
import os
import sys
import types
import unittest
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import pipeline
from tests.support import tflite_frame_cases
from tests.support.relax_frame_cases import relax_cases

Model = tuple[Any, dict[str, np.ndarray]]
"""A graph, with values of its inputs."""


class FrameCase(NamedTuple):
    """A model by name, read when it is its turn."""

    name: str
    read: Callable[[], Model]


def integer_cases() -> Iterator[FrameCase]:
    """Yield ONNX operators of whole numbers, of all dtypes."""
    from onnx import TensorProto, helper

    binary = {"Div": {}, "Mod": {}, "Pow": {}, "Mul": {}, "BitShift": {"direction": "LEFT"}, "Max": {}}
    for kind, (operator, attributes) in itertools.product(
        (f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)), binary.items()
    ):

        def read(operator: str = operator, kind: str = kind, attributes: dict[str, str] = attributes) -> Model:
            dtype = getattr(TensorProto, kind.upper())
            values = [helper.make_tensor_value_info(name, dtype, (4, 8)) for name in "xzy"]
            nodes = [helper.make_node(operator, ["x", "z"], ["y"], **attributes)]
            graph = helper.make_graph(nodes, "m", values[:2], values[2:])
            model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8)
            return pipeline.read(model), {name: np.full((4, 8), 3, kind) for name in "xz"}

        yield FrameCase(f"{operator} of {kind}", read)


def onnx_cases() -> Iterator[FrameCase]:
    """Yield the onnx package's node cases, but the operators of training and the functions written out."""
    from tests.support.node_cases import cases, shapes

    for case in cases():
        if case.name.endswith("_expanded") or "training" in case.model.graph.node[0].domain:
            continue

        def read(case: Any = case) -> Model:
            names = [value.name for value in case.model.graph.input]
            frame = dict(zip(names, case.data_sets[0][0], strict=False))
            return pipeline.read(case.model, shapes(case.model, frame)), frame

        yield FrameCase(case.name, read)


def tflite_cases() -> Iterator[FrameCase]:
    """Yield random operators of all dtypes, and those that take indices, lengths and divisors with the frame."""
    for name, content in tflite_frame_cases.contents():

        def read(content: Callable[[], bytes] = content) -> Model:
            path = Path(os.environ["TMPDIR"]) / "model.tflite"
            path.write_bytes(content())
            graph = pipeline.read(path)
            return graph, {spec.name: np.ones(spec.shape, spec.dtype) for spec in graph.inputs}

        yield FrameCase(name, read)


def torch_cases() -> Iterator[FrameCase]:
    """Yield the first sample of the inputs that PyTorch's own tests have for each operator."""
    # A base class of PyTorch's tests, none of which runs here.
    tests = types.ModuleType("expecttest")
    tests.TestCase = unittest.TestCase  # type: ignore[attr-defined]
    sys.modules.setdefault("expecttest", tests)
    import conformance_torch

    for kind, name in conformance_torch.case_names(conformance_torch.QUICK_STRIDE):
        del kind

        def read(name: str = name.partition("#")[0]) -> Model:
            operator = conformance_torch.operators()[name][1].op
            for sample in itertools.islice(conformance_torch.samples(name), 4):
                if (case := conformance_torch.export(operator, sample)) and all(v.size for v in case[1].values()):
                    return pipeline.read(case[0]), case[1]
            raise pipeline.errors.ModelError("PyTorch does not export it")

        yield FrameCase(name, read)


def relay_cases() -> Iterator[FrameCase]:
    """Yield the programs that the tests of the Relay reader run, which are run here in their place."""
    import pytest

    from tests.support import relay_programs

    programs: dict[str, tuple[str, Any, Any]] = {}

    def record(text: str, inputs: Any, constants: Any = None) -> Any:
        name = os.environ["PYTEST_CURRENT_TEST"].partition("::")[2].rpartition(" ")[0]
        programs.setdefault(f"{name} {len(programs)}", (text, dict(inputs), dict(constants or {})))
        pytest.skip("recorded")

    ordinary, relay_programs.results = relay_programs.results, record
    folder = Path(__file__).resolve().parents[1] / "frontends/relay"
    with Path(os.devnull).open("w") as nowhere, contextlib.redirect_stdout(nowhere):
        pytest.main([str(folder), "-q", "-p", "no:cacheprovider", "-p", "no:randomly", "-k", "not fuzz"])
    relay_programs.results = ordinary
    for name, (text, inputs, constants) in programs.items():

        def read(text: str = text, inputs: Any = inputs, constants: Any = constants) -> Model:
            complete = text if text.startswith(("#[", "{")) else f"{relay_programs.HEADER}def @main{text}"
            path = Path(os.environ["TMPDIR"]) / "model.relay"
            path.write_text(complete)
            return pipeline.read(path, params=constants or None), inputs

        yield FrameCase(name, read)


SUITES: dict[str, Callable[[], Iterator[FrameCase]]] = {
    "integers": integer_cases,
    "onnx": onnx_cases,
    "tflite": tflite_cases,
    "torch": torch_cases,
    "relay": relay_cases,
    "relax": lambda: (FrameCase(name, read) for name, read in relax_cases()),
}


def suite(name: str) -> list[FrameCase]:
    """Return a suite's cases."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return list(SUITES[name]())
