"""YuNet: faces and five points for each cell of a grid.

By ShiqiYu/libfacedetection.train: as corrections of anchors of one stride at the corners of the cells.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from pipeline.core.model_card import Preparation
from pipeline.io.decoders.anchors import AnchorParameters, read_anchors
from pipeline.io.decoders.base import Decode, DecoderFamily, Guess, ModelInterface, mismatch
from pipeline.io.decoders.grid import count_cells, grid_cells
from pipeline.io.decoders.suppression import Fraction
from pipeline.io.results import Result

_PREPARATION = Preparation(
    resize="letterbox", margin="corner", rounding="down", channels="bgr", scale=255, fill=0, sampling="opencv"
)

_WIDTHS = {"cls": 1, "obj": 1, "bbox": 4, "kps": 10}
"""Numbers of a cell, by the beginnings of the outputs' names."""


class YunetParameters(AnchorParameters, frozen=True, forbid_unknown_fields=True):
    """Parameters of YuNet."""

    variances: tuple[float, float] = (1.0, 1.0)
    sigmoid: bool | None = False
    score: Fraction = 0.5


def make(interface: ModelInterface, parameters: YunetParameters) -> Decode:
    """Return the decoder of a model."""
    shapes = {spec.name: tuple(spec.shape) for spec in interface.outputs}
    wanted = {
        f"{part}_{stride}": (1, count_cells(interface.size, (stride,)), width)
        for part, width in _WIDTHS.items()
        for stride in parameters.strides
    }
    if any(shapes.get(name) != shape for name, shape in wanted.items()):
        texts = ", ".join(f"{name!r} {list(shape)}" for name, shape in wanted.items())
        raise mismatch("yunet", texts, interface)
    cells, strides = grid_cells(interface.size, parameters.strides)
    anchors = (np.stack([*cells, *np.ones_like(cells)], 1) * strides[:, None]) / np.array(
        interface.size * 2, np.float32
    )
    interface = replace(interface, labels=interface.labels or ("face",))

    def decode(outputs: Mapping[str, np.ndarray]) -> Result:
        parts = {
            part: np.concatenate([outputs[f"{part}_{stride}"][0] for stride in parameters.strides]) for part in _WIDTHS
        }
        arrays = {"boxes": parts["bbox"], "scores": parts["cls"] * parts["obj"], "points": parts["kps"]}
        return read_anchors(arrays, anchors, parameters, interface)

    return decode


def recognise(interface: ModelInterface) -> Guess | None:
    """Recognise outputs by their names."""
    wanted = {f"{part}_{stride}" for part in _WIDTHS for stride in YunetParameters().strides}
    if {spec.name for spec in interface.outputs} != wanted:
        return None
    return Guess("its outputs have the names of YuNet's, such as 'kps_8'", {}, _PREPARATION)


FAMILIES = (DecoderFamily("yunet", "detect", YunetParameters, make, recognise),)
