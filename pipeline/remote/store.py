"""Store: a server's files by SHA-256, from bundles and permitted uploads."""

from __future__ import annotations

import contextlib
import hashlib
import os
import threading
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import BinaryIO, NamedTuple

from pipeline.errors import BundleError
from pipeline.executor import manifest
from pipeline.executor.bundle_folder import BundleFolder
from pipeline.executor.manifest import StageFiles
from pipeline.executor.verified_file import BundleFile, DamagedFile, VerifiedContent, open_regular, read
from pipeline.system import leftovers
from pipeline.system.files import open_replacement

LIBRARY, PARAMETERS = ".so", ".parameters"

_UPLOADS = r"[0-9a-f]{64}\.(so|parameters)"
"""A regular expression for names of uploads."""


class StageContents(NamedTuple):
    """Verified files of a stage with their descriptions, None if missing."""

    library: VerifiedContent | None
    parameters: VerifiedContent | None
    stage: StageFiles
    tvm: str = ""
    """The release that a bundle's stage was built with; empty for an upload."""


class FileStore:
    """Files of stages on a server.

    Stages of `bundles`, a folder of bundles or one bundle, may be run; of whose signers, in the file `allowed`, one
    must have signed each, see `pipeline.executor.signature`. What clients send goes to the folder `uploads`; without it
    nothing of that is kept or run. An upload has at most `largest` bytes, and all together `room`: what was not used
    for longest makes room for the next.
    """

    def __init__(
        self,
        bundles: Path | None = None,
        uploads: Path | None = None,
        *,
        largest: int = 4 << 30,
        room: int = 16 << 30,
        allowed: Path | None = None,
    ) -> None:
        self.uploads, self.largest, self.allowed = uploads, largest, allowed
        self._bundles, self._room = bundles, room
        # For making room: files must not vanish between being listed and looked at.  Not held while an upload arrives,
        # which takes as long as its client likes.
        self._lock = threading.Lock()
        if uploads is not None:
            # For this user alone: what lies there is run.
            uploads.mkdir(parents=True, exist_ok=True, mode=0o700)
            # Of a server that was killed in the middle of an upload; one that is still running keeps its own.
            leftovers.remove_files(uploads, _UPLOADS)

    def find(self, stage: StageFiles) -> StageContents:
        """Return the library and the parameters of a stage.

        The description of a bundle's stage is then the bundle's own, whatever the client does.
        """
        for folder, files, tvm in self._in_bundles():
            if (files.library.sha256, files.parameters.sha256) == (stage.library.sha256, stage.parameters.sha256):
                try:
                    return StageContents(folder.content(files.library), folder.content(files.parameters), files, tvm)
                except BundleError:  # it is being copied, or damaged
                    continue
        if self.uploads is None:
            return StageContents(None, None, stage)
        # Named by their checksums alone: what a client calls a file never becomes a path.
        names = (f"{stage.library.sha256}{LIBRARY}", f"{stage.parameters.sha256}{PARAMETERS}")
        library, arrays = (self.uploads / name for name in names)
        return StageContents(_upload(library, stage.library), _upload(arrays, stage.parameters), stage)

    def receive(self, part: BundleFile, suffix: str, blocks: Iterable[memoryview]) -> None:
        """Keep an upload, or raise `BundleError`.

        An upload that is too large or has another SHA-256 is an error.
        """
        if self.uploads is None or part.nbytes > min(self.largest, self._room):
            raise BundleError(f"a file of {part.nbytes} bytes is more than this server takes")
        with self._lock:
            _make_room(self.uploads, self._room - part.nbytes)
        # Compared before the file gets its name: under that name it is believed, and run.
        digest = hashlib.sha256()
        with open_replacement(self.uploads / f"{part.sha256}{suffix}") as stream:
            for block in blocks:
                digest.update(block)
                _write(stream, block)
            if digest.hexdigest() != part.sha256:
                raise BundleError(f"an upload arrived damaged: its SHA-256 is not {part.sha256}")

    def _in_bundles(self) -> Iterator[tuple[BundleFolder, StageFiles, str]]:
        """Yield the manifests' current stages: bundles may arrive while serving."""
        if self._bundles is None:
            return
        for path in (self._bundles, *(folder for folder in self._bundles.iterdir() if folder.is_dir())):
            with contextlib.suppress(BundleError), contextlib.closing(BundleFolder(path)) as folder:
                # What is suppressed: no bundle, one that is being copied, or one that nobody has signed.
                listing = manifest.read_from(folder, self.allowed)
                yield from (
                    (folder, files, listing.tvm) for _, stage in listing.pairs if stage for files in stage.family
                )


def _write(stream: BinaryIO, block: memoryview) -> None:
    try:
        stream.write(block)
    except OSError as error:
        raise BundleError(f"the server cannot keep an upload: {error.strerror or error}") from error


def _make_room(folder: Path, limit: int) -> None:
    """Remove the least recently used until the rest fits `limit` bytes."""
    files = sorted((path.stat().st_mtime, path.stat().st_size, path) for path in _files(folder))
    total = sum(size for _, size, _ in files)
    for _, size, path in files:
        if total <= limit:
            break
        path.unlink(missing_ok=True)
        total -= size


def _files(folder: Path) -> list[Path]:
    return [path for path in folder.iterdir() if path.suffix in (LIBRARY, PARAMETERS) and path.name[0] != "."]


def _upload(path: Path, part: BundleFile) -> VerifiedContent | None:
    """Return the valid file at `path`, if there, marking its use."""
    try:
        descriptor = open_regular(path)
    except OSError:
        return None
    try:
        # What is read is what is hashed and loaded: the file may be replaced at any moment.
        content = read(descriptor, part.nbytes, part.sha256)
        if os.access(path, os.W_OK):
            # The time of the last use decides what goes first when room is needed; a folder that is only read has none.
            os.utime(path)
    except (OSError, DamagedFile):
        return None
    finally:
        os.close(descriptor)
    return content
