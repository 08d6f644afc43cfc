"""TFLite's metadata: normalisation and labels, as TensorFlow's libraries write them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pipeline.core.model_card import ModelCard
from pipeline.errors import InputError
from pipeline.frontends.cards import Inputs, Metadata

ORIGIN = "TFLite's metadata"

KEY = "TFLITE_METADATA"


def find(metadata: Metadata, path: Path | None, inputs: Inputs) -> ModelCard | None:  # noqa: ARG001
    """Return the card of a model with `KEY`; see `pipeline.frontends.tflite.metadata`."""
    facts = metadata.get(KEY)
    if facts is None:
        return None
    if problem := facts.get("problem"):
        raise InputError(f"{ORIGIN} is damaged: {problem}")
    labels: tuple[str, ...] = ()
    if file := facts.get("labels"):
        if file not in metadata:
            raise InputError(f"{ORIGIN}: the labels {file!r} are not in the model's file")
        labels = tuple(line.strip() for line in metadata[file].rstrip().splitlines())
    preparation: dict[str, Any] = {}
    # Bytes are taken as they are: these numbers are those of the model before it was quantised.
    if facts.get("mean") and facts.get("std") and next(iter(inputs.values()), "") not in ("int8", "uint8"):
        preparation = {"mean": facts["mean"], "std": facts["std"], "scale": 255}
    if facts.get("is_rgb"):
        preparation["channels"] = "rgb"
    return ModelCard.of(ORIGIN, labels=labels, preparation=preparation)
