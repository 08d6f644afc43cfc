"""Network: connected layers, compiled to one program."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from boards.vta.compiler.addition import append_addition
from boards.vta.compiler.builder import ProgramBuilder
from boards.vta.compiler.convolution import append_convolution
from boards.vta.compiler.grouped import split_groups
from boards.vta.compiler.layers import Addition, Concatenation, Convolution, MaxPool
from boards.vta.compiler.packing import blocks, pack, unpack
from boards.vta.compiler.pooling import append_max_pool
from boards.vta.isa.config import Config, MemoryType
from boards.vta.isa.program import VtaProgram
from pipeline.errors import BuildError

Shape: TypeAlias = tuple[int, int, int]
"""Channels, height and width."""

Int8Tensor: TypeAlias = npt.NDArray[np.int8]
"""``int8[channels, height, width]``."""

Layer: TypeAlias = Convolution | Addition | MaxPool | Concatenation


@dataclass(frozen=True)
class LayerStep:
    """A layer and its input tensors.

    Attributes
    ----------
    layer : Convolution, Addition, MaxPool or Concatenation
        Layer to compute.
    sources : tuple of int
        Numbers of the tensors that it reads: the network's inputs come first, then the results of the steps.
    """

    layer: Layer
    sources: tuple[int, ...]

    @property
    def inputs(self) -> tuple[Shape, ...]:
        """The shapes of the layer's inputs."""
        if isinstance(self.layer, Concatenation):
            return self.layer.shapes
        return (self.layer.shape,) * 2 if isinstance(self.layer, Addition) else (self.layer.inputs,)

    @property
    def outputs(self) -> Shape:
        """The shape of the layer's output."""
        return self.layer.shape if isinstance(self.layer, Addition) else self.layer.outputs


@dataclass(frozen=True)
class TensorLocation:
    """The address of a packed tensor.

    Attributes
    ----------
    shape : tuple of int
        Shape without the channels that fill up the last block.
    address : int
        The byte address of its first element, packed.
    """

    shape: Shape
    address: int


@dataclass(frozen=True, eq=False)
class Network:
    """Compiled layers.

    Attributes
    ----------
    program : VtaProgram
        Program for inputs of zeros.
    inputs, outputs : tuple of TensorLocation
        Addresses of the inputs, and of the outputs in the end.
    macs : int
        Products of one frame.
    """

    program: VtaProgram
    inputs: tuple[TensorLocation, ...]
    outputs: tuple[TensorLocation, ...]
    macs: int

    def on(self, *tensors: Int8Tensor) -> VtaProgram:
        """Return the program for some inputs."""
        # A copy: the compiled program serves every frame.
        memory = self.program.memory.copy()
        for location, tensor in zip(self.inputs, tensors, strict=True):
            if tensor.shape != location.shape:
                raise BuildError(f"an input has the shape {tensor.shape}; the network is for {location.shape}")
            elements = pack(self.program.config, tensor).reshape(-1).view(np.uint8)
            start = location.address - self.program.base
            memory[start : start + elements.size] = elements
        return replace(self.program, memory=memory)

    def results(self, memory: npt.NDArray[np.uint8]) -> tuple[Int8Tensor, ...]:
        """Return the outputs from the memory in the end."""
        return tuple(self._result(location, memory) for location in self.outputs)

    def _result(self, location: TensorLocation, memory: npt.NDArray[np.uint8]) -> Int8Tensor:
        channels, height, width = location.shape
        config = self.program.config
        start = location.address - self.program.base
        elements = memory[start : start + _nbytes(config, location.shape)].view(np.int8)
        return unpack(elements.reshape(-1, height, width, config.block), channels)


