"""Card options: wants and results of a model, given by hand."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pipeline.commands.shared import values

if TYPE_CHECKING:
    from pipeline.core.model_card import ModelCard, Preparation
    from pipeline.io.result_reader import ModelEnds

_RULES: dict[str, dict[str, Any]] = {
    "resize": {"metavar": "HOW", "help": "stretch (default), letterbox or crop"},
    "mean": {
        "metavar": "R,G,B",
        "type": values.colours,
        "help": "what is subtracted, from values of 0 to --scale (default: 0)",
    },
    "std": {"metavar": "R,G,B", "type": values.colours, "help": "what is divided by then (default: 1)"},
    "channels": {"metavar": "ORDER", "help": "their order in the model: rgb (default) or bgr"},
    "scale": {"metavar": "N", "type": values.positive, "help": "value of white before --mean and --std: 1 or 255"},
    "margin": {"metavar": "WHERE", "help": "position of a letterbox: centre (default) or corner"},
    "fill": {"metavar": "GREY", "type": values.natural, "help": "grey of margins, 0 to 255 (default: 114)"},
    "fraction": {"metavar": "F", "type": values.positive, "help": "part of a crop that is used, such as 0.875 (of 1)"},
    "layout": {"metavar": "ORDER", "help": "nchw or nhwc, where the model's shape leaves it open"},
    "rounding": {"metavar": "RULE", "help": "of the size of a resized picture: nearest (default) or down"},
    "sampling": {"metavar": "RULE", "help": "rule of resizing: average (default), opencv, bilinear or bicubic"},
}
"""Options of a preparation; a field of this name each."""


def arguments(parser: argparse.ArgumentParser, *, results: bool = True) -> None:
    """Add the options; without `results` those of the inputs alone."""
    group = parser.add_argument_group(
        "what the model wants of a picture and gives, where it does not say so itself, or says it wrong"
    )
    group.add_argument("--card", metavar="FILE", type=Path, help="a model card: TOML, such as 'inspect' shows")
    if results:
        group.add_argument("--labels", metavar="FILE", type=Path, help="names of the classes, one per line")
        group.add_argument(
            "--decode",
            metavar="DECODER",
            help="how outputs become results, such as yolox:strides=8,16,32&score=0.4, or none",
        )
    for name, option in _RULES.items():
        group.add_argument(f"--{name}", **option)


def card(options: argparse.Namespace, base: ModelCard | None = None) -> ModelCard:
    """Return the card of the options, with the base's fields where these are silent.

    Raises `InputError` if a file cannot be read, or a value is impossible.
    """
    from pipeline.core.card_file import read_card, read_labels
    from pipeline.core.model_card import ModelCard
    from pipeline.io.decoders.registry import parse_decoder

    rules = {name: value for name in _RULES if (value := getattr(options, name)) is not None}
    if "fill" in rules:
        rules["fill"] = int(rules["fill"])
    result = ModelCard.of("options", preparation=rules)
    # Commands about inputs alone have labels of another kind, or none.
    with_results = hasattr(options, "decode")
    if with_results and (labels := options.labels):
        result = result.merge(ModelCard.of(f"--labels {labels}", labels=read_labels(labels)))
    if with_results and (decode := options.decode):
        name, parameters = parse_decoder(decode)
        result = result.merge(ModelCard.of("--decode", decoder=name, parameters=parameters))
    if options.card is not None:
        result = result.merge(read_card(options.card))
    return result if base is None else result.merge(base)


def complete_card(options: argparse.Namespace, ends: ModelEnds, base: ModelCard | None = None) -> ModelCard:
    """Return the card with guesses from inputs and outputs, where these are unambiguous.

    Without a base, as in bundles of earlier versions, and without options nothing is guessed.
    """
    from pipeline.core.model_card import ModelCard
    from pipeline.io.result_reader import choose_card

    written = card(options, base)
    return written if base is None and written == ModelCard() else choose_card(ends, written)


def preparation(options: argparse.Namespace, ends: ModelEnds, base: ModelCard | None = None) -> Preparation:
    """Return the preparation of the complete card."""
    from pipeline.core.model_card import Preparation

    return complete_card(options, ends, base).preparation or Preparation()
