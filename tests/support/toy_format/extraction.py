"""Parts of a model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from pipeline.frontends.extraction import Region
from tests.support.toy_format import Line, parse, write


class Extractor:
    """Cuts parts out of a file."""

    def __init__(self, model: str | Path, _shapes: Mapping[str, Sequence[int]]) -> None:
        lines = parse(Path(model).read_text())
        self._lines = {line.name: line for line in lines if line.kind != "output"}

    def extract(self, region: Region) -> bytes:
        """Return a file of a region."""
        needed, pending = set[str](), list(region.outputs)
        while pending:
            name = pending.pop()
            if name not in region.inputs and name not in needed:
                needed.add(name)
                pending += self._lines[name].operands
        inputs = [Line("input", name, tuple(map(str, spec.shape))) for name, spec in region.inputs.items()]
        ends = [Line("output", name, ()) for name in region.outputs]
        return write([*inputs, *(line for name, line in self._lines.items() if name in needed), *ends])
