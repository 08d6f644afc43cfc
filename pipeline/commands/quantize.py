"""``soc-pipeline quantize``: make an int8 model, and say what that costs."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from pipeline.commands import common
from pipeline.errors import InputError

if TYPE_CHECKING:
    import numpy.typing as npt

    from pipeline.plans import TensorSpec
    from pipeline.quantization.loss import Loss

HELP = "Quantise an ONNX model to int8, with ONNX Runtime's quantiser, and measure what that costs."
EXAMPLE = "soc-pipeline quantize model.onnx --calibrate images/ -o model-int8.onnx --power-of-two"


def arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument("model", metavar="MODEL", help="an ONNX model; with --power-of-two also a quantised one")
    parser.add_argument(
        "--calibrate",
        metavar="PATH",
        nargs="+",
        required=True,
        help="typical inputs: .npy (one frame, or frames along a new first axis), .npz, images, or folders of these",
    )
    parser.add_argument("-o", "--output", metavar="FILE", required=True, help="where to write the quantised model")
    parser.add_argument(
        "--power-of-two",
        action="store_true",
        help="round all scales up to powers of two, with zero points of 0, so that VTA can run the model",
    )
    parser.add_argument("--frames", metavar="N", help="use at most so many inputs (default: all)")
    parser.add_argument(
        "--labels", metavar="FILE", help="a .npy of the right classes of the inputs, to measure accuracy"
    )
    parser.add_argument("--json", action="store_true", help="print JSON instead of text")


def run(options: argparse.Namespace) -> int:
    """Calibrate, quantise, and compare both models on the same frames."""
    from pipeline.io.files import Files
    from pipeline.quantization import loss
    from pipeline.quantization.quantize import inputs, quantize

    model, output = Path(options.model), Path(options.output)
    if not output.absolute().parent.is_dir():
        raise InputError(f"cannot write {str(output)!r}: there is no folder {str(output.parent)!r}")
    most = None if options.frames is None else common.whole("--frames", options.frames)
    specs = inputs(model)
    source = Files([Path(each) for each in options.calibrate], specs)
    frames = [_by_name(frame.inputs, specs) for frame in islice(source, most)]
    labels = None if options.labels is None else _labels(Path(options.labels), len(frames))
    with common.progress("quantising") as step:
        quantize(model, frames, output, power_of_two=options.power_of_two)
        step("comparing")
        measured = loss.measured(model, output, frames, labels)
    _show(options, measured)
    return 0


def _by_name(arrays: Any, specs: Sequence[TensorSpec]) -> Mapping[str, np.ndarray]:
    named: Mapping[str, np.ndarray] = arrays if isinstance(arrays, Mapping) else {specs[0].name: arrays}
    for spec in specs:
        found = named.get(spec.name)
        if found is None or (found.shape, str(found.dtype)) != (spec.shape, spec.dtype):
            given = "nothing" if found is None else f"{found.dtype}{list(found.shape)}"
            raise InputError(f"an input to calibrate with has {given} for {spec}")
    return named


def _labels(path: Path, count: int) -> npt.NDArray[np.int64]:
    try:
        found = np.load(path, allow_pickle=False)
    except (OSError, ValueError) as error:
        raise InputError(f"cannot read the labels in {str(path)!r}: {error}") from None
    if found.ndim != 1 or found.dtype.kind not in "iu" or len(found) < count:
        raise InputError(f"{str(path)!r} must hold one whole number for each of the {count} frames")
    labels: npt.NDArray[np.int64] = found[:count].astype(np.int64)
    return labels


def _show(options: argparse.Namespace, loss: Loss) -> None:
    if options.json:
        common.print_json({"output": options.output, **asdict(loss)})
        return
    scales = "scales are powers of two" if options.power_of_two else "scales are as calibrated"
    print(f"{options.output}: {scales}")
    print(
        f"On {loss.frames} frames, the largest output is the same on {loss.agreement:.2%}; outputs are "
        f"{loss.signal_to_noise_db:.1f} dB above their difference from the original's."
    )
    if loss.accuracy_before is not None and loss.accuracy_after is not None:
        print(f"Accuracy is {loss.accuracy_after:.2%}, and was {loss.accuracy_before:.2%}.")
