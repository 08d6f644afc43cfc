"""Models that are described before they are built."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from pipeline.io.planned_model import PlannedModel
from pipeline.workflow import plan

CHOICES = {"board": "host", "stages": 1}


@pytest.fixture
def plans(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Names of the graphs that are planned."""
    names, original = list[str](), plan.plan

    def note(graph: Any, **choices: Any) -> Any:
        names.append(graph.name)
        return original(graph, **choices)

    monkeypatch.setattr(plan, "plan", note)
    return names


def test_a_model_is_planned_once_for_its_description_and_its_build(
    digits_onnx: Path, tmp_path: Path, plans: list[str]
) -> None:
    path = shutil.copy(digits_onnx, tmp_path / "m.onnx")
    model = PlannedModel(path, CHOICES)
    described, bundle = model.describe(), model.load()
    assert len(plans) == 1
    assert described.plan == bundle.plan
    # It lies in the cache from now on.
    assert PlannedModel(path, CHOICES).describe().plan == bundle.plan
    assert len(plans) == 1


def test_a_model_that_changes_behind_its_description_is_planned_again(
    digits_onnx: Path, tmp_path: Path, plans: list[str]
) -> None:
    path = shutil.copy(digits_onnx, tmp_path / "m.onnx")
    model = PlannedModel(path, CHOICES)
    model.describe()
    changed = onnx.load(path)
    weights = changed.graph.initializer[0]
    weights.CopyFrom(onnx.numpy_helper.from_array(np.zeros_like(onnx.numpy_helper.to_array(weights)), weights.name))
    onnx.save(changed, path)
    assert model.load().plan == PlannedModel(path, CHOICES).describe().plan
    assert len(plans) == 2
