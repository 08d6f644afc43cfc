"""ncnn: Arm and x86 cores, and GPUs through Vulkan."""

from __future__ import annotations

import json
import re
import tempfile
from collections.abc import Mapping, Sequence
from importlib import metadata, util
from pathlib import Path
from typing import Any

import numpy as np

from pipeline.core.board.board import Device
from pipeline.core.plan.plan import StagePlan
from pipeline.errors import BoardError, BuildError, MissingExtra
from pipeline.executor.devices.model_runtime import (
    ModelRuntime,
    OpenedModel,
    allows_fallback,
    describe_locations,
    table_of_options,
)
from pipeline.executor.devices.model_tool import LIMIT_S, ModelTool
from pipeline.executor.stage_code import StageCode
from pipeline.executor.stage_source import StageSource
from pipeline.system.distribution import install_command
from pipeline.system.optional import is_installed, require

_DEVICE = re.compile(r"CPU|GPU(\.\d+)?", re.ASCII)

_BATCH_AXES = re.compile(r"\b((?:in|out)\d+)\.numpy\([), ]*batch_index=(\d+)\)")
"""Batch axis of each end, in the example that pnnx writes beside a model."""

NO_BATCH = 233
"""Axis of tensors without a batch, by ncnn's convention."""

# Layers that always write memory of their own. Others may compute in their input's, which is the caller's.
_READERS = {"Convolution", "ConvolutionDepthWise", "Deconvolution", "InnerProduct"}


class NcnnRuntime(ModelRuntime):
    """Runs stages by ncnn, converted by pnnx.

    The target has ``device``, ``"CPU"`` by default, or ``"GPU"`` or ``"GPU.1"`` for a Vulkan device; and ``options`` of
    the network, such as ``{ use_winograd_convolution = false }``.
    """

    title = "ncnn"
    package = extra = "ncnn"
    target_keys = ("device", "options")

    @classmethod
    def check(cls, device: Device) -> None:
        """Raise `BoardError` if the target is none."""
        super().check(device)
        name = _device_name(device)
        if not isinstance(name, str) or not _DEVICE.fullmatch(name):
            raise BoardError(f"device is {name!r}; it must be 'CPU', 'GPU', or 'GPU.1' for the second one")
        _options(device)

    @classmethod
    def find_targets(cls) -> Sequence[str]:
        """Return the CPU and Vulkan's devices."""
        return ("CPU", *(f"GPU.{number}" for number in range(_library().get_gpu_count())))

    @classmethod
    def why_unusable(cls, device: Device) -> str:
        """Explain if Vulkan lacks the device here."""
        number = _gpu(device)
        if number is None or number < (count := _library().get_gpu_count()):
            return ""
        return f"ncnn finds no device {_device_name(device)!r} here; Vulkan has {count}"

    @classmethod
    def fingerprint(cls, device: Device) -> str:  # noqa: ARG003 - all answer alike
        """Return the versions of ncnn and pnnx."""
        return f"{cls.version()} and pnnx {metadata.version('pnnx')}"

    @classmethod
    def is_selective(cls, device: Device) -> bool:  # noqa: ARG003 - operators without a layer run nowhere
        """Test for ncnn and pnnx."""
        return cls.is_installed() and is_installed("pnnx")

    @staticmethod
    def find_fallbacks(model: bytes, device: Device) -> Mapping[str, str]:
        """Return operators without a layer in ncnn, or without Vulkan."""
        try:
            parts = _convert(model)
        except BuildError as error:
            # Also where pnnx crashes, as it does of some operators: that answer is worth keeping.
            return dict.fromkeys(_operator_names(model), str(error).splitlines()[0])
        unknown = dict.fromkeys(_find_unknown(model, parts[1]), "ncnn has no such layer")
        is_asked = NcnnRuntime.is_here(device) and not allows_fallback(device)
        return unknown or (_find_fallbacks(model, parts, device) if is_asked else {})

    @classmethod
    def compile_stage(cls, source: StageSource, device: Device) -> StageCode:
        """Write a stage as ONNX and convert it by pnnx.

        Raises `BuildError` if the stage has no such form, pnnx fails, or ncnn lacks a layer, or lacks it in Vulkan.
        """
        model = cls._serialize_checked(source, device)
        parts = _convert(model)
        if unknown := _find_unknown(model, parts[1]):
            raise BuildError(f"ncnn has no layer for {', '.join(unknown)}; choose another runtime, or cut around them")
        if cls.is_here(device):
            cls._refuse_fallbacks(describe_locations(_find_fallbacks(model, parts, device)), device)
        return cls._stage_code(b"\0".join(parts), ".ncnn", cls.version())

    def open_model(self, model: bytes, stage: StagePlan, cores: Sequence[int]) -> OpenedModel:
        """Open a network, with one thread per core."""
        parts = model.split(b"\0", 2)
        net = _open_net(parts, self.device, len(cores) or 1, stage.options.precision)
        cpu_layers = [f"{name} of kind {kind}" for name, kind in _cpu_layers(net).items()]
        self._refuse_fallbacks(describe_locations(dict.fromkeys(cpu_layers, "the CPU")), self.device)
        axes = json.loads(parts[0])
        reads = {blob for layer in net.layers() if layer.type in _READERS for blob in layer.bottoms}
        shared = {name for name, blob in zip(net.input_names(), net.input_indexes(), strict=True) if blob in reads}

        def compute(arrays: Sequence[np.ndarray]) -> Sequence[np.ndarray]:
            extractor = net.create_extractor()
            # What is handed over without a copy has to outlive the extractor's work.
            kept = [np.ascontiguousarray(array) for array in arrays]
            for number, array in enumerate(kept):
                name = f"in{number}"
                value = _tensor(array, axes[name])
                # Its kernels believe that channels begin at multiples of 16 bytes.
                extractor.input(name, value if name in shared and value.cstep % 4 == 0 else value.clone())
            return [_extract(extractor, f"out{number}", axes, spec.shape) for number, spec in enumerate(stage.outputs)]

        return OpenedModel(compute)


