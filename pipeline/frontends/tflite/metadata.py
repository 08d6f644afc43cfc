"""Metadata of a TFLite file: its table of tensors, and the appended archive.

The tables and numbers of fields are those of metadata_schema.fbs in tensorflow/tflite-support.
"""

from __future__ import annotations

import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import flatbuffers
import tflite

from pipeline.core.card_file import LARGEST
from pipeline.errors import reason
from pipeline.frontends.cards.tflite import KEY

_IMAGE, _NORMALIZATION, _RGB = 2, 1, 1
"""ImageProperties, NormalizationOptions and RGB in their enumerations."""

_LABELS = (2, 3)
"""Types of associated files with names: for positions along an axis, and for values."""


def read_metadata(path: Path) -> dict[str, Any]:
    """Return the small files of the archive as text, and under `KEY` facts of the tensors."""
    metadata: dict[str, Any] = dict(_archive_texts(path))
    try:
        model = tflite.Model.GetRootAsModel(path.read_bytes(), 0)
        entries = map(model.Metadata, range(model.MetadataLength()))
        entry = next((entry for entry in entries if entry.Name() == KEY.encode()), None)
        if entry is not None:
            metadata[KEY] = _facts(bytes(model.Buffers(entry.Buffer()).DataAsNumpy()))
    except Exception as error:  # noqa: BLE001 - of struct, NumPy and flatbuffers, whatever a wrong number leads to
        metadata[KEY] = {"problem": reason(error)}
    return metadata


def _archive_texts(path: Path) -> Iterator[tuple[str, str]]:
    try:
        with zipfile.ZipFile(path) as archive:
            for info in archive.infolist():
                # A few bytes may claim to be gigabytes.
                if info.file_size <= LARGEST:
                    yield info.filename, archive.read(info).decode(errors="replace")
    except Exception:  # noqa: BLE001 - most files have no archive, and a damaged one raises several unrelated types
        return


def _facts(data: bytes) -> dict[str, Any]:
    root = _Table(data, int.from_bytes(data[:4], "little"))
    facts: dict[str, Any] = {}
    for subgraph in root.tables(3)[:1]:
        inputs, outputs = subgraph.tables(2), subgraph.tables(3)
        for tensor in inputs[:1]:
            content = tensor.table(3)
            image = content.table(1) if content and content.byte(0) == _IMAGE else None
            facts["is_rgb"] = image is not None and image.byte(0) == _RGB
            for unit in tensor.tables(4):
                if unit.byte(0) == _NORMALIZATION and (options := unit.table(1)):
                    facts |= {"mean": options.floats(0), "std": options.floats(1)}
        files = [file for tensor in outputs for file in tensor.tables(6) if file.byte(2) in _LABELS]
        # Translations have a locale.
        files.sort(key=lambda file: bool(file.text(3)))
        facts["labels"] = files[0].text(0) if files else ""
    return facts


class _Table(flatbuffers.table.Table):  # type: ignore[misc]
    """A table of a flatbuffer, its fields by number."""

    def _place(self, field: int) -> int:
        offset = self.Offset(4 + 2 * field)
        return offset + self.Pos if offset else 0

    def byte(self, field: int) -> int:
        place = self._place(field)
        return self.Bytes[place] if place else 0

    def text(self, field: int) -> str:
        place = self._place(field)
        return self.String(place).decode() if place else ""

    def table(self, field: int) -> _Table | None:
        place = self._place(field)
        return _Table(self.Bytes, self.Indirect(place)) if place else None

    def tables(self, field: int) -> list[_Table]:
        offset = self.Offset(4 + 2 * field)
        if not offset:
            return []
        first = self.Vector(offset)
        return [_Table(self.Bytes, self.Indirect(first + 4 * number)) for number in range(self.VectorLen(offset))]

    def floats(self, field: int) -> tuple[float, ...]:
        offset = self.Offset(4 + 2 * field)
        flags = flatbuffers.number_types.Float32Flags
        return tuple(map(float, self.GetVectorAsNumpy(flags, offset))) if offset else ()
