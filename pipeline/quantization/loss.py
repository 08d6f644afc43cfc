"""Loss: distance of a quantised model's outputs from the original's."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from pipeline.errors import InputError
from pipeline.system.optional import require

Outputs = list[npt.NDArray[np.float64]]


@dataclass(frozen=True)
class Loss:
    """The cost of quantising."""

    frames: int
    """Number of compared frames."""
    signal_to_noise_db: float
    """Power of the original's first output over that of the difference."""
    agreement: float
    """Share of frames whose largest value is at the same place."""
    accuracy_before: float | None = None
    accuracy_after: float | None = None
    """Share of frames whose largest value is at the label's place; None without labels."""


def measure_loss(
    original: Path,
    quantized: Path,
    frames: Sequence[Mapping[str, np.ndarray]],
    labels: npt.NDArray[np.int64] | None = None,
) -> Loss:
    """Run two ONNX models on frames; raises as `compare_losses`."""
    return compare_losses(outputs(original, frames), outputs(quantized, frames), labels)


def compare_losses(originals: Outputs, results: Outputs, labels: npt.NDArray[np.int64] | None = None) -> Loss:
    """Return the loss between two models' outputs for the same frames.

    Raises `InputError` if there is not one label for each frame.
    """
    if labels is not None and len(labels) != len(originals):
        raise InputError(f"there are {len(labels)} labels for {len(originals)} frames; give one for each")
    noise = float(sum(np.square(a - b).sum() for a, b in zip(originals, results, strict=True)))
    signal = float(sum(np.square(output).sum() for output in originals))
    classes = [np.array([output.argmax() for output in answers]) for answers in (originals, results)]
    accuracy = [None if labels is None else float((output == labels).mean()) for output in classes]
    # Equal outputs have no noise; outputs of zeros have no signal to compare it with.
    decibels = 10 * float(np.log10(signal / noise)) if noise and signal else float("inf")
    return Loss(len(originals), decibels, float((classes[0] == classes[1]).mean()), *accuracy)


def outputs(path: Path, frames: Sequence[Mapping[str, np.ndarray]], *, fused: bool = True) -> Outputs:
    """Return a model's first output for each frame.

    Without `fused`, each operator is computed as ONNX defines it.
    """
    runtime = require("onnxruntime", "quantize", "running a model")
    options = runtime.SessionOptions()
    # Errors only: warnings about a model are for its maker.
    options.log_severity_level = 3
    # Fused, sums of int8 overflow 16 bits on x86 processors without VNNI.
    if not fused:
        options.graph_optimization_level = runtime.GraphOptimizationLevel.ORT_DISABLE_ALL
    # Here and not above: losses of models of other formats need no onnx.
    from pipeline.frontends.onnx.reference import open_session

    session = open_session(path, options)
    return [np.asarray(session.run(None, dict(frame))[0], np.float64) for frame in frames]