def _tensor(array: np.ndarray, axis: int) -> Any:
    """Return ncnn's tensor of an array; it shares the memory of a batch of one."""
    is_single = axis != NO_BATCH and array.shape[axis] == 1
    return _library().Mat(*((array.squeeze(axis),) if is_single else (array, axis)))


def _extract(extractor: Any, name: str, axes: Mapping[str, int], shape: Sequence[int]) -> np.ndarray:
    status, value = extractor.extract(name)
    if status:
        raise BuildError(f"ncnn ended with status {status} at {name}")
    # ncnn pads channels to whole vectors.
    return np.ascontiguousarray(value.numpy(batch_index=axes[name] if value.n > 1 else NO_BATCH)).reshape(shape)


def _convert(model: bytes) -> list[bytes]:
    """Return batch axes, layers and weights, written by pnnx."""
    spec = util.find_spec("pnnx")
    if spec is None or not spec.submodule_search_locations:
        raise MissingExtra(f"stages that ncnn runs: needs pnnx; {install_command('pnnx')}")
    _check_types(model)
    program = str(Path(spec.submodule_search_locations[0]) / "pnnx")
    # Weights of 16 bits are its default.
    tool = ModelTool((program, "{stage}.onnx", "fp16=0"), (), "stage.onnx", "", LIMIT_S)
    names = ("stage_ncnn.py", "stage.ncnn.param", "stage.ncnn.bin")
    try:
        example, layers, weights = tool.compile_files(model, names)
    except BuildError as error:
        raise BuildError(f"ncnn cannot run it: {error}") from None
    if not layers:
        raise BuildError("pnnx ended well, but wrote no layers of ncnn")
    axes = {name: int(axis) for name, axis in _BATCH_AXES.findall(example.decode())}
    return [json.dumps(axes).encode(), layers, weights]


