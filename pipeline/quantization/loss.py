"""Loss: how far a quantised model's outputs are from the original's."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from pipeline.errors import InputError
from pipeline.extras import require

Outputs = list[npt.NDArray[np.float64]]


@dataclass(frozen=True)
class Loss:
    """What quantising cost.

    Attributes
    ----------
    frames : int
        That were compared.
    signal_to_noise_db : float
        Power of the original's first output over that of the difference.
    agreement : float
        Share of frames whose largest value is at the same place.
    accuracy_before, accuracy_after : float or None
        Share of frames whose largest value is at the label's place; None without labels.
    """

    frames: int
    signal_to_noise_db: float
    agreement: float
    accuracy_before: float | None = None
    accuracy_after: float | None = None


def measured(
    before: Path, after: Path, frames: Sequence[Mapping[str, np.ndarray]], labels: npt.NDArray[np.int64] | None = None
) -> Loss:
    """Run both ONNX models on some frames, by ONNX Runtime; raises as `compared`."""
    return compared(outputs(before, frames), outputs(after, frames), labels)


def compared(one: Outputs, other: Outputs, labels: npt.NDArray[np.int64] | None = None) -> Loss:
    """Return the loss between the outputs of two models, for the same frames.

    Raises
    ------
    InputError
        If there is not one label for each frame.
    """
    if labels is not None and len(labels) != len(one):
        raise InputError(f"there are {len(labels)} labels for {len(one)} frames; give one for each")
    noise = float(sum(np.square(a - b).sum() for a, b in zip(one, other, strict=True)))
    signal = float(sum(np.square(each).sum() for each in one))
    chosen = [np.array([each.argmax() for each in side]) for side in (one, other)]
    accuracy = [None if labels is None else float((each == labels).mean()) for each in chosen]
    decibels = 10 * float(np.log10(signal / noise)) if noise and signal else float("inf")
    return Loss(len(one), decibels, float((chosen[0] == chosen[1]).mean()), *accuracy)


def outputs(path: Path, frames: Sequence[Mapping[str, np.ndarray]], *, fused: bool = True) -> Outputs:
    """Return a model's first output for each frame; not `fused`, each operator is computed as ONNX defines it."""
    runtime = require("onnxruntime", "quantize", "running a model")
    options = runtime.SessionOptions()
    options.log_severity_level = 3
    if not fused:
        options.graph_optimization_level = runtime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = runtime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    return [np.asarray(session.run(None, dict(frame))[0], np.float64) for frame in frames]
