"""The runtimes that model files belong to: ONNX Runtime, LiteRT and PyTorch behind one interface; and OpenVINO.

Each has ways to compute a model, such as with and without its optimiser, whose answers differ by rounding.  How far
they lie apart says how exact an answer can be at all.
"""

from __future__ import annotations

import importlib
from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import numpy as np

from pipeline.core.plan.plan import TensorSpec

Frame = Mapping[str, np.ndarray]


class Input(NamedTuple):
    """An input of a model; its name, or None, in its shape for each extent that is open."""

    name: str
    shape: tuple[int | str | None, ...]
    dtype: str


class Runtime(ABC):
    """A model that its own runtime has loaded."""

    ways: ClassVar[tuple[str, ...]] = ("default",)
    """How it can be computed, the usual way first."""

    inputs: Sequence[Input]
    operators: int

    @abstractmethod
    def __init__(self, path: Path, way: str = "default", threads: int = 0) -> None:
        """Load a model, to be computed by so many threads; 0 leaves that to the runtime."""

    @abstractmethod
    def run(self, frame: Frame) -> list[np.ndarray]:
        """Return the outputs in the model's order."""


class OnnxRuntime(Runtime):
    ways = ("default", "unoptimised")

    def __init__(self, path: Path, way: str = "default", threads: int = 0) -> None:
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = options.inter_op_num_threads = threads
        options.log_severity_level = 4
        if way == "unoptimised":
            options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
        self._session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
        self.inputs = [self._input(value) for value in self._session.get_inputs()]

    @staticmethod
    def _input(value: Any) -> Input:
        kind = value.type.removeprefix("tensor(").removesuffix(")")
        dtype = {"float": "float32", "double": "float64"}.get(kind, kind)
        # A converter has written numbers as names.
        extents = (int(n) if isinstance(n, str) and n.isdigit() else n for n in value.shape)
        return Input(value.name, tuple(None if isinstance(n, int) and n < 1 else n for n in extents), dtype)

    def run(self, frame: Frame) -> list[np.ndarray]:
        return as_arrays(self._session.run(None, dict(frame)))


class LiteRT(Runtime):
    ways = ("default", "reference kernels", "without XNNPACK")

    def __init__(self, path: Path, way: str = "default", threads: int = 0) -> None:
        from ai_edge_litert import interpreter

        from pipeline.frontends.tflite.flatbuffer import TfliteGraph

        resolver = {
            "default": interpreter.OpResolverType.AUTO,
            "reference kernels": interpreter.OpResolverType.BUILTIN_REF,
            "without XNNPACK": interpreter.OpResolverType.BUILTIN_WITHOUT_DEFAULT_DELEGATES,
        }[way]
        self._interpreter = interpreter.Interpreter(
            model_path=str(path), num_threads=threads or None, experimental_op_resolver_type=resolver
        )
        details = self._interpreter.get_input_details()
        # Names in the file may be missing, or be those of several tensors.
        names = [tensor.name for tensor in TfliteGraph(path.read_bytes()).inputs]
        self._numbers = {name: detail["index"] for name, detail in zip(names, details, strict=True)}
        # What the file has for an open extent is 1, and runs.
        self.inputs = [
            Input(name, tuple(map(int, detail["shape"])), np.dtype(detail["dtype"]).name)
            for name, detail in zip(names, details, strict=True)
        ]
        self._interpreter.allocate_tensors()

    def run(self, frame: Frame) -> list[np.ndarray]:
        for name, number in self._numbers.items():
            self._interpreter.set_tensor(number, frame[name])
        self._interpreter.invoke()
        return [
            np.array(self._interpreter.get_tensor(each["index"])) for each in self._interpreter.get_output_details()
        ]


class PyTorch(Runtime):
    def __init__(self, path: Path, way: str = "default", threads: int = 0) -> None:  # noqa: ARG002 - it has one way
        import torch

        from pipeline.frontends.torch import signature
        from pipeline.frontends.torch.archive import open_program

        if threads:
            torch.set_num_threads(threads)
        # Without its pickles: a file of a stranger runs no code of its own.
        self._program = open_program(path)
        values = {node.name: node.meta["val"] for node in signature.user_inputs(self._program)}
        self.inputs = [
            Input(name, tuple(n if isinstance(n, int) else str(n) for n in value.shape), str(value.dtype)[6:])
            for name, value in values.items()
            if isinstance(value, torch.Tensor)
        ]

    def run(self, frame: Frame) -> list[np.ndarray]:
        from pipeline.frontends.torch.reference import evaluate

        return evaluate(self._program, frame)


