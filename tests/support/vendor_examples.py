"""Examples of vendors' adapters, installed beside stand-ins for the vendors' packages, and run in a pipeline."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pipeline
from pipeline.core.board.board import Board, Device
from pipeline.executor.devices.vendor_loader import GROUP
from tests.support.distributions import write_distribution
from tests.support.onnx_models import by_onnxruntime, node, save, weights

NODES = (
    node("Conv", "x w", "a", "first", pads=[1, 1, 1, 1]),
    node("Relu", "a", "b", "middle"),
    node("Conv", "b v", "y", "last", pads=[0, 1, 1, 1]),
)
"""A stage of their second half has 4 channels in, 3 out, and unlike extents."""

SHAPE = (1, 4, 6, 7)

CALLS = "CALLS = []\n"
"""Text of the module ``calls``, in which stand-ins write what was asked of them."""


@contextmanager
def installed(root: Path, site: Path, example: str, loader: str, stand_ins: Mapping[str, str]) -> Iterator[list[Any]]:
    """Install an example as its docstring says, with packages by the paths of their files; yield the list of calls."""
    text = (root / "examples" / "vendors" / f"{example}.py").read_text(encoding="utf-8")
    name = f"soc_pipeline_{example}"
    site.mkdir()
    write_distribution(site, name, text, {GROUP: {example: f"{name}:{loader}"}})
    for file, content in {"calls.py": CALLS, **stand_ins}.items():
        path = site / file
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content, encoding="utf-8")
    earlier = set(sys.modules)
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(site)
        # Of the commands, which are processes of their own.
        patch.setenv("PYTHONPATH", os.pathsep.join((str(site), str(root))))
        import calls  # type: ignore[import-not-found]

        yield calls.CALLS
    for module in set(sys.modules) - earlier:
        if Path(getattr(sys.modules[module], "__file__", None) or root).is_relative_to(site):
            del sys.modules[module]


def check_frames(folder: Path, example: str, **target: Any) -> list[Any]:
    """Build, save, load and stream a network whose second half is on a vendor's device; return the results."""
    constants = {"w": weights(4, 4, 3, 3) / 6, "v": weights(3, 4, 3, 3) / 6}
    model = save(folder / "m.onnx", NODES, {"x": SHAPE}, ["y"], constants)
    chip = Device("chip", "vendor", target={"kind": "vendor", "loader": example, **target})
    graph = pipeline.read(model)
    plan = pipeline.plan(graph, Board("b", (Device("cpu"), chip)), devices=["cpu", "chip"])
    pipeline.build(graph, plan, check=False).save(folder / "m.bundle")
    frames = [{"x": weights(*SHAPE, seed=seed)} for seed in range(3)]
    with pipeline.load(folder / "m.bundle") as running:
        results = list(running.map(frames))
    for frame, result in zip(frames, results, strict=True):
        np.testing.assert_allclose(result, by_onnxruntime(model, frame)["y"], atol=1e-5)
    return results
