"""Open requests: their checks, and their code."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

from pipeline.core.plan.plan import StagePlan, TensorSpec
from pipeline.errors import BundleError
from pipeline.executor import host_target, manifest, source_runtimes
from pipeline.executor.bundle import stage_code
from pipeline.executor.manifest import StageFiles
from pipeline.executor.parameters import ITEM_BYTES
from pipeline.executor.signature import SignedManifest
from pipeline.executor.stage_code import StageCode, StoredParameters
from pipeline.executor.verified_file import BundleFile
from pipeline.remote import messages
from pipeline.remote.offer import Offer, Refusal
from pipeline.remote.store import LIBRARY, PARAMETERS
from pipeline.remote.wire import MalformedMessage

LONGEST_SIMULATED_S = 30.0
"""Longest simulated frame in seconds. A simulated device takes the client's word for it."""

Needed = Mapping[str, tuple[BundleFile, str]]
"""Missing files by SHA-256, with their suffixes."""


def check(message: messages.OpenRequest, offer: Offer) -> None:
    """Raise `Refusal` for stages this machine cannot or may not run."""
    _check_sizes(message.stage, offer.largest_frame)
    # Such a device sleeps for as long as the plan says, in the one thread that all sessions share.
    if message.device == "simulated" and not 0 <= message.stage.seconds <= LONGEST_SIMULATED_S:
        raise Refusal(
            f"stage {message.stage.name!r} would keep the device for {message.stage.seconds:g} s per frame; this "
            f"server simulates at most {LONGEST_SIMULATED_S:g} s, since others wait meanwhile"
        )
    if message.code is not None:
        _check_code(message.stage.name, message.code, message.tvm)


def code(message: messages.OpenRequest, offer: Offer) -> StageCode | Needed | None:
    """Return the stage's code, None without code, or its missing files; may raise `Refusal`."""
    if message.code is None:
        return None
    contents = offer.store.find(message.code)
    if offer.store.allowed is not None and not contents.tvm:
        # Of no bundle here, so that it is the client who has to show that it is somebody's who may.
        contents = contents._replace(stage=_signed_files(message, message.code, offer.store.allowed))
    if contents.library is not None and contents.parameters is not None:
        # Again, for what the bundle here says of the stage: the client's description was its own.
        _check_code(message.stage.name, contents.stage, contents.tvm or message.tvm)
        return stage_code(
            contents.library, StoredParameters(contents.parameters, contents.stage.entries), contents.stage
        )
    if offer.store.uploads is None:
        raise Refusal(
            f"stage {message.stage.name!r} is not in this server's folder of bundles, and it takes no uploads; copy "
            "the bundle there (serve --bundles FOLDER), or let all who can reach it run code on it (--accept-uploads)"
        )
    parts = (
        (message.code.library, LIBRARY, contents.library),
        (message.code.parameters, PARAMETERS, contents.parameters),
    )
    return {part.sha256: (part, suffix) for part, suffix, content in parts if content is None}


def _signed_files(message: messages.OpenRequest, code: StageFiles, allowed: Path) -> StageFiles:
    """Return the stage's files from the client's signed manifest."""
    title = f"stage {message.stage.name!r}"
    if not message.signature:
        raise Refusal(f"{title} is of no signed bundle, which this server asks for; build it with '--sign KEY'")
    try:
        listing = manifest.decode_signed(SignedManifest(message.manifest, message.signature), allowed, "the client's")
    except BundleError as error:
        raise Refusal(f"{title} is refused: {error}") from None
    for _, files in listing.pairs:
        for variant in files.family if files is not None else ():
            if (variant.library.sha256, variant.parameters.sha256) == (
                code.library.sha256,
                code.parameters.sha256,
            ):
                return variant
    raise Refusal(f"{title} is not in the signed bundle that the client names")


def _check_sizes(stage: StagePlan, limit: int) -> None:
    for specs in (stage.inputs, stage.outputs):
        if any(spec.dtype not in ITEM_BYTES for spec in specs):
            raise Refusal(f"stage {stage.name!r} has tensors of something else than numbers")
        if sum(map(_nbytes, specs)) > limit:
            raise Refusal(f"stage {stage.name!r} has frames of more than the {limit} bytes that this server allows")


def _nbytes(spec: TensorSpec) -> int:
    return messages.TensorHead(spec.dtype, tuple(abs(extent) for extent in spec.shape)).nbytes


def _check_code(name: str, stage: StageFiles, built_with: str) -> None:
    # They become names of files, see `FileStore.find`.
    if any(not re.fullmatch("[0-9a-f]{64}", part.sha256) for part in (stage.library, stage.parameters)):
        raise MalformedMessage(f"stage {name!r} has a file whose SHA-256 is none")
    if any(entry.dtype not in ITEM_BYTES for entry in stage.entries):
        raise Refusal(f"stage {name!r} has parameters of something else than numbers")
    if problem := host_target.misfit(stage.machine, stage.features):
        raise Refusal(f"stage {name!r} {problem}")
    if problem := source_runtimes.why_missing(stage.runtimes):
        raise Refusal(f"stage {name!r} {problem}")
    if problem := host_target.other_tvm(built_with):
        raise Refusal(f"stage {name!r} {problem}; install the same on both")
