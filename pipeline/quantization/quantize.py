"""From an ONNX model and frames to a quantised model."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from pipeline.errors import InputError, ModelError
from pipeline.extras import require
from pipeline.files import write_atomically
from pipeline.plans import TensorSpec
from pipeline.quantization import floats, powers

Frames = Sequence[Mapping[str, np.ndarray]]

_EXTRA, _PURPOSE = "quantize", "quantising a model"
_KINDS = {1: "float32", 2: "uint8", 3: "int8", 6: "int32", 7: "int64", 10: "float16", 11: "float64"}


def inputs(path: Path) -> tuple[TensorSpec, ...]:
    """Return the inputs of an ONNX model.

    Raises
    ------
    ModelError
        If it is no ONNX model, or an input has no fixed shape.
    """
    graph = load(path).graph
    constants = {each.name for each in graph.initializer}
    return tuple(_spec(each) for each in graph.input if each.name not in constants)


def load(path: Path) -> Any:
    """Return an ONNX model; raises as `inputs`."""
    onnx = require("onnx", _EXTRA, _PURPOSE)
    try:
        return onnx.load(path)
    except OSError as error:
        raise ModelError(f"cannot read {str(path)!r}: {error.strerror or error}") from None
    except Exception as error:  # noqa: BLE001 - whatever its parser stumbles over
        raise ModelError(f"{str(path)!r} is not an ONNX model: {error}") from None


def quantize(path: Path, frames: Frames, output: Path, *, power_of_two: bool = False) -> None:
    """Write a model whose convolutions and products are of int8.

    Parameters
    ----------
    path : Path
        An ONNX model in floating point; with `power_of_two` also a quantised one, whose scales shall become powers of
        two.
    frames : sequence of mapping of str to numpy.ndarray
        Inputs by name, such as the model will see: they say which values occur.
    output : Path
        Where to write.
    power_of_two : bool
        Whether all scales shall be powers of two and all zero points 0, so that VTA can run the model.

    Raises
    ------
    MissingExtra
        If onnxruntime or onnx is not installed.
    InputError
        If there are no frames, or one has infinite values or NaN.
    ModelError
        If the model cannot be quantised.
    """
    _check(frames)
    require("onnxruntime", _EXTRA, _PURPOSE)
    model = load(path)
    if floats.is_quantized(model):
        if not power_of_two:
            raise ModelError(f"{str(path)!r} is quantised already; --power-of-two makes its scales powers of two")
        model = floats.restored(model)
    with tempfile.TemporaryDirectory() as folder:
        plain, made = _prepared(model, Path(folder)), Path(folder) / "quantized.onnx"
        _static(plain, made, frames, signed=power_of_two)
        quantized = load(made)
        if power_of_two:
            powers.restrict(quantized, load(plain))
    write_atomically(output, quantized.SerializeToString(deterministic=True))


def _check(frames: Frames) -> None:
    if not frames:
        raise InputError("there are no frames to calibrate with; give at least one")
    for number, frame in enumerate(frames):
        for name, array in frame.items():
            if not np.isfinite(array).all():
                raise InputError(f"frame {number} to calibrate with has infinite values or NaN in {name!r}")


def _prepared(model: Any, folder: Path) -> Path:
    """Write the model with batch norms folded and shapes inferred, as the quantiser wants it."""
    onnx = require("onnx", _EXTRA, _PURPOSE)
    prepare = require("onnxruntime.quantization.shape_inference", _EXTRA, _PURPOSE).quant_pre_process
    given, made = folder / "given.onnx", folder / "prepared.onnx"
    onnx.save(model, given)
    try:
        prepare(str(given), str(made), skip_symbolic_shape=True)
    except Exception as error:
        raise ModelError(f"ONNX Runtime cannot prepare the model: {error}") from error
    return made


def _static(plain: Path, made: Path, frames: Frames, *, signed: bool) -> None:
    """Let ONNX Runtime quantise; in its own way, unless bytes shall be signed with zero points of 0."""
    quantization = require("onnxruntime.quantization", _EXTRA, _PURPOSE)
    kind = quantization.QuantType
    options = {"ActivationSymmetric": signed, "WeightSymmetric": True}
    try:
        quantization.quantize_static(
            str(plain),
            str(made),
            _reader(quantization, frames),
            quant_format=quantization.QuantFormat.QDQ,
            activation_type=kind.QInt8 if signed else kind.QUInt8,
            weight_type=kind.QInt8,
            per_channel=True,
            extra_options=options,
        )
    except Exception as error:
        raise ModelError(f"ONNX Runtime cannot quantise the model: {error}") from error


def _reader(quantization: Any, frames: Frames) -> Any:
    class Reader(quantization.CalibrationDataReader):  # type: ignore[misc]
        def __init__(self) -> None:
            self._left = iter(frames)

        def get_next(self) -> dict[str, np.ndarray] | None:
            found = next(self._left, None)
            return None if found is None else dict(found)

    return Reader()


def _spec(value: Any) -> TensorSpec:
    tensor = value.type.tensor_type
    extents = [dim.dim_value for dim in tensor.shape.dim]
    kind = _KINDS.get(tensor.elem_type)
    if kind is None or not all(extents):
        raise ModelError(
            f"input {value.name!r} has no fixed shape, or an unusual type; export the model with fixed ones"
        )
    return TensorSpec(value.name, tuple(extents), kind)
