"""Stage files: a folder of models per stage, with a manifest."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

import msgspec

from pipeline.core.model_card import ModelCard
from pipeline.core.plan.plan import Plan, StagePlan, TensorSpec
from pipeline.errors import InputError
from pipeline.system.files import replace_folder, scratch_folder

MANIFEST = "manifest.json"
FORMAT = 1
KIND = "stages"
"""Tells the manifest from that of a bundle."""


@dataclass(frozen=True)
class StageFile:
    """A model of one stage."""

    stage: str
    device: str
    """Stage and device of the plan."""
    file: str
    """Name of the file in the folder."""
    sha256: str
    origin: str
    """``"extracted"`` from the model that was read, or ``"written"`` anew."""
    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    """Tensors in the file's order."""


@dataclass(frozen=True, kw_only=True)
class StageManifest:
    """Contents of ``manifest.json``."""

    kind: str = KIND
    format: int = FORMAT
    model: str
    digest: str
    """Model and digest of the plan."""
    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    """Inputs and outputs of the model."""
    stages: tuple[StageFile, ...]
    """Stages in the order in which they run."""
    card: ModelCard | None = None
    """Inputs wanted and outputs given by the model."""


Write = Callable[[int, StagePlan], tuple[bytes, str, str]]
"""Returns the content of a stage's file, the suffix of its name, and its origin."""


def check_target(folder: Path) -> None:
    """Raise `InputError` for a folder not creatable, or holding anything else."""
    if not folder.absolute().parent.is_dir():
        raise InputError(f"cannot write {str(folder)!r}: there is no folder {str(folder.parent)!r}")
    if folder.exists() and not _is_ours(folder):
        raise InputError(f"{str(folder)!r} exists and does not hold the stages of a model; choose another name")


def _is_ours(folder: Path) -> bool:
    """Test if a folder holds only stages, and is safe to replace."""
    try:
        manifest = msgspec.json.decode((folder / MANIFEST).read_bytes(), type=StageManifest)
        return {entry.name for entry in folder.iterdir()} <= {MANIFEST, *(stage.file for stage in manifest.stages)}
    except (OSError, ValueError, RecursionError):
        return False


def write_folder(
    folder: Path,
    plan: Plan,
    write: Write,
    check: Callable[[Path, StageManifest], None],
    card: ModelCard | None = None,
) -> StageManifest:
    """Write a folder of stages, placed after completion and `check`.

    Raises `InputError` if the folder is something else, or cannot be written.
    """
    # A link is followed: what it points to is replaced, and the link stays.
    target = folder.resolve()
    check_target(target)
    try:
        with scratch_folder(target) as scratch:
            new_folder = scratch / "new"
            new_folder.mkdir()
            stages = tuple(_write_stages(new_folder, plan, write))
            manifest = StageManifest(
                model=plan.model,
                digest=plan.digest,
                inputs=plan.inputs,
                outputs=plan.outputs,
                stages=stages,
                card=card,
            )
            (new_folder / MANIFEST).write_bytes(msgspec.json.format(msgspec.json.encode(manifest), indent=1) + b"\n")
            check(new_folder, manifest)
            replace_folder(target, new_folder, scratch / "old")
    except OSError as error:
        raise InputError(f"cannot write {str(folder)!r}: {error.strerror or error}") from error
    return manifest


def _write_stages(folder: Path, plan: Plan, write: Write) -> Iterable[StageFile]:
    for number, stage in enumerate(plan.units):
        content, suffix, origin = write(number, stage)
        file = f"{_plain(plan.model)}-{number}-{_plain(stage.name)}{suffix}"
        (folder / file).write_bytes(content)
        digest = hashlib.sha256(content).hexdigest()
        yield StageFile(stage.name, stage.device, file, digest, origin, stage.inputs, stage.outputs)


def _plain(name: str) -> str:
    """Return a name as file-name part for any system."""
    return re.sub(r"[^A-Za-z0-9_.+-]", "_", name)[:80]
