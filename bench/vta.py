"""ResNet-18 on VTA, and the gain of pipelining.  All times are computed: there is no board here.

The model of the time, whose constants nobody has measured on a board:

- VTA's times are cycles of its clock, as boards/vta/simulator/timing.py estimates them from the very
  instructions that would run: one 16 x 16 product per cycle, two cycles per operation of the ALU, bursts on one bus,
  and the tokens between modules.
- The CPU's times are multiplications and additions over the attainable rate of a Cortex-A53 (boards/ultra96.toml), and
  so are the copies between the CPU's and VTA's parts of the memory.

layers      each kind of layer alone, and all that VTA runs as one program ("all")
serial      the planner's stages, one frame at a time; the CPU's stages have all of its cores
pipelined   the planner's stages and threads; "first on VTA" allows VTA to run the convolution of the picture, too

Bounds: with every cycle multiplying, the convolutions take 66 ms at 100 MHz (PYNQ) and 20 ms at 333 MHz (Ultra96).  The
only published figure is that of TVM's own stack: 621.79 ms for the whole network on a Pynq-Z1.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import onnx_network
import resnet18
from report import Row, parser, report

import boards
import pipeline
from boards.vta.compiler.layers import Convolution
from boards.vta.compiler.network import Layer, LayerStep, compile_network
from boards.vta.isa.config import PYNQ, ULTRA96, Config
from boards.vta.lowering import stage
from boards.vta.lowering.stage import LoweredStage
from boards.vta.simulator import timing
from boards.vta.simulator.result import Cycles
from pipeline.core.board.transfer_costs import enter_s, leave_s
from pipeline.core.plan.plan import Plan
from pipeline.observe import timeline
from pipeline.quantization.loss import outputs
from pipeline.simulation import simulate
from pipeline.split import extract, stage_parts
from pipeline.split.graph import Graph
from pipeline.split.planning.planner import Planner
from pipeline.split.planning.problem.costs import parallel_seconds

BOARD, VTA = "ultra96-simulated", "vta-simulated"
BOARDS = {BOARD: VTA, "pynq-z2": "vta"}
"""Boards of which frames per second are computed -> the name of VTA there."""

PICTURE = Path(__file__).resolve().parent.parent / "docs" / "vta-timeline.png"
FRAMES, DRAWN = 200, 40


def main() -> None:
    options = parser(__doc__).parse_args()
    with tempfile.TemporaryDirectory() as folder:
        _, quantized = resnet18.write(Path(folder))
        graph = pipeline.read(quantized)
        plan = pipeline.plan(graph, BOARD, replicas=False)
        rows = [*layers(graph, plan), *throughput(graph)]
        if not options.quick:
            rows.append(exactness(graph, plan, quantized))
    draw(plan)
    report("ResNet-18 on VTA, estimated", rows, (__doc__ or "").partition("\n\n")[2], options.json)


def lower_stage(graph: Graph, plan: Plan) -> LoweredStage:
    """Return the steps of the stage on VTA."""
    parts = stage_parts.parts(graph, plan)
    number = next(number for number, each in enumerate(plan.stages) if each.device == VTA)
    return stage.lower_module(extract.module(parts[number]))


def layers(graph: Graph, plan: Plan) -> Iterator[Row]:
    """Yield a row for each kind of layer, and for all."""
    lowered_stage = lower_stage(graph, plan)
    layer_counts: dict[str, tuple[int, Layer]] = {}
    for step in lowered_stage.steps:
        count, _ = layer_counts.get(title(step.layer), (0, step.layer))
        layer_counts[title(step.layer)] = (count + 1, step.layer)
    for name, (count, layer) in layer_counts.items():
        yield {"layer": name, "times": count, **costs(*(alone(config, layer) for config in (ULTRA96, PYNQ)))}
    estimates = [timing.estimate(lowered_stage.network(config).program) for config in (ULTRA96, PYNQ)]
    yield {"layer": "all", "times": 1, **costs(*(require_end(each) for each in estimates))}


def title(layer: Layer) -> str:
    """Return a layer in a few words."""
    if not isinstance(layer, Convolution):
        shapes = dict.fromkeys("x".join(map(str, shape)) for shape in LayerStep(layer, ()).inputs)
        return f"{type(layer).__name__.lower()} {' '.join(shapes)}"
    size = f"{layer.kernel[0]}x{layer.kernel[1]}"
    return f"{size} {layer.inputs[0]}>{layer.outputs[0]} {layer.inputs[1]}x{layer.inputs[2]} /{layer.strides[0]}"


def alone(config: Config, layer: Layer) -> Cycles:
    """Return the estimate of one layer as a program of its own."""
    shapes = LayerStep(layer, ()).inputs
    network = compile_network(config, shapes, [LayerStep(layer, tuple(range(len(shapes))))], [len(shapes)])
    return require_end(timing.estimate(network.program))


def require_end(cycles: Cycles | None) -> Cycles:
    """Return the estimate of a program that has to end."""
    if cycles is None:
        raise AssertionError("the program never ends")
    return cycles


def costs(ultra96: Cycles, pynq: Cycles) -> Row:
    """Return both boards' estimates."""
    return {
        "ultra96_utilisation": ultra96.utilisation,
        "ultra96_ms": ultra96.seconds * 1e3,
        "pynq_utilisation": pynq.utilisation,
        "pynq_ms": pynq.seconds * 1e3,
    }


