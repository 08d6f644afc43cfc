"""A detector whose answers are known: white squares that fill a cell of its finest grid."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

SIZE = 32
"""Extents of its input; cells are 8, 16 and 32 pixels wide, as YOLOX has them."""

CELL = 16
"""Extent of a cell in the pixels of a scene, which is twice as large."""

Cell = tuple[int, int]


def scene(*cells: Cell) -> np.ndarray:
    """Return a black picture, uint8 [64, 64, 3], with white squares at columns and rows of cells."""
    picture = np.zeros((2 * SIZE, 2 * SIZE, 3), np.uint8)
    for column, row in cells:
        picture[row * CELL : (row + 1) * CELL, column * CELL : (column + 1) * CELL] = 255
    return picture


def boxes(*cells: Cell) -> list[list[float]]:
    """Return the boxes of a scene's squares, in its pixels."""
    return [[CELL * column, CELL * row, CELL * (column + 1), CELL * (row + 1)] for column, row in cells]


def save_detector(path: Path) -> Path:
    """Write an ONNX file with outputs as YOLOX has them; needs onnx."""
    from tests.support.onnx_models import node, save

    nodes: list[Any] = []
    constants: dict[str, np.ndarray] = {}
    for level, stride in enumerate((8, 16, 32)):
        # Of the picture's brightness from 0 to 255, in the finest level: a white cell is certain.
        weights, bias = np.zeros((6, 3, 1, 1), np.float32), np.array([0.5, 0.5, 0, 0, 0, 1], np.float32)
        weights[4] = 1 / 3 / 255 if level == 0 else 0
        cells = np.array([1, 6, (SIZE // stride) ** 2])
        constants |= {f"w{level}": weights, f"b{level}": bias, f"shape{level}": cells}
        nodes += [
            node("AveragePool", "x", f"mean{level}", kernel_shape=[stride] * 2, strides=[stride] * 2),
            node("Conv", f"mean{level} w{level} b{level}", f"conv{level}"),
            node("Reshape", f"conv{level} shape{level}", f"rows{level}"),
        ]
    nodes += [node("Concat", "rows0 rows1 rows2", "all", axis=2), node("Transpose", "all", "y", perm=[0, 2, 1])]
    return save(path, nodes, {"x": (1, 3, SIZE, SIZE)}, ["y"], constants)
