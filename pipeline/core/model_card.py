"""Model card: inputs wanted and outputs given by a model, kept with it.

A card is found in the model's own metadata, written by hand as ``model.toml`` beside the model, or given as options; a
bundle has it in its manifest.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from pipeline.errors import InputError

RESIZE = ("stretch", "letterbox", "crop")
MARGIN = ("centre", "corner")
ROUNDING = ("nearest", "down")
SAMPLING = ("average", "opencv", "bilinear", "bicubic")
CHANNELS = ("rgb", "bgr")

FILL = 114
"""Grey of margins, as networks that detect objects are trained with."""

TASKS = ("detect", "segment", "pose", "obb", "classify", "mask", "text")
"""Tasks of models, as Ultralytics names them where it has them."""

NO_DECODER = "none"
"""Name in place of a decoder, for outputs that shall stay arrays."""

_LARGEST_STD = 10.0
"""Largest credible divisor: values of 0 to 1 would all be nearly the same beyond."""


def _alternatives(words: Sequence[str]) -> str:
    *first, last = map(repr, words)
    return f"{', '.join(first)} or {last}" if len(words) == 2 else ", ".join([*first, last])


class Preparation(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """Rules from pictures to inputs: ``(pixel * scale / 255 - mean) / std``.

    Quantised inputs take these values on their own scale.  Where `scale`, `mean` and `std` say nothing, inputs of
    bytes take the picture's bytes.

    Raises
    ------
    InputError
        If an option is unknown, or a number makes no sense.
    """

    resize: str = "stretch"
    """``"stretch"``, ``"letterbox"`` or ``"crop"``; see `pipeline.picture.geometry.fit`."""
    mean: Sequence[float] = (0.0,)
    std: Sequence[float] = (1.0,)
    """Mean and deviation for each channel, or one for all, of values from 0 to `scale`."""
    channels: str = "rgb"
    """Their order in the model: ``"rgb"`` or ``"bgr"``; `mean` and `std` have the same."""
    scale: float | None = None
    """Value of white before mean and deviation: 1 (default) or 255."""
    margin: str = "centre"
    """Position of a letterbox: ``"centre"``, or ``"corner"`` for a picture at the left top."""
    fill: int = FILL
    """Grey of margins, 0 to 255."""
    rounding: str = "nearest"
    """Rule for the size of a resized picture: ``"nearest"``, as Ultralytics', or ``"down"``, as YOLOX, torchvision and
    timm have it."""
    sampling: str = "average"
    """Rule of resizing: ``"average"`` over all pixels that a new one covers, the fastest way; ``"opencv"``, two by two
    as `cv2.resize`; ``"bilinear"`` or ``"bicubic"``, averages as Pillow's, torchvision's and timm's."""
    fraction: float = 1.0
    """Part of a cropped picture's shorter side that is used, such as 0.875 (224 of 256)."""
    layout: str = ""
    """``"nchw"`` or ``"nhwc"`` where the shape leaves it open; else empty."""

    def __post_init__(self) -> None:
        choices = {"resize": RESIZE, "channels": CHANNELS, "margin": MARGIN, "rounding": ROUNDING}
        for name, words in {**choices, "sampling": SAMPLING, "layout": ("", "nchw", "nhwc")}.items():
            if getattr(self, name) not in words:
                raise InputError(f"{name} is {getattr(self, name)!r}; it must be {_alternatives(words)}")
        for name, values in (("mean", self.mean), ("std", self.std)):
            # As tuples, whatever a file or caller has: equal cards compare equal.
            msgspec.structs.force_setattr(self, name, tuple(values))
            if len(values) not in (1, 3) or not all(map(math.isfinite, values)):
                raise InputError(f"{name} is {list(values)}; it must be one number, or three")
        if not all(deviation > 0 for deviation in self.std):
            raise InputError(f"std is {list(self.std)}; it must be above 0")
        if self.white not in (1, 255):
            raise InputError(f"scale is {self.white:g}; it must be 1 or 255, the value of white before mean and std")
        if self.white == 1 and (max(map(abs, self.mean)) > 1 or max(self.std) > _LARGEST_STD):
            raise InputError(
                f"mean is {list(self.mean)} and std {list(self.std)}, as for values of 0 to 255; here they are of 0 to "
                "1: divide both by 255, or give scale 255"
            )
        if not 0 <= self.fill <= 255:
            raise InputError(f"fill is {self.fill}; it must be a grey from 0 to 255")
        if not 0 < self.fraction <= 1:
            raise InputError(f"fraction is {self.fraction:g}; it must be above 0 and at most 1")

    @property
    def white(self) -> float:
        """Value of white before mean and deviation."""
        return 1.0 if self.scale is None else self.scale

    @property
    def normalises(self) -> bool:
        """True if it says what values a picture has."""
        return self.scale is not None or any(self.mean) or any(deviation != 1 for deviation in self.std)


