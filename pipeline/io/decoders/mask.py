"""Masks: a class for each pixel, from scores or numbers of classes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec
import numpy as np

from pipeline.core.picture_layout import PictureLayout
from pipeline.errors import InputError
from pipeline.io.decoders.activation import activate, check_activation
from pipeline.io.decoders.base import Decode, DecoderFamily, Guess, ModelInterface, check_labels
from pipeline.io.results import Mask

SMALLEST = 8
"""Cells along a side of a map; what is smaller is rather a feature."""


class Parameters(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Parameters of masks."""

    threshold: float = 0.5
    """Of a single score for each pixel, those above are class 1."""
    activation: str = "auto"
    """Activation of a single score; see `pipeline.io.decoders.activation.activate`. Of several, the largest counts."""
    output: str = ""
    """Name of the output with the mask; the first that looks like one by default."""

    def __post_init__(self) -> None:
        check_activation(self.activation)


def map_shape(shape: Sequence[int], size: tuple[int, int]) -> PictureLayout | None:
    """Return the extents of a map over all of the model's input; None for other outputs."""
    extents = tuple(shape[1:] if len(shape) > 2 and shape[0] == 1 else shape)
    extents = (1, *extents) if len(extents) == 2 else extents
    if len(extents) != 3 or not all(size):
        return None
    layouts = PictureLayout(*extents, last=False), PictureLayout(extents[2], *extents[:2], last=True)
    # The map has the proportions of the input, within a cell that rounding may cost.
    fits = (
        layout
        for layout in layouts
        if min(layout.width, layout.height) >= SMALLEST
        and abs(layout.width / size[0] - layout.height / size[1]) * max(size) < 1.5
    )
    return next(fits, None)


def choose_map(interface: ModelInterface, name: str) -> tuple[str, PictureLayout]:
    """Return the name and extents of an output over the picture, or raise `InputError`."""
    outputs = {output.name: output.shape for output in interface.outputs}
    if name and name not in outputs:
        raise InputError(f"there is no output {name!r}; there are {', '.join(outputs)}")
    for candidate in [name] if name else outputs:
        if (shape := map_shape(outputs[candidate], interface.size)) is not None:
            return candidate, shape
    shapes = ", ".join(f"{key} {list(extents)}" for key, extents in outputs.items())
    width, height = interface.size
    raise InputError(f"no output is a map over the input of {width}x{height}; there are {shapes}")


def _make(interface: ModelInterface, parameters: Parameters) -> Decode:
    name, shape = choose_map(interface, parameters.output)
    labels = tuple(interface.labels)
    if shape.channels > 1:
        check_labels(interface, shape.channels, name)

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