def _check_types(model: bytes) -> None:
    onnx = require("onnx", "onnx", "stages that ncnn runs")
    graph = onnx.load_from_string(model).graph
    for value in (*graph.input, *graph.output):
        if value.type.tensor_type.elem_type != onnx.TensorProto.FLOAT:
            raise BuildError(f"its tensor {value.name!r} is not float32, and ncnn takes no other; cut elsewhere")


def _find_fallbacks(model: bytes, parts: Sequence[bytes], device: Device) -> dict[str, str]:
    layers = {} if _gpu(device) is None else _cpu_layers(_open_net(parts, device, 1))
    return dict.fromkeys(_operator_names(model, layers), "the CPU")


def _find_unknown(model: bytes, layers: bytes) -> list[str]:
    """Return operators that became no layer of ncnn."""
    create = _library().create_layer
    # After the magic number and the counts, a line is a layer: type, name, and more.
    lines = (line.split(maxsplit=2) for line in layers.decode().splitlines()[2:])
    return _operator_names(model, {words[1]: words[0] for words in lines if create(words[0]) is None})


def _cpu_layers(net: Any) -> dict[str, str]:
    """Return the types of a Vulkan network's layers on the CPU, by name."""
    layers = net.layers() if net.opt.use_vulkan_compute else ()
    return {layer.name: layer.type for layer in layers if not layer.support_vulkan}


def _operator_names(model: bytes, layers: Mapping[str, str] | None = None) -> list[str]:
    """Return the model's names of all operators, or of some layers, where pnnx drops them."""
    nodes = require("onnx", "onnx", "stages that ncnn runs").load_from_string(model).graph.node
    kinds: dict[str, list[str]] = {}
    for node in nodes:
        kinds.setdefault(node.op_type.lower(), []).append(f"{node.name or node.op_type} of kind {node.op_type}")
    if layers is None:
        return [name for names in kinds.values() for name in names]
    names: list[str] = []
    for name, kind in layers.items():
        # Such as Hardmax_1 of type Hardmax, grid_sample_2 of F.grid_sample, and exp_0 of UnaryOp.
        words = (word.replace("_", "").lower() for word in (kind.rpartition(".")[2], name.rpartition("_")[0]))
        operators = [operator for word in words for operator in kinds.get(word, ())]
        names += operators or [f"{name} of kind {kind}"]
    return list(dict.fromkeys(names))


def _open_net(parts: Sequence[bytes], device: Device, threads: int, precision: str | None = None) -> Any:
    """Open a converted model; the network is ncnn's ``Net``."""
    net = _library().Net()
    gpu, options = _gpu(device), net.opt
    options.num_threads = threads
    options.use_vulkan_compute = gpu is not None
    for name in ("packed", "storage", "arithmetic"):
        setattr(options, f"use_fp16_{name}", precision == "float16")
    for name, value in _options(device).items():
        if not hasattr(options, name):
            raise BoardError(f"ncnn has no option {name!r}; options are attributes of ncnn.Option")
        setattr(options, name, value)
    if gpu is not None:
        net.set_vulkan_device(gpu)
    with tempfile.TemporaryDirectory(prefix="soc-pipeline-") as folder:
        files = [Path(folder) / name for name in ("layers.param", "weights.bin")]
        for file, part in zip(files, parts[1:], strict=True):
            file.write_bytes(part)
        if net.load_param(str(files[0])) or net.load_model(str(files[1])):
            raise BuildError("ncnn does not take its layers; build it again, by the pnnx of this ncnn")
    return net


def _device_name(device: Device) -> Any:
    return (device.target or {}).get("device", "CPU")


def _gpu(device: Device) -> int | None:
    name, _, number = _device_name(device).partition(".")
    return int(number or 0) if name == "GPU" else None


def _options(device: Device) -> Mapping[str, Any]:
    return table_of_options(device, "attributes of ncnn.Option")


def _library() -> Any:
    return require("ncnn", "ncnn", "stages that ncnn runs")
