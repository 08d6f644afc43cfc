"""Published figures: times of networks on boards, with their sources.

A TOML file holds the figures of one source; keys above its ``figures`` hold for all of them.
"""

from __future__ import annotations

import dataclasses
from datetime import date
from functools import cache
from pathlib import Path
from typing import Any, Literal

import msgspec

import boards
from pipeline.core.board import board_file
from pipeline.errors import BoardError, near

MODELS = (
    "alexnet", "deeplab_v3", "efficientnet_b0", "efficientnet_lite0", "efficientnet_lite1", "efficientnet_lite2",
    "efficientnet_lite3", "efficientnet_lite4", "googlenet", "inception_v1", "inception_v4", "mnasnet", "mobilenet_v1",
    "mobilenet_v1_ssd", "mobilenet_v2", "mobilenet_v3", "nanodet_m", "resnet18", "resnet34", "resnet50",
    "shufflenet_v2", "squeezenet", "ssd_mobilenet_v1", "ssd_mobilenet_v2", "unet", "vgg16", "vit_b16", "yolo11m",
    "yolo11n", "yolo11s", "yolov10n", "yolov3", "yolov4_tiny", "yolov5m", "yolov5n", "yolov5s", "yolov6n",
    "yolov7_tiny", "yolov8m", "yolov8n", "yolov8s", "yolox_nano", "yolox_s", "yolox_tiny",
)  # fmt: skip
"""Architectures of the figures; the weights are any."""

_board = cache(boards.get)


@dataclasses.dataclass(frozen=True, kw_only=True)
class PublishedFigure:
    """Measurement that others published; empty fields are untold.

    `ms` is the time of a call, of `batch` frames.  `size`, of a side in pixels, and `clock_hz` are told where they are
    not the model's and the board's.
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
    """Return the published figures, of all boards or of one."""
    all_figures = [figure for path in sorted(Path(__file__).parent.glob("*.toml")) for figure in read(path)]
    return tuple(figure for figure in all_figures if board_name in (None, figure.board))


def read(path: Path) -> tuple[PublishedFigure, ...]:
    """Return the figures of one file; a wrong one is a `BoardError` that names it."""
    common = board_file.parse_table(path.read_bytes())
    return tuple(_figure({**common, **row}, f"{path}: figure {i}") for i, row in enumerate(common.pop("figures", [])))


def _figure(row: dict[str, Any], title: str) -> PublishedFigure:
    try:
        board_file.check_keys(row, PublishedFigure)
        return msgspec.convert(row, PublishedFigure)
    except (BoardError, msgspec.ValidationError) as error:
        raise BoardError(f"{title}: {error}") from None
