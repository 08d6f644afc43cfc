"""Convolutions by Winograd's transforms beside direct ones, one thread: which are faster, and which are chosen.

    python bench/winograd.py

Both sides take turns in one process.  Times are the shortest of the processor's.

direct_us       the direct computation
tiles2_us       transformed tiles of 2 x 2 results, in the chunks of the estimate
tiles4_us       the same of 4 x 4
gain            the direct computation over the fastest
choice          what a build takes: 0 for the direct computation, else the tile
ratio           the choice over the fastest; 1 where the choice is right
bound           the bound on the choice's errors, from the weights
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from time import process_time_ns
from typing import Any

import numpy as np
from report import Row, parser, report
from tvm import relax, runtime

from pipeline.core.board.board import Device
from pipeline.core.numerics import Numerics
from pipeline.executor import build, kernels
from pipeline.executor.kernels import microarchitecture, registry
from pipeline.executor.kernels.layout.rewriter import Rewrite
from pipeline.executor.kernels.tiles.conv_shape import ConvShape
from pipeline.executor.kernels.winograd import error
from pipeline.executor.kernels.winograd import form as forms
from pipeline.executor.kernels.winograd.transforms import OUTPUTS
from pipeline.executor.kernels.winograd.winograd import WinogradConvolution
from pipeline.system.threads import run_in_thread
from pipeline.tvm.access import compiler_lock, tvm

# Channels, output channels and side: of U-Net, ResNet, YOLOv8n, detectors and segmentation.
SHAPES = (
    (64, 64, 128), (128, 128, 64), (64, 64, 56), (128, 128, 28), (256, 256, 14), (512, 512, 7), (128, 64, 128),
    (256, 128, 64), (512, 256, 32), (512, 512, 32), (16, 16, 160), (32, 32, 80), (64, 64, 40), (64, 64, 80),
    (128, 128, 20), (64, 80, 80), (80, 80, 40), (32, 32, 112), (48, 48, 56), (96, 96, 28), (192, 192, 14), (24, 24, 64),
)  # fmt: skip
QUICK = 6
TURNS = 40


def main() -> None:
    """Measure all shapes and report."""
    options = parser(__doc__)
    options.add_argument("--precision", default="float32", help="of direct products (default: float32)")
    arguments = options.parse_args()
    shapes = SHAPES[:QUICK] if arguments.quick else SHAPES
    rows = [run_in_thread(partial(measure, shape, arguments.precision), "bench") for shape in shapes]
    report("3x3 convolutions, one thread", rows, (__doc__ or "").rpartition("\n\n")[2], arguments.json)


def measure(shape: tuple[int, int, int], precision: str) -> Row:
    """Time one convolution each way, in turns."""
    channels, out_channels, side = shape
    conv = ConvShape(1, side, side, channels, side, side, out_channels, (3, 3), (1, 1), (1, 1), (1, 1, 1, 1))
    weights = np.random.default_rng(0).standard_normal((out_channels, channels, 3, 3)).astype(np.float32)
    target = kernels.target_for(build.target_of(Device("cpu")))
    cpu = replace(microarchitecture.of_target(target), arithmetic=Numerics(precision).arithmetic)
    direct = [rewrite for rewrite in registry.REWRITES if not isinstance(rewrite, WinogradConvolution)]
    sides: dict[str, Sequence[Rewrite]] = {"direct": direct}
    for outputs in OUTPUTS:
        form = forms.best(conv, cpu, outputs)
        sides[f"tiles{outputs}"] = [WinogradConvolution(lambda *_, form=form: form), *direct]
    programs = [program(conv, weights, target, Numerics(precision), rewrites) for rewrites in sides.values()]
    data = runtime.tensor(np.random.default_rng(1).standard_normal((1, side, side, channels)).astype(np.float32))
    times = time_turns([partial(run, data) for run in programs])
    # Products of bfloat16 are taken directly wherever they are there.
    choice = None if cpu.arithmetic == "bfloat16" else forms.choose_form(conv, cpu, weights)
    chosen = times[0 if choice is None else 1 + OUTPUTS.index(choice.outputs)]
    return {
        "shape": "x".join(map(str, shape)),
        **{f"{name}_us": nanoseconds / 1e3 for name, nanoseconds in zip(sides, times, strict=True)},
        "gain": times[0] / min(times),
        "choice": choice.outputs if choice else 0,
        "ratio": chosen / min(times),
        "bound": error.bound(weights, choice.outputs) if choice else 0.0,
    }


def program(
    conv: ConvShape, weights: np.ndarray, target: Any, numerics: Numerics, rewrites: Sequence[Rewrite]
) -> Callable[[Any], Any]:
    """Compile a convolution with channels last inside and outside."""
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType((1, conv.channels, conv.height, conv.width), "float32"))
    with builder.function("main", [x]):
        with builder.dataflow():
            result = relax.op.nn.conv2d(x, relax.const(weights), padding=conv.pads)
            output = builder.emit_output(relax.op.nn.relu(builder.emit(result)))
        builder.emit_func_output(output)
    with compiler_lock:
        module = kernels.optimise(builder.get(), target, 1, {"x"}, numerics=numerics, rewrites=rewrites)
        executable = relax.build(
            module, target, relax_pipeline=kernels.pipeline(target), tir_pipeline=kernels.tir_pipeline(target)
        )
    return relax.VirtualMachine(executable, tvm.cpu())["main"]  # type: ignore[no-any-return]


def time_turns(runs: Sequence[Callable[[], Any]]) -> list[float]:
    """Return each one's shortest nanoseconds; they take turns."""
    times = [float("inf")] * len(runs)
    for _ in range(TURNS):
        for number, run in enumerate(runs):
            run()
            for _ in range(3):
                begin = process_time_ns()
                run()
                times[number] = min(times[number], process_time_ns() - begin)
    return times


if __name__ == "__main__":
    main()