def throughput(graph: Graph) -> Iterator[Row]:
    """Yield frames per second of the whole network: serial, and pipelined, on each board."""
    for name, vta in BOARDS.items():
        board = boards.get(name)
        for note, target_board in (("", board), (", first on VTA", board.with_target(vta, {"fewest_channels": 3}))):
            plan = pipeline.plan(graph, target_board, replicas=False)
            serial = sum(one_after_the_other(Planner(graph, target_board), plan))
            rate = simulate(plan, frames=FRAMES).frames_per_s
            yield {"layer": f"serial, {name}{note}", "frames_per_s": 1 / serial, "ratio": 1.0}
            yield {"layer": f"pipelined, {name}{note}", "frames_per_s": rate, "ratio": rate * serial}


def one_after_the_other(planner: Planner, plan: Plan) -> Iterator[float]:
    """Yield the seconds of each stage, and of its transfers, with all of the CPU's cores to itself."""
    planner = planner.of_plan(plan)
    groups = {operator.name: operator.group for operator in planner.graph.operators}
    board, neighbours = plan.board, [None, *(plan.board.device(stage_plan.device) for stage_plan in plan.stages), None]
    for number, stage_plan in enumerate(plan.stages):
        device = board.device(stage_plan.device)
        begin, end = (groups[name] for name in stage_plan.operators)
        seconds = np.asarray(planner.seconds(device), np.float64)[begin : end + 1]
        bytes_in, bytes_out = (sum(spec.nbytes for spec in specs) for specs in (stage_plan.inputs, stage_plan.outputs))
        transfer_s = enter_s(board, neighbours[number], device, bytes_in) + leave_s(
            board, device, neighbours[number + 2], bytes_out
        )
        yield float(parallel_seconds(seconds, len(device.cores)).sum()) + transfer_s


def draw(plan: Plan) -> None:
    """Draw what each stage does when, in simulated time."""
    outcome = simulate(plan, frames=DRAWN, trace=True)
    timeline.draw(outcome.events, PICTURE, title="ResNet-18 on a simulated Ultra96: CPU, VTA, CPU")


def exactness(graph: Graph, plan: Plan, quantized: Path) -> Row:
    """Compute a frame on the bit-accurate simulator, and compare all values with ONNX Runtime's."""
    frame = onnx_network.frame(9, resnet18.SIDE)
    expected = outputs(quantized, [frame])[0]
    with pipeline.load(pipeline.build(graph, plan, check=False)) as running:
        # The first frame also compiles the simulator's interpreter, and the program's tables for it.
        running.submit(frame).result()
        begin = time.perf_counter()
        answer = np.asarray(running.submit(frame).result())
        seconds = time.perf_counter() - begin
    return {
        "layer": "simulated, bit for bit",
        "equal_values": float((answer == expected).mean()),
        "simulator_s": seconds,
    }


if __name__ == "__main__":
    main()
