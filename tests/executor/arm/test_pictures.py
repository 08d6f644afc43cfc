"""A bundle's picture kernels on Arm: what plain NumPy makes of each format of pixels."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import pipeline
from pipeline.core.model_card import Preparation
from pipeline.picture.pixels import FORMATS, Pixels
from tests.executor.arm.conftest import SLOW, ArmPython, board
from tests.support import pictures
from tests.support.onnx_models import node, save, weights

pytestmark = list(SLOW)

RUN = """
import sys
import numpy as np
from pipeline.core.model_card import Preparation
from pipeline.executor.bundle import Bundle
from pipeline.picture.pixels import FORMATS, Pixels
from pipeline.picture.preparation import PictureInput, PreparationStage
from tests.support import pictures
bundle = Bundle.load(sys.argv[1])
picture_input = PictureInput(bundle.plan.inputs[0], Preparation(scale=255), (), bundle.pictures)
results = {}
for name in FORMATS:
    pixels = Pixels(name, 100, 60)
    results[name] = PreparationStage(pixels, picture_input)(pictures.random_picture(pixels))
np.savez(sys.argv[2], **results)
"""


@pytest.mark.parametrize("processor", ["cortex-a53", "cortex-a76"])
def test_every_format_is_prepared_there(arm: ArmPython, processor: str, tmp_path: Path) -> None:
    file = save(tmp_path / "model.onnx", [node("Conv", "x w", "y")], {"x": (1, 3, 33, 47)}, ["y"],
                {"w": weights(4, 3, 1, 1)})  # fmt: skip
    graph = pipeline.read(file)
    plan = pipeline.plan(graph, board(processor), stages=1)
    pipeline.build(graph, plan, check=False).save(tmp_path / "arm.bundle")
    process = arm.run(processor, "-c", RUN, tmp_path / "arm.bundle", tmp_path / "results.npz")
    assert process.returncode == 0, process.stderr
    with np.load(tmp_path / "results.npz") as results:
        for name in FORMATS:
            pixels = Pixels(name, 100, 60)
            array = pictures.random_picture(pixels)
            reference, _ = pictures.prepare(pixels, array, (47, 33), 3, Preparation(sampling="bilinear"))
            result = results[name][0].transpose(1, 2, 0)
            assert np.abs(result - reference).max() <= 0.501, name
