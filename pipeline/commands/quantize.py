"""``soc-pipeline quantize``: make an int8 model and report its loss."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pipeline
from pipeline.commands.shared import card_options, console, models, values
from pipeline.errors import InputError
from pipeline.system.files import check_regular

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from pipeline.core.model_card import ModelCard
    from pipeline.core.plan.plan import TensorSpec
    from pipeline.core.scale_limits import ScaleLimits
    from pipeline.core.tensor_quantization import Quantization
    from pipeline.quantization.loss import Loss

HELP = (
    "Quantise an ONNX model to int8, with ONNX Runtime's quantiser, or round the scales of a quantised model of any "
    "format to powers of two, and measure what that costs."
)
_RANDOM_FRAMES = 8
EXAMPLE = "soc-pipeline quantize model.onnx --calibrate images/ -o model-int8.onnx --board ultra96"


def arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    models.arguments(parser)
    parser.add_argument(
        "--calibrate",
        metavar="PATH",
        nargs="+",
        help="typical inputs: .npy (one frame, or frames along a new first axis), .npz, images, or folders of these; "
        "a quantised model of another format than ONNX is compared on random ones by default",
    )
    parser.add_argument(
        "-o",
        "--output",
        metavar="FILE",
        required=True,
        help="where to write the quantised model: ONNX, or for other formats a Relax module",
    )
    parser.add_argument(
        "--power-of-two",
        action="store_true",
        help="round all scales up to powers of two, with zero points of 0, so that VTA can run the model; ONNX "
        "models are quantised anew for that, those of other formats must be quantised already",
    )
    parser.add_argument(
        "--board",
        help="what the model shall run on: a board, or a TOML file; where that has an accelerator that needs them, "
        "scales become powers of two, as far as its shifts and sums allow",
    )
    parser.add_argument("--frames", metavar="N", type=values.count, help="use at most so many inputs (default: all)")
    parser.add_argument(
        "--labels", metavar="FILE", help="a .npy of the right classes of the inputs, to measure accuracy"
    )
    card_options.arguments(parser, results=False)
    parser.add_argument("--json", action="store_true", help="print JSON instead of text")


def run(options: argparse.Namespace) -> int:
    """Calibrate, quantise, and compare both models on the same frames."""
    from pipeline import frontends
    from pipeline.frontends import formats

    output = Path(options.output)
    if not output.absolute().parent.is_dir():
        raise InputError(f"cannot write {str(output)!r}: there is no folder {str(output.parent)!r}")
    # By its content: only ONNX models are quantised from floats, by ONNX Runtime.
    is_onnx = frontends.kind(options.model) is formats.ONNX
    _show(options, _quantize_onnx(options) if is_onnx else _round_scales(options))
    return 0


def _quantize_onnx(options: argparse.Namespace) -> Loss:
    """Let ONNX Runtime quantise."""
    from pipeline.quantization import loss
    from pipeline.quantization.onnx_model import read_ends
    from pipeline.quantization.quantize import quantize

    model, output = Path(options.model), Path(options.output)
    # Refused and not ignored: whoever gives them expects that they matter.
    if options.size or options.params:
        raise InputError("--size and --params are for models of other formats than ONNX")
    if not options.calibrate:
        raise InputError(f"{options.model!r} is an ONNX model; give typical inputs with --calibrate")
    shapes = models.shapes(options)
    ends = read_ends(model, shapes)
    card = card_options.complete_card(options, ends, ends.card)
    frames = _frames(options, ends.inputs, card)
    labels = _labels(options, len(frames))
    limits: Any = {"power_of_two": options.power_of_two, "board": options.board}
    with console.progress("quantising") as step:
        quantize(model, frames, output, **limits, shapes=shapes, card=card)
        step("comparing")
        return loss.measure_loss(model, output, frames, labels)


def _round_scales(options: argparse.Namespace) -> Loss:
    """Round the scales of a quantised model."""
    from pipeline.quantization import rounding
    from pipeline.split.output_quantization import input_quantization

    if (limits := _limits(options)) is None:
        raise InputError(
            f"{options.model!r} is no ONNX model; only these are quantised, of others --power-of-two rounds the "
            "scales, and so does --board with an accelerator that needs it"
        )
    if options.size or any(isinstance(extent, str) for shape in models.shapes(options).values() for extent in shape):
        raise InputError("scales are rounded at one size: give numbers for all extents in --shape, and no --size")
    original = models.read(options)
    card = card_options.complete_card(options, original, original.card)
    scales = input_quantization(original)
    inputs = original.inputs
    frames = _frames(options, inputs, card, scales) if options.calibrate else _random(options, inputs)
    labels = _labels(options, len(frames))
    with console.progress("rounding") as step:
        rounding.round_scales(
            options.model, Path(options.output), models.shapes(options), options.params, limits, card=card
        )
        step("comparing")
        return rounding.measure_loss(original, pipeline.read(options.output), frames, labels)


def _limits(options: argparse.Namespace) -> ScaleLimits | None:
    from pipeline.quantization.quantize import limits_of

    return limits_of(options.board, power_of_two=options.power_of_two)


def _frames(
    options: argparse.Namespace, specs: Sequence[TensorSpec], card: ModelCard, scales: Sequence[Quantization] = ()
) -> list[Mapping[str, np.ndarray]]:
    from pipeline.io.sources.files import Files

    source = Files([Path(path) for path in options.calibrate], specs, card.preparation, scales)
    return [_by_name(frame.inputs, specs) for frame in islice(source, options.frames)]


def _random(options: argparse.Namespace, specs: Sequence[TensorSpec]) -> list[Mapping[str, np.ndarray]]:
    """Return frames of normally distributed floats, or full-range byte integers."""
    import numpy as np

    # Seeded, so that two runs compare on the same frames.
    generator = np.random.default_rng(0)
    return [{spec.name: _values(generator, spec) for spec in specs} for _ in range(options.frames or _RANDOM_FRAMES)]


def _values(generator: np.random.Generator, spec: TensorSpec) -> npt.NDArray[Any]:
    import numpy as np

    if spec.dtype not in ("int8", "uint8"):
        return generator.standard_normal(spec.shape).astype(spec.dtype)
    limits = np.iinfo(spec.dtype)
    # The whole range, since a model that is quantised already was calibrated for it.
    return generator.integers(limits.min, limits.max + 1, spec.shape).astype(spec.dtype)


def _by_name(arrays: Any, specs: Sequence[TensorSpec]) -> Mapping[str, np.ndarray]:
    frame: Mapping[str, np.ndarray] = arrays if isinstance(arrays, Mapping) else {specs[0].name: arrays}
    for spec in specs:
        array = frame.get(spec.name)
        if array is None or (array.shape, str(array.dtype)) != (spec.shape, spec.dtype):
            content = "nothing" if array is None else f"{array.dtype}{list(array.shape)}"
            raise InputError(f"an input to calibrate with has {content} for {spec}")
    return frame


def _labels(options: argparse.Namespace, count: int) -> npt.NDArray[np.int64] | None:
    if options.labels is None:
        return None
    import numpy as np

    path = Path(options.labels)
    try:
        check_regular(path)
        classes = np.load(path, allow_pickle=False)
    except OSError as error:
        raise InputError(f"cannot read the labels in {str(path)!r}: {error.strerror or error}") from None
    except Exception as error:  # noqa: BLE001 - damaged headers of NumPy raise what Python's parser meets in them
        raise InputError(f"cannot read the labels in {str(path)!r}: {error}") from None
    if classes.ndim != 1 or classes.dtype.kind not in "iu" or len(classes) < count:
        raise InputError(f"{str(path)!r} must hold one whole number for each of the {count} frames")
    labels: npt.NDArray[np.int64] = classes[:count].astype(np.int64)
    return labels


def _show(options: argparse.Namespace, loss: Loss) -> None:
    if options.json:
        console.print_json({"output": options.output, **asdict(loss)})
        return
    # Asked again and not kept: the board alone may have decided it.
    scales = "scales are powers of two" if _limits(options) else "scales are as calibrated"
    print(f"{options.output}: {scales}")
    frames = "frames" if options.calibrate else "random frames"
    print(
        f"On {loss.frames} {frames}, the largest output is the same on {loss.agreement:.2%}; outputs are "
        f"{loss.signal_to_noise_db:.1f} dB above their difference from the original's."
    )
    if loss.accuracy_before is not None and loss.accuracy_after is not None:
        print(f"Accuracy is {loss.accuracy_after:.2%}, and was {loss.accuracy_before:.2%}.")