class ModelCard(msgspec.Struct, frozen=True, omit_defaults=True):
    """Card of a model."""

    task: str = ""
    """``"detect"``, ``"segment"``, ``"pose"``, ``"obb"``, ``"classify"``, ``"mask"``, ``"text"``; empty if unknown."""
    preparation: Preparation | None = None
    """Preparation of pictures."""
    labels: Sequence[str] = ()
    """Names of the classes."""
    decoder: str = ""
    """Family of the decoder, such as ``"yolox"``; see `pipeline.io.decoders`."""
    parameters: Mapping[str, Any] = msgspec.field(default_factory=dict)
    """Parameters of the decoder, such as ``{"strides": [8, 16, 32]}``."""
    states: Mapping[str, str] = msgspec.field(default_factory=dict)
    """Inputs that hold state, each with the output that it reads in the next frame."""
    origins: Mapping[str, str] = msgspec.field(default_factory=dict)
    """Origin of each of these fields, such as ``{"labels": "Ultralytics' metadata"}``, also of single rules and
    parameters, such as ``"preparation.mean"``. Guesses begin with ``"guess: "`` and say why."""

    def __post_init__(self) -> None:
        msgspec.structs.force_setattr(self, "labels", tuple(self.labels))

    @property
    def decodes(self) -> bool:
        """True with a decoder, and one other than ``"none"``."""
        return self.decoder not in ("", NO_DECODER)

    @classmethod
    def of(cls, origin: str, **fields: Any) -> ModelCard:
        """Return a card of one origin.

        `preparation` may be a mapping of some of its rules.
        """
        origins = {name: origin for name, value in fields.items() if value}
        for name in ("preparation", "parameters"):
            if isinstance(values := fields.get(name), Mapping):
                origins.pop(name, None)
                origins |= {f"{name}.{key}": origin for key in values}
        if isinstance(rules := fields.get("preparation"), Mapping):
            fields["preparation"] = Preparation(**rules) if rules else None
        return cls(**fields, origins=origins)

    def merge(self, other: ModelCard) -> ModelCard:
        """Return the card with the other's fields where this one is empty.

        Of a preparation with rules in `origins`, such as ``"preparation.mean"``, only these are its own; the remaining
        ones are the other's.  Parameters are merged one by one.
        """
        fields = {name: getattr(other, name) for name in FIELDS if not getattr(self, name) and getattr(other, name)}
        rules = [name.removeprefix(_RULE) for name in self.origins if name.startswith(_RULE)]
        if self.preparation and other.preparation and rules and "preparation" not in self.origins:
            own_rules = {rule: getattr(self.preparation, rule) for rule in rules}
            fields["preparation"] = msgspec.structs.replace(other.preparation, **own_rules)
        # Parameters belong to the decoder that they were written for.
        if "decoder" in fields or other.decoder in ("", self.decoder):
            fields["parameters"] = {**other.parameters, **self.parameters}
        else:
            fields.pop("parameters", None)
        origins = {name: origin for name, origin in other.origins.items() if name.partition(".")[0] in fields}
        return msgspec.structs.replace(self, **fields, origins={**origins, **self.origins})


FIELDS = ("task", "preparation", "labels", "decoder", "parameters", "states")
"""Fields of a card with an origin."""

_RULE = "preparation."
