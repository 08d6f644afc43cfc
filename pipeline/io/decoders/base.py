"""Decoder family: registry entry of what turns a model's outputs into results."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec
import numpy as np

from pipeline.core.model_card import Preparation
from pipeline.core.plan.plan import TensorSpec
from pipeline.errors import InputError
from pipeline.io.results import Result

Decode = Callable[[Mapping[str, np.ndarray]], Result]
"""Turns outputs by name, dequantised, into a result in the pixels of the model's input."""


@dataclass(frozen=True)
class ModelInterface:
    """Picture input and outputs of a model."""

    size: tuple[int, int]
    """Width and height of the picture that the model takes."""
    outputs: Sequence[TensorSpec]
    """Outputs in the model's order."""
    labels: Sequence[str] = ()
    """Names of the classes; empty if unknown."""


@dataclass(frozen=True)
class Guess:
    """A family recognised by names and shapes of the outputs."""

    reason: str
    """The evidence, such as "its output [1, 3549, 85] has a row for each cell of strides 8, 16, 32 of 416x416"."""
    parameters: Mapping[str, Any] = field(default_factory=dict)
    """Parameters that follow from it."""
    preparation: Preparation | None = None
    """Preparation by the family's usual exporters."""
    certain: bool = True
    """False if other families give outputs like these; such a guess is only listed as a candidate beside others."""


@dataclass(frozen=True)
class DecoderFamily:
    """Registry entry of a family."""

    name: str
    """Name for ``--decode`` and cards, such as ``"yolox"``."""
    task: str
    """Task of a card, such as ``"detect"``."""
    parameters: type[msgspec.Struct]
    """A `msgspec.Struct` (frozen, forbid_unknown_fields) with the parameters, their defaults and checks."""
    make: Callable[[ModelInterface, Any], Decode]
    """Makes the `Decode` of a model from its interface and parameters; `InputError` if outputs do not fit."""
    recognise: Callable[[ModelInterface], Guess | None]
    """Returns a `Guess` if names and shapes of the outputs are this family's, else None."""


def mismatch(family: str, wanted: str, interface: ModelInterface) -> InputError:
    """Return the error for outputs that a family does not take."""
    outputs = ", ".join(f"{output.name!r} {list(output.shape)}" for output in interface.outputs)
    size = "for an input of {}x{}".format(*interface.size) if all(interface.size) else "for one picture"
    return InputError(f"the decoder {family!r} takes {wanted}, {size}; the model's outputs are {outputs}")


def check_labels(interface: ModelInterface, classes: int, subject: str) -> None:
    """Raise `InputError` for labels of another number than the classes."""
    # Of a list that is longer, too, all may be wrong: some begin with a class for the background.
    if interface.labels and len(interface.labels) != classes:
        labels = len(interface.labels)
        raise InputError(f"there are {labels} labels for the {classes} classes of {subject!r}; give one name for each")
