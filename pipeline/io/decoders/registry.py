"""Decoders by name, and their choice for a model."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from functools import cache
from typing import Any

import msgspec

from pipeline.core.card_file import describe_mistake
from pipeline.core.model_card import NO_DECODER, ModelCard
from pipeline.errors import InputError, near
from pipeline.io.decoders.base import Decode, DecoderFamily, Guess, ModelInterface

MODULES: tuple[str, ...] = (
    # One per line, by name.
    "pipeline.io.decoders.anchor_families",
    "pipeline.io.decoders.classification",
    "pipeline.io.decoders.ctc",
    "pipeline.io.decoders.detr",
    "pipeline.io.decoders.distances",
    "pipeline.io.decoders.fastestdet",
    "pipeline.io.decoders.mask",
    "pipeline.io.decoders.points",
    "pipeline.io.decoders.rows",
    "pipeline.io.decoders.text_boxes",
    "pipeline.io.decoders.yolov5",
    "pipeline.io.decoders.yolov8",
    "pipeline.io.decoders.yolox",
    "pipeline.io.decoders.yunet",
)
"""Modules with `FAMILIES`, a sequence of `DecoderFamily`."""

BOX_TASKS = ("detect", "segment", "pose", "obb")
"""Tasks whose results are `pipeline.io.results.Detections`."""


@cache
def load_families() -> dict[str, DecoderFamily]:
    """Return all families by name."""
    families = [family for name in MODULES for family in importlib.import_module(name).FAMILIES]
    return {family.name: family for family in families}


def find_family(name: str) -> DecoderFamily:
    """Return a family, or raise `InputError` with its neighbours."""
    families = load_families()
    if name not in families:
        raise InputError(f"there is no decoder {name!r}{near(name, families)}; there are {', '.join(sorted(families))}")
    return families[name]


def parse_decoder(text: str) -> tuple[str, dict[str, Any]]:
    """Split a text such as ``yolox:strides=8,16,32&score=0.4`` into name and the parameters in it.

    Raises `InputError` if the decoder or a parameter is unknown, or a value is of another type.
    """
    name, _, query = text.partition(":")
    if text == NO_DECODER:
        return text, {}
    texts = {key: value for key, _, value in (part.partition("=") for part in query.split("&") if part)}
    # Lists have commas, as those of the other options.
    values = {key: value.split(",") if "," in value else value for key, value in texts.items()}
    parameters = msgspec.to_builtins(read_parameters(find_family(name), values))
    # Without the defaults, which would win over what the model's outputs tell.
    return name, {key: parameters[key] for key in values}


def read_parameters(family: DecoderFamily, values: Mapping[str, Any]) -> Any:
    """Return the family's parameters, or raise `InputError`."""
    # A single number stands for a list of one.
    fields = {field.name: field for field in msgspec.structs.fields(family.parameters)}
    lists = {name for name, field in fields.items() if "tuple" in str(field.type)}
    values = {key: [value] if key in lists and isinstance(value, str) else value for key, value in values.items()}
    unknown = next((key for key in values if key not in fields), None)
    if unknown is not None:
        raise InputError(
            f"the decoder {family.name!r} has no parameter {unknown!r}{near(unknown, fields)}; it has "
            f"{', '.join(fields) or 'none'}"
        )
    try:
        return msgspec.convert(values, family.parameters, strict=False)
    except msgspec.ValidationError as error:
        raise InputError(f"the decoder {family.name!r}: {describe_mistake(error)}") from None


def make_decoder(card: ModelCard, interface: ModelInterface) -> Decode:
    """Return the decoder of a card, or raise `InputError`."""
    family = find_family(card.decoder)
    return family.make(interface, read_parameters(family, card.parameters))


def candidates(interface: ModelInterface) -> dict[str, Guess]:
    """Return the families that outputs like these may belong to."""
    # Of a model with open extents nothing is known.
    families = load_families() if interface.outputs else {}
    guesses = {name: family.recognise(interface) for name, family in families.items()}
    return {name: guess for name, guess in guesses.items() if guess is not None}


def complete_card(card: ModelCard, interface: ModelInterface) -> ModelCard:
    """Return the card with a decoder and a preparation, guessed where unambiguous.

    What is guessed is in its ``origins``.  Without a guess, or with several, the decoder stays empty; `candidates` has
    them.
    """
    # A written task rules out families of other ones, whose outputs may have the same shapes.
    families = load_families()
    guesses = {name: guess for name, guess in candidates(interface).items() if card.task in ("", families[name].task)}
    name = card.decoder
    if not name:
        certain = [family for family, guess in guesses.items() if guess.certain] or list(guesses)
        name = certain[0] if len(certain) == 1 else ""
    if (guess := guesses.get(name)) is None:
        return card
    # What the outputs say completes parameters that somebody wrote; these win.
    completion = ModelCard.of(
        f"guess: {guess.reason}", task=families[name].task, decoder=name, parameters=guess.parameters
    )
    if guess.preparation:
        completion = completion.merge(ModelCard.of(f"guess: usual for {name}", preparation=guess.preparation))
    return card.merge(completion)
