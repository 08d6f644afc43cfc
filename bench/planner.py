"""Time of planning, and distance of the plan from the best one.

Networks of bench/models.py with estimated costs, on boards that are not here: those of the package, and one with four
devices and two clusters of cores.

seconds         reading not included; the first plan of a process
frames_per_s    predicted
gap             how much longer a frame takes than the interval which a complete search has proved to be the least
relaxed_ratio   the interval over one that none could beat even if work could be cut anywhere for nothing
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from time import perf_counter

import models
from report import Row, parser, report

import boards
import pipeline
from pipeline.core.board.board import Board, Cluster, Device, Link
from pipeline.split.graph import Graph
from pipeline.split.planning.planner import Planner
from pipeline.split.planning.solver.bound import relaxed_interval

# Unlike cores, a GPU, and an accelerator that can run some operators only.
BOARDS = ("ultra96", "rk3588", "jetson-orin-nano")
FOUR = Board(
    "four devices",
    (
        Device("cpu", clusters=(Cluster("big", (4, 5, 6, 7)), Cluster("little", (0, 1, 2, 3), 0.3)), flops=2.5e10),
        Device("gpu", "opencl", memory="gpu", flops=2e11, bytes_per_s=2e10, launch_s=3e-5, memory_bytes=1_000_000_000),
        Device("npu", "vta", memory="npu", flops=4e11, bytes_per_s=1e10, launch_s=1e-4, families=("convolution",)),
        Device("far", "remote", address="remote://10.0.0.2:9190/cpu", memory="far", flops=4e10, bytes_per_s=1e10),
    ),
    (Link(("host", "gpu"), 5e9, 3e-5), Link(("host", "npu"), 2e9, 5e-5), Link(("host", "far"), 1.1e8, 3e-4)),
)


def main() -> None:
    options = parser(__doc__).parse_args()
    names = ("squeezenet", "densenet121") if options.quick else models.NAMES
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        for name in names:
            file = models.write(name, Path(folder))
            graph = pipeline.read(file)
            file.unlink()
            rows += [row(graph, board) for board in (*map(boards.get, BOARDS), FOUR)]
    report("Planning", rows, (__doc__ or "").partition("\n\n")[2], options.json)


def row(graph: Graph, board: Board) -> Row:
    """Plan one network for one board."""
    begin = perf_counter()
    planner = Planner(graph, board)
    plan = planner.plan()
    seconds = perf_counter() - begin
    # Solved again, not timed: a plan does not keep the solver's gap.
    solution = planner.solve()
    return {
        "model": graph.name,
        "groups": len(graph.group_ends),
        "board": board.name,
        "devices": len(board.devices),
        "stages": " > ".join(f"{each.device} x {each.replicas}" for each in plan.stages),
        "seconds": seconds,
        "frames_per_s": 1 / solution.interval,
        "gap": solution.gap,
        "relaxed_ratio": solution.interval / relaxed_interval(planner.problem()),
    }


if __name__ == "__main__":
    main()
