"""Published figures: times of networks on boards, with their sources.

A TOML file holds the figures of one source; keys above its ``figures`` hold for all of them.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from datetime import date
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal

import msgspec

import boards
from pipeline.core.board import board_file
from pipeline.core.board.board import Board
from pipeline.errors import BoardError, near
from pipeline.system.files import check_regular

MODELS = (
    "alexnet", "bert_base", "blazeface", "deeplab_v3", "densenet121", "efficientnet_b0", "efficientnet_lite0",
    "efficientnet_lite1", "efficientnet_lite2", "efficientnet_lite3", "efficientnet_lite4", "efficientnetv2_b0",
    "googlenet", "inception_v1", "inception_v2", "inception_v3", "inception_v4", "mnasnet", "mobilebert",
    "mobilenet_v1", "mobilenet_v1_ssd", "mobilenet_v2", "mobilenet_v3", "nanodet_m", "posenet_mobilenet",
    "proxylessnasnet", "regnety_400m", "resnet18", "resnet34", "resnet50", "shufflenet", "shufflenet_v2", "squeezenet",
    "squeezenet_ssd", "ssd_mobilenet_v1", "ssd_mobilenet_v2", "unet", "vgg16", "vit_b16", "yolo11m", "yolo11n",
    "yolo11s", "yolo_fastest_1_1", "yolov10n", "yolov3", "yolov4_tiny", "yolov5m", "yolov5n", "yolov5s", "yolov6n",
    "yolov7_tiny", "yolov8m", "yolov8n", "yolov8s", "yolov9t", "yolox_nano", "yolox_s", "yolox_tiny",
)  # fmt: skip
"""Architectures of the figures; the weights are any."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class PublishedFigure:
    """One measurement that others published; empty fields are untold.

    `ms` is the time of one call, of `batch` frames; `frames_per_s` the rate of a stream.  `size` is the input's side in
    pixels, where it is not the model's usual one, and `clock_hz` the clock of the cores, where it is not the board's.
    """

    board: str
    device: str
    model: str
    precision: Literal["float32", "tf32", "float16", "int8"]
    runtime: str
    source: str
    date: date
    ms: float = 0.0
    frames_per_s: float = 0.0
    size: int = 0
    batch: int = 1
    threads: int = 0
    cores: tuple[int, ...] = ()
    clock_hz: float = 0.0
    options: tuple[str, ...] = ()
    note: str = ""

    def __post_init__(self) -> None:
        if self.model not in MODELS:
            raise BoardError(f"unknown model {self.model!r}{near(self.model, MODELS)}")
        if (self.ms > 0) == (self.frames_per_s > 0) or min(self.ms, self.frames_per_s) < 0 or self.batch < 1:
            raise BoardError("it must have either 'ms' or 'frames_per_s', above 0, and a batch of at least 1")
        device = _board(self.board).device(self.device)
        if not set(self.cores) <= set(device.cores) or self.threads > max(len(device.cores), 1):
            raise BoardError(f"device {self.device!r} of board {self.board!r} has the cores {list(device.cores)}")

    @property
    def seconds(self) -> float:
        """Return the seconds of a frame."""
        return self.ms / 1e3 / self.batch if self.ms else 1 / self.frames_per_s


def figures(board_name: str | None = None) -> tuple[PublishedFigure, ...]:
    """Return the published figures, of all boards or of one.

    Raises
    ------
    BoardError
        If a file has an unknown board, device, model or key, or an impossible value; the message names the figure.
    """
    all_figures = [figure for path in sorted(Path(__file__).parent.glob("*.toml")) for figure in read(path)]
    return tuple(figure for figure in all_figures if board_name in (None, figure.board))


def read(path: Path) -> tuple[PublishedFigure, ...]:
    """Return the figures of one file; errors are those of `figures`."""
    check_regular(path)
    common = board_file.parse_table(path.read_bytes())
    rows = common.pop("figures", [])
    return tuple(_figure({**common, **row}, f"{path}: figure {number}") for number, row in enumerate(rows))


def _figure(row: Mapping[str, Any], title: str) -> PublishedFigure:
    try:
        board_file.check_keys(row, PublishedFigure)
        return msgspec.convert(row, PublishedFigure)
    except (BoardError, msgspec.ValidationError) as error:
        raise BoardError(f"{title}: {error}") from None


@lru_cache(maxsize=64)
def _board(name: str) -> Board:
    return boards.get(name)
