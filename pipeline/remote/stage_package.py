"""Stage package: a built stage's files for travel, by SHA-256."""

from __future__ import annotations

import hashlib
import tempfile
import threading
import weakref
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from pipeline.executor import parameters
from pipeline.executor.bundle import export
from pipeline.executor.manifest import StageFiles
from pipeline.executor.parameters import ParameterEntry
from pipeline.executor.signature import SignedManifest
from pipeline.executor.stage_code import StageCode
from pipeline.executor.verified_file import BundleFile
from pipeline.system import memory


@dataclass(frozen=True)
class StagePackage:
    """The files of one stage."""

    stage: StageFiles
    """Files in the bundle's manifest."""
    files: Mapping[str, Sequence[memoryview]]
    """Contents by SHA-256, in pieces; parameters are the arrays themselves, not a copy."""
    signed: SignedManifest | None = None
    """The manifest of the bundle that they come from, if that is signed."""


# Held while a package is made: replicas that connect at once, to a server that is back, say, would each link and hash
# the stage.
_lock = threading.Lock()
# Weak: a package holds the library's bytes, and is of no use without its code.
_packages: weakref.WeakKeyDictionary[StageCode, StagePackage] = weakref.WeakKeyDictionary()


def pack_stage(code: StageCode) -> StagePackage:
    """Return `code`'s files, made once for all replicas and connections.

    Raises `BuildError` if the code has just been compiled, and this machine has no linker.
    """
    with _lock:
        if code not in _packages:
            _packages[code] = _build_package(code)
        return _packages[code]


def _build_package(code: StageCode) -> StagePackage:
    library = [_library(code)]
    entries, arrays = _parameters(code)
    parts = [describe_pieces("library", library), describe_pieces("parameters", arrays)]
    stage = StageFiles(parts[0], parts[1], tuple(entries), code.machine, code.features, code.runtimes)
    files = {part.sha256: pieces for part, pieces in zip(parts, (library, arrays), strict=True)}
    return StagePackage(stage, files, code.signed)


def _parameters(code: StageCode) -> tuple[Sequence[ParameterEntry], list[memoryview]]:
    """Return array entries and their file's pieces, with a bundle's checksum."""
    if code.parameter_file is not None:
        return code.parameter_file.entries, [code.parameter_file.content.array.data]
    (entries,), distinct = parameters.lay_out(parameters.share_arrays([code.parameters]))
    return entries, list(memory.pieces(distinct))


def _library(code: StageCode) -> memoryview:
    if code.library is not None:
        return code.library.array.data
    with tempfile.TemporaryDirectory(prefix="soc-pipeline-") as folder:
        path = Path(folder) / "stage.so"
        export(code, path)
        return memoryview(path.read_bytes())


def describe_pieces(name: str, pieces: Sequence[memoryview]) -> BundleFile:
    """Return size and checksum of a file in pieces."""
    digest = hashlib.sha256()
    for piece in pieces:
        digest.update(piece)
    return BundleFile(name, sum(piece.nbytes for piece in pieces), digest.hexdigest())
