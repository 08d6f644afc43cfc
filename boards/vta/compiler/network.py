"""Network: layers that read each other's results, compiled to one program."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from boards.vta.compiler.addition import addition
from boards.vta.compiler.builder import Builder
from boards.vta.compiler.layers import Addition, Convolution, MaxPool
from boards.vta.compiler.packing import blocks, pack, unpack
from boards.vta.compiler.pooling import max_pool
from boards.vta.compiler.schedule import convolution
from boards.vta.config import Config, Memory
from boards.vta.program import Program
from pipeline.errors import BuildError

Shape: TypeAlias = tuple[int, int, int]
"""Channels, height and width."""

Tensor: TypeAlias = npt.NDArray[np.int8]
"""``int8[channels, height, width]``."""

Layer: TypeAlias = Convolution | Addition | MaxPool


@dataclass(frozen=True)
class Step:
    """A layer and what it reads.

    Attributes
    ----------
    layer : Convolution, Addition or MaxPool
        What to compute.
    sources : tuple of int
        Numbers of the tensors that it reads: the network's inputs come first, then the results of the steps.
    """

    layer: Layer
    sources: tuple[int, ...]

    @property
    def inputs(self) -> tuple[Shape, ...]:
        """The shapes that the layer reads."""
        return (self.layer.shape,) * 2 if isinstance(self.layer, Addition) else (self.layer.inputs,)

    @property
    def outputs(self) -> Shape:
        """The shape that it makes."""
        return self.layer.shape if isinstance(self.layer, Addition) else self.layer.outputs


@dataclass(frozen=True)
class Place:
    """Where a tensor is.

    Attributes
    ----------
    shape : tuple of int
        Without the channels that fill up the last block.
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
    program : Program
        For inputs of zeros.
    inputs, outputs : tuple of Place
        Where the inputs go, and where the outputs are in the end.
    macs : int
        Products of one frame.
    """

    program: Program
    inputs: tuple[Place, ...]
    outputs: tuple[Place, ...]
    macs: int

    def on(self, *tensors: Tensor) -> Program:
        """Return the program for some inputs."""
        memory = self.program.memory.copy()
        for place, tensor in zip(self.inputs, tensors, strict=True):
            if tensor.shape != place.shape:
                raise BuildError(f"an input has the shape {tensor.shape}; the network is for {place.shape}")
            packed = pack(self.program.config, tensor).reshape(-1).view(np.uint8)
            start = place.address - self.program.base
            memory[start : start + packed.size] = packed
        return replace(self.program, memory=memory)

    def results(self, memory: npt.NDArray[np.uint8]) -> tuple[Tensor, ...]:
        """Return the outputs from the memory in the end."""
        return tuple(self._result(place, memory) for place in self.outputs)

    def _result(self, place: Place, memory: npt.NDArray[np.uint8]) -> Tensor:
        channels, height, width = place.shape
        config = self.program.config
        start = place.address - self.program.base
        packed = memory[start : start + _nbytes(config, place.shape)].view(np.int8)
        return unpack(packed.reshape(-1, height, width, config.block), channels)


def compiled(config: Config, inputs: Sequence[Shape], steps: Sequence[Step], outputs: Sequence[int]) -> Network:
    """Compile layers.

    Parameters
    ----------
    config : Config
        The accelerator.
    inputs : sequence of tuple of int
        Shapes of the inputs.
    steps : sequence of Step
        The layers, each behind those whose results it reads.
    outputs : sequence of int
        Numbers of the tensors that are wanted.

    Raises
    ------
    BuildError
        If the layers do not fit each other, or one does not fit the accelerator.
    """
    if config.batch > 1:
        raise BuildError(f"{config.name} computes {config.batch} frames at a time; the compiler makes programs for one")
    shapes = _checked(inputs, steps)
    builder = Builder(config)
    places = [Place(shape, builder.room(_nbytes(config, shape))) for shape in shapes]
    for number, step in enumerate(steps, len(inputs)):
        _append(builder, step, [places[source].address for source in step.sources], places[number].address)
    macs = sum(step.layer.macs for step in steps if isinstance(step.layer, Convolution))
    return Network(builder.program(), tuple(places[: len(inputs)]), tuple(places[each] for each in outputs), macs)


def chain(config: Config, layers: Sequence[Convolution | MaxPool]) -> Network:
    """Compile layers of which each reads the result of the one before; raises as `compiled` does."""
    if not layers:
        raise BuildError("there are no layers; give at least one")
    steps = [Step(layer, (number,)) for number, layer in enumerate(layers)]
    return compiled(config, [layers[0].inputs], steps, [len(layers)])


def _checked(inputs: Sequence[Shape], steps: Sequence[Step]) -> list[Shape]:
    """Return the shapes of all tensors."""
    shapes = list(inputs)
    for number, step in enumerate(steps):
        if any(not 0 <= source < len(shapes) for source in step.sources):
            raise BuildError(f"step {number} reads tensors {step.sources}; before it there are {len(shapes)}")
        found = tuple(shapes[source] for source in step.sources)
        if found != step.inputs:
            raise BuildError(f"step {number} is for inputs of {step.inputs} and reads {found}")
        shapes.append(step.outputs)
    return shapes


def _append(builder: Builder, step: Step, sources: list[int], target: int) -> None:
    if isinstance(step.layer, Addition):
        addition(builder, step.layer, (sources[0], sources[1]), target)
    elif isinstance(step.layer, MaxPool):
        max_pool(builder, step.layer, sources[0], target)
    else:
        convolution(builder, step.layer, sources[0], target)


def _nbytes(config: Config, shape: Shape) -> int:
    channels, height, width = shape
    return blocks(config, channels) * height * width * config.element_bytes(Memory.OUT)
