"""Speed of VTA's functional simulation: compiled code beside NumPy's, which the strict mode has, too.

Both sides simulate the same programs, alternating, without the estimate of the time, and must end with equal memory.
`compiled_ms` begins with a program that nobody has seen; `next_frame_ms` is the same program on its next frame, as a
simulated board runs it.  Compiling, once for all programs of an accelerator, is not in them: `compile_s`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial

import numpy as np
from report import Row, median, parser, report

from boards.vta import Result, VtaProgram, simulate
from boards.vta.compiler.layers import Addition, Convolution, MaxPool
from boards.vta.compiler.network import LayerStep, compile_network
from boards.vta.isa.config import ULTRA96
from boards.vta.simulator.compiled.interpreter import interpreter

RANDOM = np.random.default_rng(0)
PAD = (1, 1, 1, 1)


def main() -> None:
    options = parser(__doc__).parse_args()
    begin = time.perf_counter()
    interpreter(ULTRA96)
    compile_s = time.perf_counter() - begin
    rounds = 3 if options.quick else 9
    rows = [measure(name, program, rounds, compile_s) for name, program in programs(quick=options.quick)]
    report("Functional simulation of VTA", rows, (__doc__ or "").partition("\n\n")[2], options.json)


def programs(*, quick: bool) -> Iterator[tuple[str, VtaProgram]]:
    """Yield layers of ResNet-18 and small ones, and with time all that VTA computes of ResNet-18."""
    yield "3x3, 16 channels, 8x8", program((16, 8, 8), [LayerStep(convolution((16, 8, 8), 16), (0,))])
    yield "3x3, 64 channels, 56x56", program((64, 56, 56), [LayerStep(convolution((64, 56, 56), 64), (0,))])
    yield "3x3, 512 channels, 7x7", program((512, 7, 7), [LayerStep(convolution((512, 7, 7), 512), (0,))])
    yield (
        "1x1, 64 to 128, 56x56, strides 2",
        program((64, 56, 56), [LayerStep(convolution((64, 56, 56), 128, 1, strides=2), (0,))]),
    )
    yield "addition, 128x28x28", program((128, 28, 28), [LayerStep(Addition((128, 28, 28), shift=1, low=0), (0, 0))])
    yield "max pool 3x3, 64x56x56", program((64, 56, 56), [LayerStep(MaxPool((64, 56, 56), (3, 3), (2, 2), PAD), (0,))])
    if not quick:
        yield "ResNet-18 between its pools", program((64, 56, 56), resnet18())


def resnet18() -> list[LayerStep]:
    """Return the eight blocks of ResNet-18."""
    steps: list[LayerStep] = []
    source, shape = 0, (64, 56, 56)
    for channels, first in ((64, 1), (128, 2), (256, 2), (512, 2)):
        for strides in (first, 1):
            inputs, shortcut = shape, source
            shape = (channels, inputs[1] // strides, inputs[2] // strides)
            steps.append(LayerStep(convolution(inputs, channels, strides=strides), (source,)))
            steps.append(LayerStep(convolution(shape, channels), (len(steps),)))
            main = len(steps)
            if strides > 1:
                steps.append(LayerStep(convolution(inputs, channels, 1, strides=strides), (source,)))
                shortcut = len(steps)
            steps.append(LayerStep(Addition(shape, shift=1, low=0), (main, shortcut)))
            source = len(steps)
    return steps


def convolution(inputs: tuple[int, int, int], outputs: int, kernel: int = 3, *, strides: int = 1) -> Convolution:
    """Return a layer with random weights."""
    return Convolution(
        weights=RANDOM.integers(-128, 128, (outputs, inputs[0], kernel, kernel)).astype(np.int8),
        bias=RANDOM.integers(-9999, 9999, outputs).astype(np.int32),
        inputs=inputs,
        strides=(strides, strides),
        padding=PAD if kernel == 3 else (0, 0, 0, 0),
        shift=np.full(outputs, 13, np.int8),
        low=0,
    )


def program(inputs: tuple[int, int, int], steps: list[LayerStep]) -> VtaProgram:
    """Return the program on random inputs."""
    return compile_network(ULTRA96, [inputs], steps, [len(steps)]).on(
        RANDOM.integers(-128, 128, inputs).astype(np.int8)
    )


def measure(name: str, program: VtaProgram, rounds: int, compile_s: float) -> Row:
    """Return a row: medians of both ways, and their ratio."""
    times: dict[str, list[float]] = {"numpy_ms": [], "compiled_ms": [], "next_frame_ms": []}
    for _ in range(rounds):
        # Tables for the compiled interpreter are kept per program object: a copy has none yet.
        unseen = replace(program)
        run = partial(simulate, unseen, "functional", estimate_cycles=False)
        numpy = time_run(times["numpy_ms"], partial(run, run_compiled=False))
        for key in ("compiled_ms", "next_frame_ms"):
            fast = time_run(times[key], run)
            assert numpy.memory is not None
            np.testing.assert_array_equal(fast.memory, numpy.memory)
    medians = {key: median(values) for key, values in times.items()}
    return {
        "program": name,
        "instructions": len(program.instructions),
        **medians,
        "ratio": medians["numpy_ms"] / medians["compiled_ms"],
        "next_frame_ratio": medians["numpy_ms"] / medians["next_frame_ms"],
        "compile_s": compile_s,
    }


def time_run(times: list[float], run: Callable[[], Result]) -> Result:
    """Run, and note the milliseconds."""
    begin = time.perf_counter()
    result = run()
    times.append((time.perf_counter() - begin) * 1e3)
    return result


if __name__ == "__main__":
    main()
