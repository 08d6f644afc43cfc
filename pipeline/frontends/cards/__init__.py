"""Model cards, found where models already have them; one file per origin."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from pipeline.core.card_file import CARD_KEY, decode_card, read_card
from pipeline.core.model_card import ModelCard
from pipeline.errors import InputError

Metadata = Mapping[str, Any]
"""Metadata of a model by key: mostly texts."""

Inputs = Mapping[str, str]
"""Dtypes of a model's inputs by name, in its order."""

ORIGINS = ("ultralytics", "tflite", "timm", "rapidocr", "modelinfo")
"""Modules of this folder in the order of their weight.

Each has ``find(metadata, path, inputs)`` for a card or None; `path` is None of a model in memory.  It raises
`InputError` on metadata that it takes for its own and cannot read.
"""


def find_card(model: Any, metadata: Metadata, inputs: Inputs) -> tuple[ModelCard, tuple[str, ...]]:
    """Return the card of a model, and notes on unreadable parts of it.

    Raises `InputError` if the card of TOML beside it has a mistake. `inputs` are the dtypes by name.
    """
    path = Path(model) if isinstance(model, str | Path) else None
    # 1. Written by hand, for this model: a mistake there is refused.
    card = _read_written(path) if path else ModelCard()
    # 2. In the model or beside it, by programs: their mistakes are noted, and the model is read all the same.
    notes = []
    for name in ("", *ORIGINS):
        find: Callable[..., ModelCard | None] = (
            importlib.import_module(f"{__name__}.{name}").find if name else _find_own
        )
        try:
            card = card.merge(find(metadata, path, inputs) or ModelCard())
        except InputError as error:
            notes.append(f"{error}; it is ignored")
    return card, tuple(notes)


def _read_written(path: Path) -> ModelCard:
    card_path = path.with_suffix(".toml")
    if card_path == path or not card_path.is_file():
        return ModelCard()
    try:
        return read_card(card_path)
    except InputError as error:
        raise InputError(f"{error}; mend it, or rename it if it is none for {path.name!r}") from None


def _find_own(metadata: Metadata, path: Path | None, inputs: Inputs) -> ModelCard | None:  # noqa: ARG001
    return decode_card(metadata[CARD_KEY], "the model's metadata") if CARD_KEY in metadata else None
