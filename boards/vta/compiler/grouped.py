"""Grouped convolutions as dense ones, for VTA's matrices of 16 x 16."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from boards.vta.compiler.layers import Convolution


@dataclass(frozen=True, eq=False)
class ConvolutionPart:
    """Some channels of a convolution.

    Attributes
    ----------
    layer : Convolution
        Convolution of one group.
    first_input, first_output : int
        Blocks of channels in front of those that it reads and makes.
    """

    layer: Convolution
    first_input: int = 0
    first_output: int = 0


def split_groups(layer: Convolution, block: int) -> Iterator[ConvolutionPart]:
    """Divide a grouped convolution into convolutions of one group.

    Groups of whole blocks are computed one after the other.  Of groups that share a block, as in a depthwise
    convolution, each block has a matrix of its own with zeros beside the diagonal.  Others become one convolution that
    multiplies mostly zeros; whether that pays, its estimated time tells.
    """
    inputs, outputs = (channels // layer.groups for channels in (layer.inputs[0], len(layer.weights)))
    if layer.groups == 1:
        yield ConvolutionPart(layer)
        return
    # From no zeros at all to zeros for all other groups.
    if inputs % block == 0 and outputs % block == 0:
        groups_per_part = 1
    elif inputs == outputs and block % inputs == 0:
        groups_per_part = block // inputs
    else:
        groups_per_part = layer.groups
    for first_group in range(0, layer.groups, groups_per_part):
        yield _group_part(layer, range(first_group, min(first_group + groups_per_part, layer.groups)), block)


def _group_part(layer: Convolution, groups: range, block: int) -> ConvolutionPart:
    inputs, outputs = (channels // layer.groups for channels in (layer.inputs[0], len(layer.weights)))
    channels = slice(groups.start * outputs, groups.stop * outputs)
    part = replace(
        layer,
        inputs=(len(groups) * inputs, *layer.inputs[1:]),
        weights=expand_groups(layer.weights[channels], len(groups)),
        bias=layer.bias[channels],
        shift=layer.shift[channels],
        groups=1,
    )
    return ConvolutionPart(part, groups.start * inputs // block, groups.start * outputs // block)


def expand_groups(weights: npt.NDArray[np.int8], groups: int) -> npt.NDArray[np.int8]:
    """Return grouped weights with zeros for other groups' channels."""
    results, channels, height, width = weights.shape
    matrix = np.zeros((groups, results // groups, groups, channels, height, width), np.int8)
    diagonal = np.arange(groups)
    # Indices on both sides of a slice: NumPy puts their axis first, where `weights` has its groups.
    matrix[diagonal, :, diagonal] = weights.reshape(groups, results // groups, channels, height, width)
    return matrix.reshape(results, groups * channels, height, width)
