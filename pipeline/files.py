"""Files and folders that are either complete or not there."""

from __future__ import annotations

import contextlib
import errno
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

CACHE_VARIABLE = "SOC_PIPELINE_CACHE"
"""Names the folder of files that can be made again."""


def write_atomically(path: Path, data: bytes) -> None:
    """Write `data` to a temporary name beside `path`, then rename, so that no reader sees half a file."""
    with replacing(path) as stream:
        stream.write(data)


@contextlib.contextmanager
def replacing(path: Path) -> Iterator[BinaryIO]:
    """Open a temporary file beside `path`, that is renamed to it in the end, or removed if something goes wrong."""
    if not path.absolute().parent.is_dir():
        raise FileNotFoundError(errno.ENOENT, "there is no such folder", str(path.parent))
    with _named(path):
        handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "wb") as stream:
            yield stream
        Path(temporary).chmod(0o666 & ~_umask())
        with _named(path):
            Path(temporary).replace(path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


@contextlib.contextmanager
def _named(path: Path) -> Iterator[None]:
    """Let errors name the file that was asked for, and not the temporary one."""
    try:
        yield
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(path)) from None


def replace_folder(target: Path, fresh: Path, old: Path) -> None:
    """Rename the folder `fresh` to `target`; what is there goes to `old`, or stays if that fails."""
    if not target.exists():
        fresh.rename(target)
        return
    target.rename(old)
    try:
        fresh.rename(target)
    except BaseException:
        old.rename(target)
        raise


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def cache_folder() -> Path | None:
    """Return where this user's files are kept that can be made again; None if there is no such place.

    That is the folder that ``SOC_PIPELINE_CACHE`` names, or ``soc-pipeline`` in ``XDG_CACHE_HOME``, which is
    ``~/.cache`` unless it is set to an absolute path.
    """
    if named := os.environ.get(CACHE_VARIABLE):
        return Path(named)
    if (home := Path(os.environ.get("XDG_CACHE_HOME", ""))).is_absolute():
        return home / "soc-pipeline"
    try:
        return Path.home() / ".cache" / "soc-pipeline"
    except RuntimeError:
        return None
