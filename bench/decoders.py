"""Time of decoding a YOLO head, against supervision's and OpenCV's own ways, interleaved.

The head is one of a 640x640 input with 80 classes, [1, 84, 8400].  Every object is seen by six cells, as detectors do
before their suppression.  Sides are:

- supervision: the best class of each cell by NumPy, then `Detections.with_nms`, as its guides have it;
- opencv: a loop over the cells with `minMaxLoc`, then `NMSBoxes`, as the examples for `cv2.dnn` have it;
- opencv with numpy: the best class of each cell by NumPy, then `NMSBoxesBatched`, the fastest that OpenCV offers.

The ratio is the median over rounds of neighbouring runs, in processor time of one thread, so that others on the machine
disturb it little.  Packages that are not installed are left out; `--environment` names one that has them.
"""

from __future__ import annotations

import random
import statistics
import sys
import time
from collections.abc import Callable, Mapping
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import report

from pipeline.core.model_card import ModelCard
from pipeline.core.plan.plan import TensorSpec
from pipeline.io.decoders.base import ModelInterface
from pipeline.io.decoders.registry import make_decoder

SIZE, CELLS, CLASSES = 640, 8400, 80
CELLS_PER_OBJECT = 6
SCORE, IOU = 0.25, 0.7
OBJECTS = (0, 10, 100, 300)

Side = Callable[[np.ndarray], int]
"""Decodes a head, and returns the number of boxes."""


def make_head(objects: int) -> np.ndarray:
    """Return a head that sees objects on a lattice, and nothing but noise elsewhere."""
    generator = np.random.default_rng(objects)
    head = np.zeros((1, 4 + CLASSES, CELLS), np.float32)
    head[0, :2], head[0, 2:4] = generator.uniform(0, SIZE, (2, CELLS)), generator.uniform(8, 200, (2, CELLS))
    # Most scores of real networks are far below any threshold.
    head[0, 4:] = np.minimum(generator.beta(0.5, 60, (CLASSES, CELLS)), 0.2)
    cells = generator.permutation(CELLS)[: objects * CELLS_PER_OBJECT].reshape(objects, CELLS_PER_OBJECT)
    for number, seen in enumerate(cells):
        box = np.array([number % 20 * 32 + 16, number // 20 * 32 + 16, 28, 28])
        head[0, :4, seen] = box + generator.uniform(-1, 1, (CELLS_PER_OBJECT, 4))
        head[0, 4 + generator.integers(CLASSES), seen] = generator.uniform(0.3, 0.95, CELLS_PER_OBJECT)
    return head


def our_side() -> Side:
    """Return this project's decoder."""
    interface = ModelInterface((SIZE, SIZE), [TensorSpec("head", (1, 4 + CLASSES, CELLS), "float32")])
    decode = make_decoder(ModelCard(decoder="yolov8", parameters={"score": SCORE, "iou": IOU}), interface)
    return lambda head: len(decode({"head": head}))  # type: ignore[arg-type]


def candidates(head: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return boxes by centre and size, scores and classes above the threshold, as most programs do."""
    rows = head[0].T
    scores = rows[:, 4:].max(1)
    rows, scores = rows[scores > SCORE], scores[scores > SCORE]
    return rows[:, :4], scores, rows[:, 4:].argmax(1)


def supervision_side(supervision: Any) -> Side:
    """Return supervision's way."""

    def decode(head: np.ndarray) -> int:
        boxes, scores, classes = candidates(head)
        corners = np.concatenate([boxes[:, :2] - boxes[:, 2:] / 2, boxes[:, :2] + boxes[:, 2:] / 2], 1)
        return len(supervision.Detections(xyxy=corners, confidence=scores, class_id=classes).with_nms(IOU))

    return decode


def opencv_loop(cv2: Any) -> Side:
    """Return the way of the examples for `cv2.dnn`."""

    def decode(head: np.ndarray) -> int:
        boxes, scores = [], []
        for row in cv2.transpose(head[0]):
            _, score, _, (_, _) = cv2.minMaxLoc(row[4:])
            if score > SCORE:
                boxes.append([row[0] - row[2] / 2, row[1] - row[3] / 2, row[2], row[3]])
                scores.append(score)
        return len(cv2.dnn.NMSBoxes(boxes, scores, SCORE, IOU))

    return decode


def opencv_with_numpy(cv2: Any) -> Side:
    """Return OpenCV's suppression behind NumPy."""

    def decode(head: np.ndarray) -> int:
        boxes, scores, classes = candidates(head)
        boxes = np.concatenate([boxes[:, :2] - boxes[:, 2:] / 2, boxes[:, 2:]], 1)
        chosen = cv2.dnn.NMSBoxesBatched(boxes, scores, classes, SCORE, IOU)
        return len(boxes[chosen]) if len(chosen) else 0

    return decode


def other_sides() -> dict[str, Side]:
    """Return the sides whose packages are installed, and say which are not."""
    sides: dict[str, Side] = {}
    makers: Mapping[str, Mapping[str, Callable[[Any], Side]]] = {
        "supervision": {"supervision": supervision_side},
        "cv2": {"opencv": opencv_loop, "opencv with numpy": opencv_with_numpy},
    }
    for package, ways in makers.items():
        try:
            module = import_module(package)
        except ImportError as error:
            print(f"{package} is left out: {error}; install it, or name its environment by --environment")
            continue
        if package == "cv2":
            module.setNumThreads(1)
        sides |= {name: make(module) for name, make in ways.items()}
    return sides


def measure(ours: Side, others: Mapping[str, Side], objects: int, seconds: float) -> list[dict[str, Any]]:
    """Return a row for each other side."""
    head = make_head(objects)
    sides = {"ours": ours, **others}
    boxes = {name: side(head) for name, side in sides.items()}
    times: dict[str, list[float]] = {name: [] for name in sides}
    shuffle, begin = random.Random(objects), time.perf_counter()
    while len(times["ours"]) < 5 or time.perf_counter() - begin < seconds:
        # In any order, since a side leaves the head in the caches for the next.
        for name in shuffle.sample(list(sides), len(sides)):
            start = time.thread_time()
            sides[name](head)
            times[name].append(time.thread_time() - start)
    return [
        {
            "objects": objects,
            "other": name,
            "boxes": boxes["ours"],
            "other_boxes": boxes[name],
            "ours_us_p50": statistics.median(times["ours"]) * 1e6,
            "other_us_p50": statistics.median(times[name]) * 1e6,
            "ratio": statistics.median(times["ours"]) / statistics.median(times[name]),
        }
        for name in others or {"ours": ours}
    ]


def main() -> None:
    """Measure, print the table, and the worst ratio of 100 boxes."""
    parser = report.parser(__doc__)
    parser.add_argument("--environment", type=Path, metavar="FOLDER", help="virtual environment with the others")
    options = parser.parse_args()
    if options.environment:
        # Behind this one's own packages, which win.
        sys.path += map(str, options.environment.glob("lib/python*/site-packages"))
    ours, others = our_side(), other_sides()
    rows = [row for objects in OBJECTS for row in measure(ours, others, objects, 2 if options.quick else 10)]
    ratios = {row["other"]: row["ratio"] for row in rows if row["objects"] == 100}
    caption = ", ".join(f"{name} {ratio:.3f}" for name, ratio in ratios.items())
    report.report("Decoding a YOLO head", rows, f"ratios for 100 boxes: {caption}", options.json)


if __name__ == "__main__":
    main()
