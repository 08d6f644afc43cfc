"""Files and folders that are either complete or not there."""

from __future__ import annotations

import errno
import os
import tempfile
from pathlib import Path


def write_atomically(path: Path, data: bytes) -> None:
    """Write `data` to a temporary name beside `path`, then rename, so that no reader sees half a file."""
    if not path.absolute().parent.is_dir():
        raise FileNotFoundError(errno.ENOENT, "there is no such folder", str(path.parent))
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "wb") as stream:
            stream.write(data)
        Path(temporary).chmod(0o666 & ~_umask())
        Path(temporary).replace(path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


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
