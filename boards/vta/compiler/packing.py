"""Tensors in VTA's blocked layouts, channels padded with zeros, and back."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from boards.vta.isa.config import Config


def blocks(config: Config, channels: int) -> int:
    """Count the elements for a number of channels."""
    return -(-channels // config.block)


def pack(config: Config, tensor: npt.NDArray[np.int8]) -> npt.NDArray[np.int8]:
    """Pack ``int8[channels, height, width]`` as ``int8[channel blocks, height, width, block]``."""
    channels, height, width = tensor.shape
    # Zeros add nothing to sums, whatever the weights of these channels.
    elements = np.zeros((blocks(config, channels) * config.block, height, width), np.int8)
    elements[:channels] = tensor
    return np.ascontiguousarray(elements.reshape(-1, config.block, height, width).transpose(0, 2, 3, 1))


def unpack(elements: npt.NDArray[np.int8], channels: int) -> npt.NDArray[np.int8]:
    """Unpack the first channels as ``int8[channels, height, width]``."""
    count, height, width, block = elements.shape
    return np.ascontiguousarray(elements.transpose(0, 3, 1, 2).reshape(count * block, height, width)[:channels])


def pack_weights(config: Config, weights: npt.NDArray[np.int8]) -> npt.NDArray[np.int8]:
    """Pack ``int8[o, i, height, width]`` into blocks of output and input channels."""
    outputs, inputs, height, width = weights.shape
    block = config.block
    matrix = np.zeros((blocks(config, outputs) * block, blocks(config, inputs) * block, height, width), np.int8)
    matrix[:outputs, :inputs] = weights
    block_rows = matrix.reshape(matrix.shape[0] // block, block, matrix.shape[1] // block, block, height, width)
    # Inputs last: vta.cc reads w_tensor[output][input].
    return np.ascontiguousarray(block_rows.transpose(0, 2, 4, 5, 1, 3))


def pack_constants(config: Config, values: npt.NDArray[np.int32]) -> npt.NDArray[np.int32]:
    """Pack one number per channel as ACC elements, ``int32[blocks, block]``."""
    elements = np.zeros((blocks(config, len(values)), config.block), np.int32)
    elements.reshape(-1)[: len(values)] = values
    return elements
