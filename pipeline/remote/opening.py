"""Opening: what a client must show before a server runs its stage."""

from __future__ import annotations

import re
from collections.abc import Mapping

from pipeline.executor import processor
from pipeline.executor.code import StageCode
from pipeline.executor.manifest import Part, Stage
from pipeline.plans import StagePlan, TensorSpec
from pipeline.remote import messages, package
from pipeline.remote.offer import Offer, Refusal, installed
from pipeline.remote.store import LIBRARY, PARAMETERS
from pipeline.remote.wire import Malformed

Needed = Mapping[str, tuple[Part, str]]
"""Files that are not here, by SHA-256, each with its suffix."""


def check(message: messages.Open, offer: Offer) -> None:
    """Raise `Refusal` unless this machine can run the stage, and may, as far as its description tells."""
    _check_sizes(message.stage, offer.largest_frame)
    if message.code is not None:
        _check_code(message.stage.name, message.code, message.tvm)


def code(message: messages.Open, offer: Offer) -> StageCode | Needed | None:
    """Return the stage's code, None if it needs none, or the files that the client has to send first.

    Raises
    ------
    Refusal
        If files are missing and the server takes none.
    """
    if message.code is None:
        return None
    found = offer.store.find(message.code)
    if found.library is not None and found.parameters is not None:
        _check_code(message.stage.name, found.stage, message.tvm)
        return package.unpacked(found.library, found.parameters, found.stage)
    if offer.store.uploads is None:
        raise Refusal(
            f"stage {message.stage.name!r} is not in this server's folder of bundles, and it takes no uploads; copy "
            "the bundle there (serve --bundles FOLDER), or let all who can reach it run code on it (--accept-uploads)"
        )
    parts = ((message.code.library, LIBRARY, found.library), (message.code.parameters, PARAMETERS, found.parameters))
    return {part.sha256: (part, suffix) for part, suffix, path in parts if path is None}


def _check_sizes(stage: StagePlan, most: int) -> None:
    for specs in (stage.inputs, stage.outputs):
        if any(spec.dtype not in messages.ITEM_BYTES for spec in specs):
            raise Refusal(f"stage {stage.name!r} has tensors of something else than numbers")
        if sum(map(_nbytes, specs)) > most:
            raise Refusal(f"stage {stage.name!r} has frames of more than the {most} bytes that this server allows")


def _nbytes(spec: TensorSpec) -> int:
    return messages.Tensor(spec.dtype, tuple(abs(extent) for extent in spec.shape)).nbytes


def _check_code(name: str, stage: Stage, built_with: str) -> None:
    if any(not re.fullmatch("[0-9a-f]{64}", part.sha256) for part in (stage.library, stage.parameters)):
        raise Malformed(f"stage {name!r} has a file whose SHA-256 is none")
    if any(entry.dtype not in messages.ITEM_BYTES for entry in stage.entries):
        raise Refusal(f"stage {name!r} has parameters of something else than numbers")
    if problem := processor.misfit(stage.machine, stage.features):
        raise Refusal(f"stage {name!r} {problem}")
    here = installed("apache-tvm")
    if built_with.split(".")[:2] != here.split(".")[:2]:
        raise Refusal(
            f"stage {name!r} comes from TVM {built_with}, but this machine has {here}; install the same on both"
        )
