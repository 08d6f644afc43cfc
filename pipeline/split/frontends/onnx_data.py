"""The data files that an ONNX model may keep its parameters in, checked before they are read."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pipeline.errors import ModelError


def check(path: Path, model: Any) -> bool:
    """Return whether a model that was loaded without its data files has any.

    Raises
    ------
    ModelError
        If one is missing, or shorter than the model says.
    """
    found = False
    for tensor in _external(model):
        found = True
        stored = {entry.key: entry.value for entry in tensor.external_data}
        _check_file(path, tensor.name, stored)
    return found


def _external(model: Any) -> Iterator[Any]:
    graph = model.graph
    constants = (each.t for node in graph.node for each in node.attribute if each.HasField("t"))
    for tensor in (*graph.initializer, *constants):
        if tensor.HasField("data_location") and tensor.data_location == tensor.EXTERNAL:
            yield tensor


def _check_file(path: Path, tensor: str, stored: dict[str, str]) -> None:
    location = stored.get("location", "")
    file = path.parent / location
    if not location or not file.is_file():
        raise ModelError(
            f"{str(path)!r} keeps tensor {tensor!r} in the data file {location!r}, which is not there; "
            "put it into the model's folder"
        )
    needed = _number(stored, "offset") + _number(stored, "length")
    if (size := file.stat().st_size) < needed:
        raise ModelError(
            f"{str(path)!r} keeps tensor {tensor!r} in the data file {location!r}, which has {size} bytes where at "
            f"least {needed} are needed; copy it again"
        )


def _number(stored: dict[str, str], key: str) -> int:
    text = stored.get(key, "0")
    return int(text) if text.isdecimal() else 0
