"""Outputs of any size as JSON lines."""

import json
from pathlib import Path

import numpy as np
import pytest

from pipeline.io.sinks.json_lines import MOST_VALUES, JsonLines
from pipeline.io.source_frame import SourceFrame, StreamFrame


@pytest.mark.parametrize(
    "shape",
    [
        (),
        (0, 3),
        (3, 0),
        (4,),
        (MOST_VALUES + 1,),
        (3, MOST_VALUES),
        (2, 1, 2 * MOST_VALUES + 3),
        (MOST_VALUES, 0),
        (90, 80),
    ],
)
def test_outputs_of_any_size_are_read_again(tmp_path: Path, shape: tuple[int, ...]) -> None:
    path = tmp_path / "out.jsonl"
    values = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
    sink = JsonLines(path)
    sink.add(StreamFrame(SourceFrame("a", np.zeros(1), 0), {"y": values}))
    sink.finish()
    read = np.array(json.loads(path.read_text(encoding="utf-8"))["outputs"]["y"], np.float32).reshape(shape)
    np.testing.assert_array_equal(read, values)
