"""Store: the files that a server has, by their SHA-256: those of its bundles, and uploads that it was told to take."""

from __future__ import annotations

import hashlib
import os
import threading
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import BinaryIO, NamedTuple

from pipeline.errors import BundleError
from pipeline.executor import manifest
from pipeline.executor.manifest import Part, Stage
from pipeline.files import replacing

LIBRARY, PARAMETERS = ".so", ".parameters"


class Found(NamedTuple):
    """The files of a stage, and what is said of them."""

    library: Path | None
    parameters: Path | None
    stage: Stage

    @property
    def complete(self) -> bool:
        """Whether nothing is missing."""
        return self.library is not None and self.parameters is not None


class Store:
    """Where a server finds the files of stages.

    Parameters
    ----------
    bundles : Path, optional
        A folder of bundles, or one bundle, whose stages may be run.
    uploads : Path, optional
        A folder for what clients send; without it nothing that they send is kept or run.
    largest : int
        Bytes that one upload may have.
    room : int
        Bytes that the uploads may have together; what was not used for longest makes room for the next.
    """

    def __init__(
        self, bundles: Path | None = None, uploads: Path | None = None, *, largest: int = 4 << 30, room: int = 16 << 30
    ) -> None:
        self.uploads, self.largest = uploads, largest
        self._bundles, self._room = bundles, room
        self._lock = threading.Lock()
        if uploads is not None:
            uploads.mkdir(parents=True, exist_ok=True, mode=0o700)

    def find(self, stage: Stage) -> Found:
        """Return the library and the parameters of a stage, each verified; None for what is not here.

        What is said of a bundle's stage is then what the bundle says, whatever the client does.
        """
        for folder, known in self._in_bundles():
            if (known.library.sha256, known.parameters.sha256) == (stage.library.sha256, stage.parameters.sha256):
                found = Found(_path(folder, known.library), _path(folder, known.parameters), known)
                if found.complete:
                    return found
        if self.uploads is None:
            return Found(None, None, stage)
        names = (f"{stage.library.sha256}{LIBRARY}", f"{stage.parameters.sha256}{PARAMETERS}")
        library, arrays = (self.uploads / name for name in names)
        return Found(_whole(library, stage.library), _whole(arrays, stage.parameters), stage)

    def receive(self, part: Part, suffix: str, blocks: Iterable[memoryview]) -> None:
        """Keep an upload.

        Raises
        ------
        BundleError
            If it is too large, or not what its SHA-256 says.
        """
        if self.uploads is None or part.nbytes > min(self.largest, self._room):
            raise BundleError(f"a file of {part.nbytes} bytes is more than this server takes")
        with self._lock:
            _make_room(self.uploads, self._room - part.nbytes)
        digest = hashlib.sha256()
        with replacing(self.uploads / f"{part.sha256}{suffix}") as stream:
            for block in blocks:
                digest.update(block)
                _write(stream, block)
            if digest.hexdigest() != part.sha256:
                raise BundleError(f"an upload arrived damaged: its SHA-256 is not {part.sha256}")

    def _in_bundles(self) -> Iterator[tuple[Path, Stage]]:
        """Yield the stages that the manifests name now: a bundle may be copied here while the server runs."""
        if self._bundles is None:
            return
        for folder in (self._bundles, *(each for each in self._bundles.iterdir() if each.is_dir())):
            try:
                builds = manifest.read(folder).builds
            except BundleError:  # no bundle, or one that is being copied
                continue
            yield from ((folder, stage) for build in builds for stage in build.stages if stage is not None)


def _write(stream: BinaryIO, block: memoryview) -> None:
    try:
        stream.write(block)
    except OSError as error:
        raise BundleError(f"the server cannot keep an upload: {error.strerror or error}") from error


def _make_room(folder: Path, most: int) -> None:
    """Remove what was not used for longest, until the rest has at most so many bytes."""
    files = sorted((path.stat().st_mtime, path.stat().st_size, path) for path in _files(folder))
    used = sum(size for _, size, _ in files)
    for _, size, path in files:
        if used <= most:
            break
        path.unlink(missing_ok=True)
        used -= size


def _files(folder: Path) -> list[Path]:
    return [path for path in folder.iterdir() if path.suffix in (LIBRARY, PARAMETERS) and path.name[0] != "."]


def _path(folder: Path, part: Part) -> Path | None:
    return _whole(folder / Path(part.file).name, part)


def _whole(path: Path, part: Part) -> Path | None:
    """Return `path` if the file there is what it should be, and count it as used."""
    try:
        if path.stat().st_size != part.nbytes or manifest.part(path).sha256 != part.sha256:
            return None
        if os.access(path, os.W_OK):
            os.utime(path)
    except OSError:
        return None
    return path.resolve()
