"""Processor time to make a picture a model's input: one kernel of ours against OpenCV's chain, interleaved.

ours     the stage that prepares pictures, float32 [1, 3, side, side], normalised, in a new array for each picture
opencv   `cvtColor`, `resize`, then NumPy's normalisation and transposition, all into memory that is there already
planes   the same with `split`, and each plane normalised for itself: the fastest chain that we know
The rules are OpenCV's (``INTER_LINEAR`` in the chain) and the average (``INTER_AREA``; ``INTER_LINEAR`` for `planes`).
One thread on each side.  Times are the least of several rounds.  OpenCV: pip install opencv-python-headless
"""

from __future__ import annotations

import importlib
import time
from collections.abc import Callable
from typing import Any

import numpy as np
from report import Row, parser, report

from pipeline.core.model_card import Preparation
from pipeline.core.plan.plan import TensorSpec
from pipeline.picture.pixels import Pixels
from pipeline.picture.preparation import PictureInput, PreparationStage

SIZES = ((640, 480, 224), (1280, 720, 640), (1920, 1080, 640))
MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
CONVERSIONS = {
    "rgb24": "", "bgr24": "COLOR_BGR2RGB", "gray": "COLOR_GRAY2RGB", "yuv420p": "COLOR_YUV2RGB_I420",
    "nv12": "COLOR_YUV2RGB_NV12", "yuyv422": "COLOR_YUV2RGB_YUY2",
}  # fmt: skip
REPEATS = 5


def main() -> None:
    options = parser(__doc__).parse_args()
    try:
        cv2: Any = importlib.import_module("cv2")
    except ImportError:
        raise SystemExit("OpenCV, to compare with, is not installed: pip install opencv-python-headless") from None
    cv2.setNumThreads(1)
    rows = [
        measure(cv2, Pixels(name, width, height), side, sampling, 4 if options.quick else 15)
        for width, height, side in SIZES
        for sampling in ("opencv", "average")
        for name in CONVERSIONS
    ]
    report("Pictures", rows, __doc__ or "", options.json)


def measure(cv2: Any, pixels: Pixels, side: int, sampling: str, rounds: int) -> Row:
    """Return the times of all ways for one format, size and rule."""
    picture = np.random.default_rng(0).integers(0, 256, pixels.shape, np.uint8)
    rules = Preparation("stretch", MEAN, STD, sampling=sampling)
    stage = PreparationStage(pixels, PictureInput(TensorSpec("x", (1, 3, side, side)), rules))
    chain = Chain(cv2, pixels, side, cv2.INTER_AREA if sampling == "average" else cv2.INTER_LINEAR)
    fastest = Chain(cv2, pixels, side, cv2.INTER_LINEAR)
    ways: dict[str, Callable[[], Any]] = {
        "ours": lambda: stage(picture),
        "opencv": lambda: chain.transpose(picture),
        "planes": lambda: fastest.split(picture),
    }
    least = dict.fromkeys(ways, float("inf"))
    for _ in range(rounds):
        for name, way in ways.items():
            least[name] = min(least[name], processor_s(way))
    return {
        "format": pixels.format,
        "picture": f"{pixels.width}x{pixels.height} to {side}x{side}",
        "sampling": sampling,
        **{f"{name}_ms": seconds * 1e3 for name, seconds in least.items()},
        "ratio": least["ours"] / least["opencv"],
        "planes_ratio": least["ours"] / least["planes"],
    }


def processor_s(way: Callable[[], Any]) -> float:
    """Return the processor's seconds for a picture."""
    begin = time.thread_time()
    for _ in range(REPEATS):
        way()
    return (time.thread_time() - begin) / REPEATS


class Chain:
    """OpenCV's and NumPy's steps, into memory of their own."""

    def __init__(self, cv2: Any, pixels: Pixels, side: int, rule: int) -> None:
        self._cv2, self._size, self._rule = cv2, (side, side), rule
        name = CONVERSIONS[pixels.format]
        self._conversion = getattr(cv2, name) if name else None
        self._colours = np.empty((pixels.height, pixels.width, 3), np.uint8)
        self._resized, self._values = np.empty((side, side, 3), np.uint8), np.empty((side, side, 3), np.float32)
        self._planes = np.empty((1, 3, side, side), np.float32)
        mean, std = np.array(MEAN), np.array(STD)
        self._scale, self._shift = (1 / 255 / std).astype(np.float32), (-mean / std).astype(np.float32)

    def _resize(self, picture: np.ndarray) -> np.ndarray:
        if self._conversion is not None:
            picture = self._cv2.cvtColor(picture, self._conversion, dst=self._colours)
        resized: np.ndarray = self._cv2.resize(picture, self._size, dst=self._resized, interpolation=self._rule)
        return resized

    def transpose(self, picture: np.ndarray) -> np.ndarray:
        np.multiply(self._resize(picture), self._scale, out=self._values)
        np.add(self._values, self._shift, out=self._values)
        np.copyto(self._planes[0], self._values.transpose(2, 0, 1))
        return self._planes

    def split(self, picture: np.ndarray) -> np.ndarray:
        for number, plane in enumerate(self._cv2.split(self._resize(picture))):
            np.multiply(plane, self._scale[number], out=self._planes[0, number])
            np.add(self._planes[0, number], self._shift[number], out=self._planes[0, number])
        return self._planes


if __name__ == "__main__":
    main()
