"""Self-test: small programs on a board, compared bit for bit with NumPy."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from boards.vta.compiler.layers import Addition, Convolution, MaxPool
from boards.vta.compiler.network import LayerStep, Network, Shape, compile_network
from boards.vta.compiler.reference import compute_layer
from boards.vta.driver.driver import Driver
from boards.vta.isa.config import Config
from boards.vta.simulator.timing import estimate

# More than one: memory that keeps the results of the run before would pass a single round.
ROUNDS = 3
"""Runs per program, with new numbers in every run."""

_PAD = (1, 1, 1, 1)


@dataclass(frozen=True)
class SelfTestOutcome:
    """The result of one test.

    Attributes
    ----------
    name, about : str
    passed : bool
    message : str
        Description of the fault; empty without one.
    seconds : float
        Seconds of one program, by the clock on the wall.
    estimated_s : float
        Seconds by the model of the time.
    """

    name: str
    about: str
    passed: bool
    message: str
    seconds: float
    estimated_s: float


@dataclass(frozen=True)
class SelfTest:
    """A test: the layers of one program, and their description."""

    name: str
    about: str
    inputs: Sequence[Shape]
    steps: Sequence[LayerStep]


def run_selftests(driver: Driver, seed: int = 0) -> Iterator[SelfTestOutcome]:
    """Run the tests, the simplest first.

    Raises
    ------
    DeviceLost
        If a program does not end: the board is of no use then, until its bitstream is loaded again.
    """
    for test in cases(seed):
        yield _outcome(driver, test, seed)


def cases(seed: int) -> Iterator[SelfTest]:
    """Yield the tests, the simplest first."""
    random = np.random.default_rng(seed)
    yield SelfTest("instructions", "a program of no work starts and ends", [(16, 1, 1)], [])
    # The first fits a page; the second is 49 times as large as the scratchpad of inputs.
    for name, shape in (("memory", (16, 4, 8)), ("much memory", (512, 56, 56))):
        size = f"{int(np.prod(shape)):,} bytes"
        yield SelfTest(
            name, f"{size} go in and out unchanged", [shape], [LayerStep(MaxPool(shape, (1, 1), (1, 1)), (0,))]
        )
    layer = _convolution(random, (64, 28, 28), 128)
    yield SelfTest("convolution", "3 x 3, 64 to 128 channels, 28 x 28, with bias, shift and clipping",
                [layer.inputs], [LayerStep(layer, (0,))])  # fmt: skip
    yield SelfTest("network", "a residual block: pool, convolutions with a stride, addition, to the even neighbour",
                [(32, 28, 28)], list(_block(random)))  # fmt: skip


def _block(random: np.random.Generator) -> Iterator[LayerStep]:
    pool = MaxPool((32, 28, 28), (3, 3), (2, 2), _PAD)
    yield LayerStep(pool, (0,))
    yield LayerStep(_convolution(random, pool.outputs, 64, strides=(2, 2), low=0), (1,))
    yield LayerStep(_convolution(random, (64, 7, 7), 64), (2,))
    yield LayerStep(_convolution(random, pool.outputs, 64, kernel=1, strides=(2, 2)), (1,))
    yield LayerStep(Addition((64, 7, 7), shift=1, low=0, even=True), (3, 4))


def _convolution(
    random: np.random.Generator, inputs: Shape, outputs: int, kernel: int = 3, **options: Any
) -> Convolution:
    weights = random.integers(-128, 128, (outputs, inputs[0], kernel, kernel)).astype(np.int8)
    bias = random.integers(-50_000, 50_000, outputs).astype(np.int32)
    # With these shifts, results of random bytes fill int8, and some are clipped.
    shift = random.integers(9, 13, outputs).astype(np.int8)
    padding = _PAD if kernel > 1 else (0, 0, 0, 0)
    return Convolution(inputs, weights, bias, shift, padding=padding, even=True, **options)


def _outcome(driver: Driver, test: SelfTest, seed: int) -> SelfTestOutcome:
    last = len(test.inputs) + len(test.steps) - 1
    network = compile_network(driver.config, test.inputs, test.steps, [last])
    random, message, seconds = np.random.default_rng(seed), "", 0.0
    run = _runner(driver, network)
    for _ in range(ROUNDS):
        tensors = [random.integers(-128, 128, shape).astype(np.int8) for shape in test.inputs]
        # The time of the last round remains, for which memory and clocks are warm.
        outputs, seconds = run(tensors)
        # The first round that is wrong is reported: what follows may be its consequence.
        message = message or _difference(outputs, expected_output(test.steps, tensors))
    cycles = estimate(network.program)
    return SelfTestOutcome(test.name, test.about, not message, message, seconds, cycles.seconds if cycles else 0.0)


def _runner(
    driver: Driver, network: Network
) -> Callable[[list[npt.NDArray[np.int8]]], tuple[npt.NDArray[np.int8], float]]:
    program = driver.load(network.program)

    def run(tensors: list[npt.NDArray[np.int8]]) -> tuple[npt.NDArray[np.int8], float]:
        program.memory.array[:] = network.on(*tensors).memory
        # After the inputs are in place: the estimate to compare with is of the program alone.
        start_s = time.perf_counter()
        driver.run(program)
        return network.results(program.memory.array)[0], time.perf_counter() - start_s

    return run


def expected_output(steps: Sequence[LayerStep], inputs: list[npt.NDArray[np.int8]]) -> npt.NDArray[np.int8]:
    """Compute the expected last result of the steps."""
    tensors = list(inputs)
    for step in steps:
        tensors.append(compute_layer(step.layer, *(tensors[source] for source in step.sources)))
    return tensors[-1]


def _difference(outputs: npt.NDArray[np.int8], expected_output: npt.NDArray[np.int8]) -> str:
    differences = np.argwhere(outputs != expected_output)
    if not len(differences):
        return ""
    channel, row, column = (int(index) for index in differences[0])
    return (
        f"{len(differences)} of {outputs.size} values are wrong, the first in "
        f"channel {channel}, row {row}, column {column}: "
        f"{outputs[channel, row, column]} for {expected_output[channel, row, column]}"
    )


def hardware_name(config: Config, *, is_simulated: bool) -> str:
    """Describe the tested hardware in words."""
    suffix = ", simulated" if is_simulated else ""
    return f"VTA {config.name} of {config.target}, instruction set {config.hw_ver}{suffix}"
