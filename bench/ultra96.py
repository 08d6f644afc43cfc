"""Gain of pipelining ResNet-18 on a simulated Ultra96 (four Cortex-A53 and VTA): there is no such board here.

The proposal that this project continues split ResNet-18 by hand behind the first convolution, which runs on the CPU,
and reported 30 % more frames per second than both parts one after the other.  Here all times are computed:

- VTA multiplies and adds 256 pairs per cycle of 333 MHz (apache/tvm-vta, ultra96_sample.json and pkg_config.py:
  16 x 16, the clock of the Ultra96 design).  Its kernels reach a share of that, which is `utilisation`: with TVM's
  tuned schedules 2.2 to 31.3 of 51.2 GOP/s, or 4 to 61 %, were published for ResNet-18 at 100 MHz (TVM,
  vta/tutorials/autotvm/tune_relay_vta.py); no figure was published for the Ultra96.  Each operator also waits for its
  start.
- The CPU's attainable operations per second, the start of an operator, and the copies between the CPU's and VTA's parts
  of the memory are those of boards/ultra96.toml, where their sources stand; several threads scale as the planner
  assumes.  As in TVM's own flow, the first convolution, pooling and the dense layer are float32 on the CPU; the planner
  may run other layers there, too, as fast per operation.

serial      CPU, VTA, CPU, one frame at a time; four threads on the CPU
hand        the first convolution and pooling are one stage, all else another one
planned     cuts, threads and replicas by the planner; `cpu_only` without VTA
gain_*      frames per second over serial
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
from report import Row, parser, report

import boards
from pipeline.core.board.board import Board, Device
from pipeline.core.plan.plan import Plan, StagePlan, TensorSpec
from pipeline.simulation import simulate
from pipeline.split.planning.problem.arrays import Array
from pipeline.split.planning.problem.choice import Choice
from pipeline.split.planning.problem.costs import parallel_seconds
from pipeline.split.planning.problem.problem import Problem, Processor
from pipeline.split.planning.solver.solution import Solution, StageSolution
from pipeline.split.planning.solver.solver import Solver

# The published range, 0.04 to 0.61, and 1.0, which no kernels reach: the gain beyond which no schedule helps.
UTILISATIONS = (0.04, 0.1, 0.2, 0.3, 0.4, 0.61, 1.0)
PAIRS_PER_CYCLE, CLOCK = 256, 333e6
FRAMES = 400
CPU, VTA = 0, 1


@dataclass(frozen=True)
class Layer:
    """One layer: multiplications and additions, bytes of its result, and whether VTA can run it."""

    name: str
    macs: float
    nbytes: int
    on_vta: bool = True


def layers() -> Iterator[Layer]:
    """Yield the layers of ResNet-18 for 224 x 224 pixels."""
    yield Layer("first convolution", 7 * 7 * 3 * 64 * 112**2, 4 * 64 * 112**2, on_vta=False)
    # A comparison is one operation where a multiplication and an addition are two.  Behind it tensors are int8.
    yield Layer("pooling", 9 * 64 * 56**2 / 2, 64 * 56**2, on_vta=False)
    channels_in = 64
    for channels, size in ((64, 56), (128, 28), (256, 14), (512, 7)):
        result = channels * size**2
        for block in range(2):
            inputs = channels_in if block == 0 else channels
            # Twice the bytes of its result: the block's input crosses beside it, for the shortcut.
            yield Layer(f"{channels}.{block}.a", 9 * inputs * result, 2 * result)
            # The shortcut changes size where channels do; it belongs to the second convolution's addition.
            shortcut = inputs * result if inputs != channels else 0
            yield Layer(f"{channels}.{block}.b", 9 * channels * result + shortcut, result)
        channels_in = channels
    yield Layer("average", 512 * 7 * 7 / 2, 4 * 512, on_vta=False)
    yield Layer("dense", 512 * 1000, 4 * 1000, on_vta=False)


LAYERS = tuple(layers())
HAND = 2
"""Layers in front of the hand's cut."""


def main() -> None:
    options = parser(__doc__).parse_args()
    board = boards.get("ultra96")
    rows = [row(board, utilisation) for utilisation in UTILISATIONS]
    report("ResNet-18 on a simulated Ultra96", rows, (__doc__ or "").partition("\n\n")[2], options.json)


