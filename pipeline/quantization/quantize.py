"""Quantiser of ONNX models by frames."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from pipeline.core.card_file import CARD_KEY, encode_card
from pipeline.core.scale_limits import ScaleLimits
from pipeline.errors import InputError, ModelError
from pipeline.quantization import floats, powers
from pipeline.quantization.layer_constants import separate_constants
from pipeline.quantization.onnx_model import Shapes, check, give_shapes, load, modernize, properties
from pipeline.system.files import write_atomically
from pipeline.system.optional import require

if TYPE_CHECKING:
    from pipeline.core.board.board import Board
    from pipeline.core.model_card import ModelCard

Frames = Sequence[Mapping[str, np.ndarray]]

_EXTRA, _PURPOSE = "quantize", "quantising a model"


def quantize(  # noqa: PLR0913 - all but the first three by keyword
    path: Path,
    frames: Frames,
    output: Path,
    *,
    power_of_two: bool = False,
    board: Board | str | None = None,
    shapes: Shapes | None = None,
    card: ModelCard | None = None,
) -> None:
    """Write a model with convolutions and products in int8.

    Parameters
    ----------
    path : Path
        An ONNX model in floating point; where scales shall be powers of two also a quantised one, which is quantised
        anew.
    frames : sequence of mapping of str to numpy.ndarray
        Inputs by name, such as the model will see: they say which values occur.
    output : Path
        File to write.
    power_of_two : bool
        True if all scales shall be powers of two and all zero points 0, within what VTA's shifts and sums allow.
    board : Board or str, optional
        Board to run on: the scales are such as its accelerators need.
    shapes : mapping of str to sequence of (int or str), optional
        Numbers for open extents of inputs; those that get none remain open.
    card : ModelCard, optional
        Card to keep in the quantised model's metadata.

    Raises
    ------
    MissingExtra
        If onnxruntime or onnx is not installed.
    InputError
        If there are no frames, or one has infinite values or NaN.
    ModelError
        If the model cannot be quantised.
    BoardError
        If there is no such board.
    """
    # What costs least is checked first; calibrating takes minutes.
    limits = limits_of(board, power_of_two=power_of_two)
    _check(frames)
    require("onnxruntime", _EXTRA, _PURPOSE)
    model = modernize(load(path))
    give_shapes(model, shapes or {})
    if floats.is_quantized(model):
        if limits is None:
            raise ModelError(
                f"{str(path)!r} is quantised already; --power-of-two, or --board with an accelerator that needs it, "
                "makes its scales powers of two"
            )
        # ONNX Runtime quantises numbers only; calibrated anew, activations get zero points of 0.
        model = floats.remove_quantization(model)
    with tempfile.TemporaryDirectory() as folder:
        prepared_path, quantized_path = _prepare(model, Path(folder)), Path(folder) / "quantized.onnx"
        _quantize_static(prepared_path, quantized_path, frames, signed_bytes=limits is not None)
        quantized_model = load(quantized_path)
        if limits is not None:
            powers.restrict(quantized_model, load(prepared_path), limits)
        metadata = properties(model) | ({} if card is None else {CARD_KEY: encode_card(card)})
        require("onnx.helper", _EXTRA, _PURPOSE).set_model_props(quantized_model, metadata)
    # Last, once ONNX Runtime accepts it: a failure leaves no file.
    write_atomically(output, check(quantized_model))


def _check(frames: Frames) -> None:
    if not frames:
        raise InputError("there are no frames to calibrate with; give at least one")
    for number, frame in enumerate(frames):
        for name, array in frame.items():
            if not np.isfinite(array).all():
                raise InputError(f"frame {number} to calibrate with has infinite values or NaN in {name!r}")


def _prepare(model: Any, folder: Path) -> Path:
    """Write the model with folded norms, shapes and separate constants."""
    onnx = require("onnx", _EXTRA, _PURPOSE)
    prepare = require("onnxruntime.quantization.shape_inference", _EXTRA, _PURPOSE).quant_pre_process
    source, target = folder / "source.onnx", folder / "prepared.onnx"
    onnx.save(model, source)
    try:
        prepare(str(source), str(target), skip_symbolic_shape=True)
    except Exception as error:
        raise ModelError(f"ONNX Runtime cannot prepare the model: {error}") from error
    prepared_model = load(target)
    separate_constants(prepared_model)
    onnx.save(prepared_model, target)
    return target


def _quantize_static(source: Path, target: Path, frames: Frames, *, signed_bytes: bool) -> None:
    """Let ONNX Runtime quantise, in its way or with signed bytes. Signed bytes have zero points of 0."""
    quantization = require("onnxruntime.quantization", _EXTRA, _PURPOSE)
    kind = quantization.QuantType
    # Symmetric: zero points of 0.  Weights are so in any case, for other ones cost a correction of each sum.
    options = {"ActivationSymmetric": signed_bytes, "WeightSymmetric": True}
    try:
        quantization.quantize_static(
            str(source),
            str(target),
            _reader(quantization, frames),
            # Between pairs of QuantizeLinear and DequantizeLinear the operators remain what they were.
            quant_format=quantization.QuantFormat.QDQ,
            activation_type=kind.QInt8 if signed_bytes else kind.QUInt8,
            weight_type=kind.QInt8,
            # A scale for each channel of results: one for all gives channels of small weights few of the 256 values.
            per_channel=True,
            extra_options=options,
        )
    except Exception as error:
        raise ModelError(f"ONNX Runtime cannot quantise the model: {error}") from error


def _reader(quantization: Any, frames: Frames) -> Any:
    class Reader(quantization.CalibrationDataReader):  # type: ignore[misc]
        def __init__(self) -> None:
            self._remaining_frames = iter(frames)

        def get_next(self) -> dict[str, np.ndarray] | None:
            frame = next(self._remaining_frames, None)
            return None if frame is None else dict(frame)

    return Reader()


def limits_of(board: Board | str | None, *, power_of_two: bool = False) -> ScaleLimits | None:
    """Return the scale limits common to a board's accelerators.

    Raises `BoardError` if there is no such board. With `power_of_two`, scales shall be powers of two whatever the board
    has, then with VTA's limits at least; None stands for any scales.
    """
    limits = [ScaleLimits()] if power_of_two else []
    if board is not None:
        import boards
        from pipeline.executor import devices

        described_board = boards.get(board) if isinstance(board, str) else board
        # Processors have no compiler but TVM, and compute with any scales.
        accelerator_limits = [
            compiler.scale_limits()
            for compiler in map(devices.compiler, described_board.devices)
            if compiler is not None
        ]
        limits += [limit for limit in accelerator_limits if limit is not None]
    if not limits:
        return None
    # The strictest of each, since one model runs on all of them.
    return ScaleLimits(*(min(getattr(limit, name) for limit in limits) for name in ("shift", "factor", "sum_bits")))
