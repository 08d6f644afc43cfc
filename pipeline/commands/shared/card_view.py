"""Card view: fields of a model card with their origins, gaps and candidates."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import msgspec

from pipeline.commands.shared import console
from pipeline.core.model_card import ModelCard, Preparation
from pipeline.errors import InputError

if TYPE_CHECKING:
    from pipeline.io.result_reader import ModelEnds

LISTED = 3
"""Labels that are named; ``--json`` has all."""


def check_card(card: ModelCard, ends: ModelEnds) -> None:
    """Raise `InputError` if the card's decoder does not fit the model, or the labels not the decoder."""
    from pipeline.io.decoders.registry import make_decoder
    from pipeline.io.result_reader import model_interface

    if card.decodes:
        make_decoder(card, model_interface(ends, card))


def describe_card(card: ModelCard, ends: ModelEnds) -> dict[str, Any]:
    """Return the card as plain values, with what is missing, wrong, or to be chosen."""
    from pipeline.io.decoders.registry import candidates
    from pipeline.io.result_reader import model_interface

    interface = model_interface(ends, card)
    problem = ""
    try:
        check_card(card, ends)
    except InputError as error:
        problem = str(error)
    guesses = {} if card.decoder else candidates(interface)
    return {
        "card": card,
        "missing": _missing(card) if any(interface.size) else [],
        "problem": problem,
        "candidates": [
            {"decoder": name, "option": f"--decode {name}", "reason": guess.reason} for name, guess in guesses.items()
        ],
    }


def describe_candidate(entry: Mapping[str, str]) -> str:
    """Return a candidate of `describe_card` in words."""
    return f"{entry['option']} ({entry['reason']})"


def show_card(card: ModelCard, ends: ModelEnds) -> None:
    """Print the card; nothing of a model without one that takes no picture."""
    facts, rows = describe_card(card, ends), list(_rows(card))
    out = console.console()
    if rows:
        table = console.table("Model card", "field", "value", "origin")
        for row in rows:
            table.add_row(*row)
        out.print(table)
    lines = [f"Missing: {gap}" for gap in facts["missing"]]
    lines += [f"Candidate: {describe_candidate(entry)}" for entry in facts["candidates"]]
    lines += [f"Wrong: {facts['problem']}"] if facts["problem"] else []
    for line in lines:
        out.print(line, soft_wrap=True)


def _rows(card: ModelCard) -> list[tuple[str, str, str]]:
    origins = card.origins
    rows = [("task", card.task)] if card.task else []
    if card.preparation:
        # Those that somebody wrote, or that are unusual.
        rules, usual = msgspec.structs.asdict(card.preparation), msgspec.structs.asdict(Preparation())
        rows += [(f"preparation.{rule}", _text(value)) for rule, value in rules.items()
                 if value != usual[rule] or f"preparation.{rule}" in origins or rule == "resize"]  # fmt: skip
    if card.labels:
        rest = ", ..." * (len(card.labels) > LISTED)
        rows.append(("labels", f"{len(card.labels)}: {', '.join(card.labels[:LISTED])}{rest}"))
    if card.decoder:
        rows.append(("decoder", card.decoder))
        rows += [(f"parameters.{name}", _text(value)) for name, value in card.parameters.items()]
    return [(name, text, origins.get(name, origins.get(name.partition(".")[0], "default"))) for name, text in rows]


def _text(value: Any) -> str:
    return ", ".join(map(str, value)) if isinstance(value, list | tuple) else str(value)


def _missing(card: ModelCard) -> list[str]:
    gaps = []
    if card.preparation is None:
        gaps.append(
            "preparation; pictures are stretched, red first, values from 0 to 1: else give --resize, --channels, "
            "--mean, --std or --scale"
        )
    if not card.labels:
        gaps.append("labels; classes are numbers: give --labels FILE")
    if not card.decoder:
        gaps.append("decoder; outputs stay arrays: give --decode")
    return gaps
