"""Frames per second by the cycles of RKNN's compiler, beside the published ones of the same networks.

Networks in int8 with random weights are planned as a user's model is: what the compiler runs on the NPU goes to one
core of it, the rest to the CPU. Times of the NPU come from cycles, bytes, the chip's clock and its memory, and from no
published time. The Python of `make rknn` is that of SOC_PIPELINE_RKNN_PYTHON.

predicted_ratio   predicted over published frames per second
cpu_operators     operators that the compiler leaves to the CPU
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

import onnx
import published
import published_models
from report import Row, parser, report

import pipeline
from boards.published import figures
from pipeline.measure.quotes import find_quotes
from pipeline.split.planning.planner import Planner
from pipeline.split.planning.problem.pins import resolve_pins

NAMES = ("mobilenet_v2", "resnet50", "yolov8n", "yolox_s")
QUICK = NAMES[:1]
NPU = "npu0"
TABLE = "rknn_model_zoo"
"""Rockchip's own figures, of one core at its highest clock."""


def main() -> None:
    options = arguments()
    with tempfile.TemporaryDirectory() as folder:
        rows = [row(name, Path(folder)) for name in options.models or (QUICK if options.quick else NAMES)]
    report("RKNN's cycles and published times, rk3588", rows, (__doc__ or "").partition("\n\n")[2], options.json)


def arguments() -> argparse.Namespace:
    options = parser((__doc__ or "").partition("\n")[0])
    options.add_argument("--models", nargs="+", choices=sorted(published_models.NETWORKS), help="instead of these four")
    return options.parse_args()


def row(name: str, folder: Path) -> Row:
    file = folder / f"{name}.onnx"
    onnx.save(published_models.build(name, None, "int8"), file)
    graph = pipeline.read(file)
    figure = next(f for f in figures("rk3588") if f.model == name and TABLE in f.source)
    board = published.figure_board(figure)
    quotes = find_quotes(graph, board)
    refusals = quotes.refusals.get(NPU, {})
    if NPU not in quotes.seconds:
        raise SystemExit(f"the compiler says nothing of {name}: {' '.join(quotes.notes)}")
    left = [operator.name for operator in graph.operators if operator.group in refusals]
    pins = {operator.name: NPU for operator in graph.operators if operator.group not in refusals}
    planner = Planner(
        graph, board, pins=resolve_pins(graph, board, pins), refusals=quotes.refusals, estimates=quotes.seconds
    )
    seconds = published.predict_seconds(planner.plan(replicas=False, objective="latency"), figure)
    return {
        "model": name,
        "npu_ms": 1e3 * sum(s for group, s in enumerate(quotes.seconds[NPU]) if group not in refusals),
        "predicted_frames_per_s": 1 / seconds,
        "published_frames_per_s": 1 / figure.seconds,
        "predicted_ratio": figure.seconds / seconds,
        "cpu_operators": len(left),
    }


if __name__ == "__main__":
    main()
