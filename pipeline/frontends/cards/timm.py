"""Values of timm and torchvision for the pictures of a classifier.

The exporting program writes them as properties of an ONNX file, or as extra files of ``torch.export.save``: one by one
(``mean``, ``std``, ``crop_pct``, ...), or together as timm's ``pretrained_cfg``.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pipeline.core.model_card import ModelCard
from pipeline.errors import InputError
from pipeline.frontends.cards import Inputs, Metadata
from pipeline.frontends.cards.values import parse_labels, parse_numbers, parse_value

KEY = "pretrained_cfg"

_RESIZE = {"center": "crop", "squash": "stretch", "border": "letterbox"}
"""Modes of cropping in timm."""


def find(metadata: Metadata, path: Path | None, inputs: Inputs) -> ModelCard | None:  # noqa: ARG001
    """Return the card of a model with ``mean`` and ``std``."""
    origin = f"timm's {KEY}" if KEY in metadata else "mean and std in the model's metadata"
    fields: Any = parse_value(metadata[KEY], origin) if KEY in metadata else metadata
    if not isinstance(fields, Mapping) or not {"mean", "std"} <= fields.keys():
        return None
    mean, std = (parse_numbers(fields[name], f"{origin}: {name}") for name in ("mean", "std"))
    # Of values from 0 to 1, as ToTensor makes them, unless they are too large for that.
    preparation: dict[str, Any] = {"mean": mean, "std": std, "scale": 255 if max(mean) > 1 else 1}
    # Torchvision has it as InterpolationMode.BILINEAR.
    rule = str(fields.get("interpolation", "")).rpartition(".")[2].lower()
    if rule in ("bilinear", "bicubic"):
        preparation |= {"sampling": rule, "rounding": "down"}
    mode = str(fields.get("crop_mode") or "center")
    if (fraction := _fraction(fields, origin)) or "crop_mode" in fields:
        preparation |= {"resize": _RESIZE.get(mode, "crop"), "fraction": fraction or 1.0}
    labels = parse_labels(fields["label_names"], f"{origin}: label_names") if fields.get("label_names") else ()
    return ModelCard.of(origin, labels=labels, preparation=preparation)


def _fraction(fields: Mapping[str, Any], origin: str) -> float | None:
    """Return the share of a crop: timm's, or of torchvision's two sizes."""
    names = ("crop_pct",) if fields.get("crop_pct") else ("crop_size", "resize_size")
    if not all(fields.get(name) for name in names):
        return None
    values = [parse_numbers(fields[name], f"{origin}: {name}")[0] for name in names]
    fraction = values[0] if len(values) == 1 else values[0] / (values[1] or 1)
    if not 0 < fraction <= 1:
        raise InputError(f"{origin}: {' / '.join(names)} is {fraction:g}, no share of a picture")
    return fraction
