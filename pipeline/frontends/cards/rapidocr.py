"""Characters that RapidOCR writes into its ONNX files of PaddleOCR's readers, one per line."""

from __future__ import annotations

from pathlib import Path

from pipeline.core.model_card import ModelCard
from pipeline.frontends.cards import Inputs, Metadata

KEY = "character"


def find(metadata: Metadata, path: Path | None, inputs: Inputs) -> ModelCard | None:  # noqa: ARG001
    """Return the card of a model with ``character``."""
    # By the lines of Python, as RapidOCR writes and reads them: some characters end a line elsewhere.
    labels = str(metadata.get(KEY, "")).splitlines()
    return ModelCard.of(f"RapidOCR's {KEY}", labels=labels, task="text") if labels else None
