"""Update record: the last running version on disk, for restarts."""

from __future__ import annotations

import contextlib
import hashlib
import json
import logging
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from pipeline.errors import PipelineError, describe_error
from pipeline.executor.bundle_folder import BundleFolder
from pipeline.executor.manifest import LARGEST, MANIFEST
from pipeline.system.files import check_regular, write_atomically

if TYPE_CHECKING:
    from pipeline.executor.bundle import Bundle

logger = logging.getLogger(__name__)

RECORD = ".running.json"
"""Name of the record in the folder of versions; no version has it, since those are folders."""

_LARGEST = 1 << 16


class UpdateRecord:
    """Record, in the folder of versions, of the one running in place of a bundle.

    The bundle is that of a program's first start; another one there makes the record void.
    """

    def __init__(self, folder: Path, bundle: Path) -> None:
        self._folder, self._bundle = folder, bundle

    def note(self, version: Path) -> None:
        """Record a running version; an unwritable folder costs a warning."""
        try:
            content = {"bundle": _digest(self._bundle), "version": version.name, "checksum": _digest(version)}
            write_atomically(self._folder / RECORD, json.dumps(content).encode())
        except (PipelineError, OSError) as error:
            reason = describe_error(error, kind=False)
            logger.warning("a restart will not run version %r: it cannot be recorded: %s", version.name, reason)

    def load(self, load: Callable[[Path], Bundle]) -> Bundle:
        """Load the last running version, or the bundle itself."""
        version = self._version()
        if version is not None:
            try:
                bundle = load(version)
            except (PipelineError, OSError) as error:
                reason = describe_error(error, kind=False)
                logger.warning("version %r ran last, and cannot be loaded: %s", version.name, reason)
            else:
                logger.warning("version %r ran last, and is at work again", version.name)
                return bundle
        return load(self._bundle)

    def _version(self) -> Path | None:
        # Whatever is wrong with the file: it is as if there were none.
        with contextlib.suppress(OSError, ValueError, LookupError, TypeError, RecursionError, PipelineError):
            path = self._folder / RECORD
            check_regular(path)
            with path.open("rb") as stream:
                content = json.loads(stream.read(_LARGEST))
            version = self._folder / Path(str(content["version"])).name
            digests = (_digest(self._bundle), _digest(version))
            if digests == (content["bundle"], content["checksum"]):
                return version
        return None


def _digest(bundle: Path) -> str:
    with contextlib.closing(BundleFolder(bundle)) as folder:
        return hashlib.sha256(folder.small_file(MANIFEST, LARGEST)).hexdigest()
