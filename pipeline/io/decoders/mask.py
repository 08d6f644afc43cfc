"""Masks: a class for each pixel, from scores or numbers of classes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import msgspec
import numpy as np

from pipeline.errors import InputError
from pipeline.io.decoders.activation import activate, check_activation
from pipeline.io.decoders.base import Decode, DecoderFamily, Guess, ModelInterface
from pipeline.io.results import Mask

SMALLEST = 8
"""Cells along a side of a map; what is smaller is rather a feature."""


class Parameters(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Parameters of masks.

    Attributes
    ----------
    threshold : float
        Of a single score for each pixel, those above are class 1.
    activation : str
        Activation of a single score; see `pipeline.io.decoders.activation.activate`.  Of several, the largest counts.
    output : str
        Name of the output with the mask; the first that looks like one by default.
    """

    threshold: float = 0.5
    activation: str = "auto"
    output: str = ""

    def __post_init__(self) -> None:
        check_activation(self.activation)


class MapShape(NamedTuple):
    """Extents of a map over the picture.

    Attributes
    ----------
    channels, height, width : int
    last : bool
        True if channels are the last axis.
    """

    channels: int
    height: int
    width: int
    last: bool

    def planes(self, array: np.ndarray) -> np.ndarray:
        """Return the array as [channels, height, width]."""
        order = (self.height, self.width, self.channels) if self.last else self[:3]
        planes: np.ndarray = array.reshape(order)
        return planes.transpose(2, 0, 1) if self.last else planes


def map_shape(shape: Sequence[int], size: tuple[int, int]) -> MapShape | None:
    """Return the extents of a map over all of the model's input; None for other outputs."""
    extents = tuple(shape[1:] if len(shape) > 2 and shape[0] == 1 else shape)
    extents = (1, *extents) if len(extents) == 2 else extents
    if len(extents) != 3 or not all(size):
        return None
    candidates = MapShape(*extents, last=False), MapShape(extents[2], extents[0], extents[1], last=True)
    # The map has the proportions of the input, within a cell that rounding may cost.
    fits = [
        min(found[1:3]) >= SMALLEST and abs(found.width / size[0] - found.height / size[1]) * max(size) < 1.5
        for found in candidates
    ]
    return next((found for found, fit in zip(candidates, fits, strict=True) if fit), None)


def choose_map(interface: ModelInterface, name: str) -> tuple[str, MapShape]:
    """Return the name and extents of an output over the picture, or raise `InputError`."""
    outputs = {output.name: output.shape for output in interface.outputs}
    if name and name not in outputs:
        raise InputError(f"there is no output {name!r}; there are {', '.join(outputs)}")
    for candidate in [name] if name else outputs:
        if (found := map_shape(outputs[candidate], interface.size)) is not None:
            return candidate, found
    shapes = ", ".join(f"{key} {list(shape)}" for key, shape in outputs.items())
    width, height = interface.size
    raise InputError(f"no output is a map over the input of {width}x{height}; there are {shapes}")


def _make(interface: ModelInterface, parameters: Parameters) -> Decode:
    name, shape = choose_map(interface, parameters.output)
    labels = tuple(interface.labels)
    if labels and shape.channels > 1 and len(labels) != shape.channels:
        raise InputError(f"there are {len(labels)} labels for the {shape.channels} classes of {name!r}")

    def decode(outputs: Mapping[str, np.ndarray]) -> Mask:
        planes = shape.planes(np.asarray(outputs[name]))
        if planes.dtype.kind in "biu":
            # The network has chosen already.
            return Mask(planes[0].astype(np.uint8), labels=labels)
        if shape.channels == 1:
            planes = activate(planes, parameters.activation, 0)
        return Mask(None, np.asarray(planes, np.float32), labels, parameters.threshold)

    return decode


def _recognise(interface: ModelInterface) -> Guess | None:
    if len(interface.outputs) != 1:
        return None
    output = interface.outputs[0]
    shape = map_shape(output.shape, interface.size)
    # Three channels are rather a picture.
    if shape is None or (shape.channels == 3 and len(interface.labels) != shape.channels):
        return None
    reason = f"its only output {list(output.shape)} has {shape.channels} scores for each pixel or cell of the picture"
    if output.dtype in ("int32", "int64") and shape.channels == 1:
        return Guess(f"its only output {list(output.shape)} has an integer for each pixel or cell of the picture")
    # A single score may as well be that of text, or a depth; and maps that are smaller may be those of key points.
    is_full = abs(shape.width - interface.size[0]) <= 1
    certain = shape.channels > 1 and bool(is_full or len(interface.labels) == shape.channels)
    return Guess(reason, certain=certain)


FAMILIES = (DecoderFamily("mask", "mask", Parameters, _make, _recognise),)