class OpenVino(Runtime):
    """OpenVINO, which reads ONNX and TFLite; by default it computes in bfloat16 where the processor can."""

    ways = ("float32", "default")

    def __init__(self, path: Path, way: str = "default", threads: int = 0) -> None:
        openvino: Any = importlib.import_module("openvino")
        options: dict[str, Any] = {"PERFORMANCE_HINT": "LATENCY"}
        if threads:
            options["INFERENCE_NUM_THREADS"] = threads
        if way == "float32":
            options["INFERENCE_PRECISION_HINT"] = "f32"
        model = openvino.Core().read_model(path)
        self.inputs = [Input(part.get_any_name(), (), part.get_element_type().to_string()) for part in model.inputs]
        self._request = openvino.Core().compile_model(model, "CPU", options).create_infer_request()

    def run(self, frame: Frame) -> list[np.ndarray]:
        # By position: its names of TFLite's tensors are not the file's.
        return list(self._request.infer(list(frame.values()), share_inputs=True, share_outputs=True).values())


RUNTIMES: Mapping[str, type[Runtime]] = {".onnx": OnnxRuntime, ".tflite": LiteRT, ".lite": LiteRT, ".pt2": PyTorch}
"""By the suffix of the file."""


def as_arrays(outputs: Iterable[Any]) -> list[np.ndarray]:
    """Return outputs with lists and dictionaries taken apart, such as a classifier's probabilities by class."""
    arrays: list[np.ndarray] = []
    for output in outputs:
        if isinstance(output, Mapping):
            arrays += as_arrays([list(output), list(output.values())])
        elif isinstance(output, list) and any(isinstance(each, np.ndarray | Mapping) for each in output):
            arrays += as_arrays(output)
        elif output is not None:
            array = np.asarray(output)
            arrays.append(array.astype(str) if array.dtype.kind in "OU" else array)
    return arrays


def count_operators(path: Path) -> int:
    """Return how many operators the file has; of a TFLite file, in its main graph."""
    if path.suffix == ".onnx":
        import onnx

        return len(onnx.load(path, load_external_data=False).graph.node)
    if path.suffix == ".pt2":
        from pipeline.frontends.torch.archive import open_program

        return sum(node.op == "call_function" for node in open_program(path).graph.nodes)
    import tflite

    return int(tflite.Model.GetRootAsModel(path.read_bytes(), 0).Subgraphs(0).OperatorsLength())


# Those of an image have to be multiples of what the network's strides come to; a line of text is 48 high.
_IMAGE_EXTENTS = (224, 48)
_EXTENTS = (16, 512, 1, 64, 640)
# None is for random ones; the last is a rate of samples, of sound.
_INTEGERS = (None, 1, 16, 16_000)


def candidate_inputs(inputs: Sequence[Input]) -> list[list[TensorSpec]]:
    """Return inputs with numbers for the open extents, the likeliest first; batches are 1."""
    if not any(map(is_open, inputs)):
        return [[_close(each, set(), 1) for each in inputs]]
    batches = {each.shape[0] for each in inputs if len(each.shape) > 1 and isinstance(each.shape[0], str)}
    is_image = any(len(each.shape) == 4 for each in inputs)
    extents = (*_IMAGE_EXTENTS * is_image, *_EXTENTS)
    # Axes without names in front of the last one may all be batches.
    return [
        [_close(each, batches | set(one), extent) for each in inputs] for one in ((), (None,)) for extent in extents
    ]


def is_open(tensor: Input) -> bool:
    """Check whether an input has an extent that is no number."""
    return not all(isinstance(extent, int) for extent in tensor.shape)


def _close(tensor: Input, ones: Collection[str | int | None], extent: int) -> TensorSpec:
    """Return an input with 1 for its first axis and those that are called like `ones`, `extent` for others."""
    last = len(tensor.shape) - 1
    shape = (
        size if isinstance(size, int) else 1 if axis < last and (axis == 0 or size in ones) else extent
        for axis, size in enumerate(tensor.shape)
    )
    return TensorSpec(tensor.name, tuple(shape), tensor.dtype)


def candidate_frames(inputs: Sequence[TensorSpec], seed: int) -> list[dict[str, np.ndarray]]:
    """Return random frames, the likeliest to be valid first.

    Integers may be indices, lengths or sizes; floats normal ones, or shares and thresholds between 0 and 1.
    """
    return [
        {
            spec.name: _random_array(np.random.default_rng([seed, number]), spec, value, is_share=is_share)
            for number, spec in enumerate(inputs)
        }
        for is_share in (False, True)
        for value in _INTEGERS
    ]


def _random_array(generator: np.random.Generator, spec: TensorSpec, value: int | None, *, is_share: bool) -> np.ndarray:
    if spec.dtype == "string":
        return np.full(spec.shape, "a few words", object)
    dtype = np.dtype(spec.dtype)
    if dtype.kind == "f":
        draw = generator.random if is_share else generator.standard_normal
        return np.asarray(draw(spec.shape)).astype(dtype)
    if dtype.kind in "iu" and dtype.itemsize <= 2:  # quantised values
        limits = np.iinfo(dtype)
        return np.asarray(generator.integers(limits.min, limits.max, spec.shape, np.int64, endpoint=True)).astype(dtype)
    if dtype.kind not in "iub":
        raise ValueError(f"no random values of {spec.dtype}")
    is_random = value is None or dtype.kind == "b"
    return np.asarray(generator.integers(0, 2, spec.shape) if is_random else np.full(spec.shape, value)).astype(dtype)
