"""Ultralytics' metadata: exports of YOLOv5 and later.

ONNX files have it as properties, TFLite files as a file in an appended archive: ``metadata.json``, or in older ones
``temp_meta.txt`` or ``meta.txt`` with a dictionary of Python.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from pipeline.core.model_card import TASKS, ModelCard, Preparation
from pipeline.errors import InputError
from pipeline.frontends.cards import Inputs, Metadata
from pipeline.frontends.cards.values import parse_labels, parse_value

ORIGIN = "Ultralytics' metadata"

FILES = ("metadata.json", "temp_meta.txt", "meta.txt")


def find(metadata: Metadata, path: Path | None, inputs: Inputs) -> ModelCard | None:  # noqa: ARG001
    """Return the card of an export with ``names`` and ``stride``."""
    file = next((name for name in FILES if name in metadata), None)
    fields = metadata if file is None else parse_value(metadata[file], f"{ORIGIN} in {file!r}")
    if not isinstance(fields, Mapping) or not {"names", "stride"} <= fields.keys():
        return None
    # YOLOv5 has no task; its heads with masks are told from boxes by their outputs.
    task = str(fields.get("task", ""))
    if task and task not in TASKS:
        raise InputError(f"{ORIGIN}: the task {task!r} is unknown")
    if task == "classify":
        preparation = Preparation(resize="crop", scale=1, sampling="bilinear", rounding="down")
    else:
        preparation = Preparation(resize="letterbox", scale=1, sampling="opencv")
    card = ModelCard.of(
        ORIGIN, task=task, labels=parse_labels(fields["names"], f"{ORIGIN}: names"), preparation=preparation
    )
    if task != "pose" or "kpt_shape" not in fields:
        return card
    # Nothing else tells 18 points of two numbers from 12 of three.
    points = parse_value(fields["kpt_shape"], f"{ORIGIN}: kpt_shape")
    if not isinstance(points, list | tuple) or [type(number) for number in points] != [int, int]:
        raise InputError(f"{ORIGIN}: kpt_shape is {points!r}, not two whole numbers")
    return ModelCard.of(ORIGIN, decoder="yolov8-pose", parameters={"points": list(points)}).merge(card)


def exported_size(metadata: Metadata) -> dict[str, int]:
    """Return height and width of an export whose pictures may have any size; empty without them."""
    try:
        size = parse_value(metadata.get("imgsz", "[]"), ORIGIN)
    except InputError:
        return {}
    if not isinstance(size, list) or [type(extent) for extent in size] != [int, int] or min(size) < 1:
        return {}
    return dict(zip(("height", "width"), size, strict=True))
