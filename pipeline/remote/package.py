"""Package: a built stage as the files that travel, by their SHA-256."""

from __future__ import annotations

import hashlib
import tempfile
import threading
import weakref
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from pipeline import memory
from pipeline.executor import parameters
from pipeline.executor.bundle import export, module
from pipeline.executor.code import StageCode
from pipeline.executor.manifest import Part, Stage
from pipeline.executor.parameters import Entry


@dataclass(frozen=True)
class Package:
    """The files of one stage.

    Attributes
    ----------
    stage : Stage
        What a bundle's manifest says of them.
    files : mapping of str to sequence of memoryview
        Contents by SHA-256, in pieces; parameters are the arrays themselves, not a copy.
    """

    stage: Stage
    files: Mapping[str, Sequence[memoryview]]


_lock = threading.Lock()
_packages: weakref.WeakKeyDictionary[StageCode, Package] = weakref.WeakKeyDictionary()


def package(code: StageCode) -> Package:
    """Return the files of `code`; they are made once, for all replicas and connections.

    Raises
    ------
    BuildError
        If the code has just been compiled, and this machine has no linker.
    """
    with _lock:
        if code not in _packages:
            _packages[code] = _package(code)
        return _packages[code]


def unpacked(library: Path, arrays: Path, stage: Stage) -> StageCode:
    """Return the stage whose files these are.

    Raises
    ------
    BundleError
        If the parameters' file does not hold what `stage` says.
    """
    return StageCode(
        lambda: module(library),
        parameters.read(arrays, stage.entries),
        library=library,
        machine=stage.machine,
        features=stage.features,
    )


def _package(code: StageCode) -> Package:
    library = [memoryview(_library(code))]
    entries, arrays = _parameters(code)
    parts = [_part("library", library), _part("parameters", arrays)]
    stage = Stage(parts[0], parts[1], tuple(entries), code.machine, code.features)
    return Package(stage, {part.sha256: pieces for part, pieces in zip(parts, (library, arrays), strict=True)})


def _parameters(code: StageCode) -> tuple[Sequence[Entry], list[memoryview]]:
    """Return where the arrays lie in the file, and the file: with the checksum that it has in a bundle."""
    if code.stored is not None:
        with code.stored.path.open("rb") as stream:
            empty = not code.stored.path.stat().st_size
            return code.stored.entries, [] if empty else [memoryview(memory.mapped(stream))]
    (entries,), distinct = parameters.laid_out(parameters.shared([code.parameters]))
    return entries, list(memory.pieces(distinct))


def _library(code: StageCode) -> bytes:
    if code.library is not None:
        return code.library.read_bytes()
    with tempfile.TemporaryDirectory(prefix="soc-pipeline-") as folder:
        path = Path(folder) / "stage.so"
        export(code, path)
        return path.read_bytes()


def _part(name: str, pieces: Sequence[memoryview]) -> Part:
    digest = hashlib.sha256()
    for piece in pieces:
        digest.update(piece)
    return Part(name, sum(piece.nbytes for piece in pieces), digest.hexdigest())
