"""Tensors are put behind each other where their channels fill whole blocks."""

from __future__ import annotations

import pytest

from boards.vta.compiler.layers import Concatenation
from boards.vta.compiler.network import LayerStep, compile_network
from boards.vta.isa.config import ULTRA96
from pipeline.errors import BuildError
from tests.support.vta.checking import check_steps
from tests.support.vta.references import layer


def test_concatenations() -> None:
    shapes = ((16, 5, 7), (48, 5, 7), (10, 5, 7))
    steps = [LayerStep(Concatenation(shapes), (0, 1, 2)), LayerStep(layer((74, 5, 7), 20), (3,))]
    check_steps(shapes, steps)


def test_what_fills_no_block_is_refused() -> None:
    shapes = ((10, 5, 7), (16, 5, 7))
    with pytest.raises(BuildError, match="joins tensors of 10, 16 channels; VTA can do multiples of 16"):
        compile_network(ULTRA96, shapes, [LayerStep(Concatenation(shapes), (0, 1))], [2])
    with pytest.raises(BuildError, match="heights and widths must be the same"):
        Concatenation(((16, 5, 7), (16, 7, 5)))
