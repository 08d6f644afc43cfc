"""One entry, and all verbs take the format: ``python -m tests.support.new_format FOLDER``."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

import pipeline
from pipeline.core.packed_model import SourceRuntime
from pipeline.errors import ModelError
from pipeline.frontends.formats import Format, register

register(Format(
    "a toy model", "tests.support.toy_format", lambda head: head.startswith(b"toy\n"), parts=".toy",
    library=SourceRuntime("toy", "Toy", "json", "toy", "tests.support.toy_format.runtime"),
))  # fmt: skip

MODEL = "toy\ninput x 2 3\ndouble a x\ncube b a\ncube c b\nadd y c a\noutput y"


def main(folder: Path) -> None:
    """Read, plan, build with a comparison, save, load, run, and export."""
    path = folder / "model.toy"
    path.write_text(MODEL)
    with pytest.raises(ModelError, match="TVM cannot import b: not supported"):
        pipeline.read(path, fallback=False)
    graph = pipeline.read(path)
    assert [(operator.name, operator.kind) for operator in graph.operators] == [
        ("a", "add"), ("b", "toy"), ("c", "toy"), ("y", "add")
    ]  # fmt: skip
    assert [island.operators for island in graph.islands] == [("cube",), ("cube",)]
    plan = pipeline.plan(graph, cuts=["b"])
    bundle = pipeline.build(graph, plan, verify=True)
    assert bundle.verification is not None
    assert bundle.verification.reference == "Toy"
    bundle.save(folder / "model.bundle")
    frame = np.arange(6, dtype=np.float32).reshape(2, 3)
    with pipeline.load(folder / "model.bundle") as running:
        result = running.submit(frame).result(60)
    np.testing.assert_array_equal(result, (2 * frame) ** 9 + 2 * frame)
    exported = pipeline.export_stages(graph, plan, folder / "parts", format="source", verify=True)
    assert [stage.file.rpartition(".")[2] for stage in exported.manifest.stages] == ["toy", "toy"]
    assert exported.verification is not None
    print("read, built, run, compared, and exported")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