def compile_network(
    config: Config, inputs: Sequence[Shape], steps: Sequence[LayerStep], outputs: Sequence[int]
) -> Network:
    """Compile layers.

    Parameters
    ----------
    config : Config
        The accelerator.
    inputs : sequence of tuple of int
        Shapes of the inputs.
    steps : sequence of LayerStep
        The layers, each behind those whose results it reads.
    outputs : sequence of int
        Numbers of the tensors that are wanted.

    Raises
    ------
    BuildError
        If the layers do not fit each other, or one does not fit the accelerator.
    """
    # Elements of several rows would need as many frames, and a frame comes alone.
    if config.batch > 1:
        raise BuildError(f"{config.name} computes {config.batch} frames at a time; the compiler makes programs for one")
    shapes = _check_steps(inputs, steps)
    builder = ProgramBuilder(config)
    # Each tensor has pages of its own, so that no result waits until the last reader of another is done.
    locations = [TensorLocation(shape, builder.room(_nbytes(config, shape))) for shape in shapes]
    for number, step in enumerate(steps, len(inputs)):
        _append_layer(builder, step, [locations[source].address for source in step.sources], locations[number].address)
    macs = sum(step.layer.macs for step in steps if isinstance(step.layer, Convolution))
    return Network(builder.program(), tuple(locations[: len(inputs)]), tuple(locations[step] for step in outputs), macs)


def _check_steps(inputs: Sequence[Shape], steps: Sequence[LayerStep]) -> list[Shape]:
    """Return the shapes of all tensors."""
    shapes = list(inputs)
    for number, step in enumerate(steps):
        if any(not 0 <= source < len(shapes) for source in step.sources):
            raise BuildError(f"step {number} reads tensors {step.sources}; before it there are {len(shapes)}")
        source_shapes = tuple(shapes[source] for source in step.sources)
        if source_shapes != step.inputs:
            raise BuildError(f"step {number} is for inputs of {step.inputs} and reads {source_shapes}")
        shapes.append(step.outputs)
    return shapes


def _append_layer(builder: ProgramBuilder, step: LayerStep, sources: list[int], target: int) -> None:
    if isinstance(step.layer, Addition):
        append_addition(builder, step.layer, (sources[0], sources[1]), target)
    elif isinstance(step.layer, MaxPool):
        append_max_pool(builder, step.layer, sources[0], target)
    elif isinstance(step.layer, Concatenation):
        _append_concatenation(builder, step.layer, sources, target)
    else:
        _append_groups(builder, step.layer, sources[0], target)


def _append_groups(builder: ProgramBuilder, layer: Convolution, source: int, target: int) -> None:
    """Append a convolution, group by group."""
    config = builder.config
    for part in split_groups(layer, config.block):
        input_offset, output_offset = (
            first * shape[1] * shape[2] * config.element_bytes(memory)
            for first, shape, memory in (
                (part.first_input, layer.inputs, MemoryType.INP),
                (part.first_output, layer.outputs, MemoryType.OUT),
            )
        )
        append_convolution(builder, part.layer, source + input_offset, target + output_offset)


def _append_concatenation(builder: ProgramBuilder, layer: Concatenation, sources: list[int], target: int) -> None:
    """Append copies of tensors into one, as products with the identity."""
    block = builder.config.block
    # A tensor that ends inside of a block would leave the next one's channels in other lanes.
    if any(channels % block for channels, _, _ in layer.shapes[:-1]):
        counts = ", ".join(str(shape[0]) for shape in layer.shapes)
        raise BuildError(f"it joins tensors of {counts} channels; VTA can do multiples of {block}, but for the last")
    for shape, source in zip(layer.shapes, sources, strict=True):
        channels = shape[0]
        zeros = np.zeros(channels, np.int32)
        identity = np.ones((channels, 1, 1, 1), np.int8)
        copy = Convolution(shape, identity, zeros, zeros.astype(np.int8), groups=channels)
        _append_groups(builder, copy, source, target)
        target += _nbytes(builder.config, shape)


def _nbytes(config: Config, shape: Shape) -> int:
    channels, height, width = shape
    return blocks(config, channels) * height * width * config.element_bytes(MemoryType.OUT)