def row(board: Board, utilisation: float) -> Row:
    """Compare the ways for one speed of VTA."""
    full_problem = problem(board, utilisation)
    planned_solution = solve(full_problem)
    cpu_solution = solve(replace(full_problem, choices=full_problem.choices[:-1]))
    serial, hand = by_hand(board, full_problem, [0, len(LAYERS)]), by_hand(board, full_problem, [0, HAND, len(LAYERS)])
    rates = {
        "serial": rate(serial),
        "hand": rate(hand),
        "planned": rate(as_plan(board, [(stage.seconds, stage.choice.replicas) for stage in planned_solution.stages])),
        "cpu_only": 1 / cpu_solution.interval,
    }
    return {
        "utilisation": utilisation,
        **{f"{name}_frames_per_s": value for name, value in rates.items()},
        **{f"gain_{name}": rates[name] / rates["serial"] for name in ("hand", "planned")},
        "first_ms": hand.stages[0].seconds * 1e3,
        "rest_ms": hand.stages[1].seconds * 1e3,
        "plan": " > ".join(describe(stage) for stage in planned_solution.stages),
    }


def describe(stage: StageSolution) -> str:
    """Return a stage in a few words."""
    choice = stage.choice
    processor = "VTA" if choice.processor == VTA else f"{choice.replicas} x {choice.threads} cores"
    return f"{processor}: {LAYERS[stage.begin].name} .. {LAYERS[stage.end - 1].name}"


def problem(board: Board, utilisation: float) -> Problem:
    """Return the layers as items for the solver."""
    cpu, vta = board.device("cpu"), board.device("vta")
    cores = len(cpu.cores)
    one_core = cpu_seconds(board)
    accelerated = np.array(
        [
            vta.launch_s + layer.macs / (PAIRS_PER_CYCLE * CLOCK * utilisation) if layer.on_vta else np.inf
            for layer in LAYERS
        ]
    )
    choices = [
        Choice(CPU, (threads * copies, 0), parallel_seconds(one_core, threads), copies, threads)
        for threads in range(1, cores + 1)
        for copies in range(1, cores // threads + 1)
    ]
    copying = crossing_seconds(board)
    enter, leave = np.zeros((3, 2, len(copying))), np.zeros((2, 3, len(copying)))
    enter[[CPU, 2], VTA] = leave[VTA, [CPU, 2]] = copying
    processors = (Processor("cpu", cores), Processor("vta"))
    return Problem(processors, (*choices, Choice(VTA, (0, 1), accelerated)), enter, leave)


def cpu_seconds(board: Board) -> Array:
    """Return the seconds of each layer on one core."""
    cpu = board.device("cpu")
    return np.array([cpu.launch_s + 2 * layer.macs / cpu.flops for layer in LAYERS])


def crossing_seconds(board: Board) -> Array:
    """Return the seconds to copy what crosses at each position between the two memories."""
    sizes = [4 * 3 * 224**2, *(layer.nbytes for layer in LAYERS)]
    return np.array([board.transfer_s(board.device("cpu"), board.device("vta"), nbytes) for nbytes in sizes])


def solve(problem: Problem) -> Solution:
    """Return the fastest division."""
    solution = Solver(problem).fastest()
    if solution is None:
        raise AssertionError("there is no division")
    return solution


def by_hand(board: Board, full_problem: Problem, edges: list[int]) -> Plan:
    """Return the plan of parts that use the CPU's four cores and VTA one after the other."""
    threads = parallel_seconds(cpu_seconds(board), len(board.device("cpu").cores))
    vta = next(choice.seconds for choice in full_problem.choices if choice.processor == VTA)
    on_vta = [layer.on_vta for layer in LAYERS]
    seconds = np.where(on_vta, vta, threads)
    copies = crossing_seconds(board)
    # Where the work goes from one to the other inside of a part, its tensors are copied as well.
    copy_s = [
        copies[position] if on_vta[position - 1] != on_vta[position] else 0.0 for position in range(1, len(LAYERS))
    ]
    total = seconds + np.array([*copy_s, 0.0])
    return as_plan(board, [(float(total[begin:end].sum()), 1) for begin, end in pairwise(edges)])


def as_plan(board: Board, stages: list[tuple[float, int]]) -> Plan:
    """Return stages, given by seconds and replicas, as a plan on devices that only take time."""
    specs = [TensorSpec(f"t{number}", (1,)) for number in range(len(stages) + 1)]
    devices = tuple(Device(f"device{number}", "simulated") for number in range(len(stages)))
    stage_plans = tuple(
        StagePlan(f"stage{number}", f"device{number}", (reads,), (writes,), seconds=seconds, replicas=replicas)
        for number, ((seconds, replicas), (reads, writes)) in enumerate(zip(stages, pairwise(specs), strict=True))
    )
    return Plan("resnet18", "", replace(board, devices=devices, links=()), (specs[0],), (specs[-1],), stage_plans)


def rate(plan: Plan) -> float:
    """Return the simulated frames per second."""
    return simulate(plan, frames=FRAMES).frames_per_s


if __name__ == "__main__":
    main()
