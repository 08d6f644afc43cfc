"""CTC: text from the scores of characters at each step.

Greedy, by "Connectionist Temporal Classification", ICML 2006: the best character of each step, repetitions once, and
blanks dropped.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec
import numpy as np

from pipeline.core.model_card import Preparation
from pipeline.errors import InputError
from pipeline.io.decoders.activation import activate
from pipeline.io.decoders.base import Decode, DecoderFamily, Guess, ModelInterface
from pipeline.io.results import Text

PREPARATION = Preparation(resize="letterbox", margin="corner", channels="bgr", mean=(0.5,), std=(0.5,), fill=127)
"""Preparation by RapidOCR and PaddleOCR: the line at the left, and grey behind it."""


class Parameters(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Parameters of CTC."""

    blank: int = 0
    """Number of the blank among the classes; negative ones count from the end."""


def _make(interface: ModelInterface, parameters: Parameters) -> Decode:
    output = interface.outputs[0]
    extents = [extent for extent in output.shape if extent != 1]
    if len(extents) != 2:
        raise InputError(
            f"the output {output.name!r} is {list(output.shape)}; the decoder 'ctc' takes [1, steps, characters]"
        )
    count = extents[1]
    characters = list(interface.labels)
    # Besides the blank, PaddleOCR has a space behind the characters of its file.
    characters += [" "] if len(characters) == count - 2 else []
    if len(characters) != count - 1:
        raise InputError(
            f"there are {len(interface.labels)} characters for the {count} classes of {output.name!r}, of which one is "
            "the blank; give labels with one character per line"
        )
    characters.insert(parameters.blank % count, "")

    def decode(outputs: Mapping[str, np.ndarray]) -> Text:
        scores = activate(np.asarray(outputs[output.name]).reshape(-1, count), "auto", 1)
        best = scores.argmax(1)
        # A character that stands twice has a blank between.
        starts = np.flatnonzero(np.append(True, best[1:] != best[:-1]) & (best != parameters.blank % count))
        text = "".join(characters[number] for number in best[starts])
        return Text(text, float(scores[starts, best[starts]].mean()) if len(starts) else 0.0)

    return decode


def _recognise(interface: ModelInterface) -> Guess | None:
    # With labels only: without characters there is nothing to read.
    if len(interface.outputs) != 1 or not interface.labels:
        return None
    shape = interface.outputs[0].shape
    if len(shape) != 3 or 1 not in shape[:2] or shape[2] - len(interface.labels) not in (1, 2):
        return None
    return Guess(
        f"its only output {list(shape)} has steps of {len(interface.labels)} characters and a blank", {}, PREPARATION
    )


FAMILIES = (DecoderFamily("ctc", "text", Parameters, _make, _recognise),)
