"""Files and folders: complete, or not there."""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import re
import secrets
import stat
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import BinaryIO

from pipeline.system import leftovers

CACHE_VARIABLE = "SOC_PIPELINE_CACHE"
"""Environment variable with the folder of reproducible files."""


# Of <fcntl.h> and <linux/fs.h>; Python has no names for them.
_AT_FDCWD, _RENAME_EXCHANGE = -100, 2


def write_atomically(path: Path, data: bytes) -> None:
    """Write `data` to a temporary file, then rename it."""
    with open_replacement(path) as stream:
        stream.write(data)


@contextlib.contextmanager
def open_replacement(path: Path, *, cleans: bool = True) -> Iterator[BinaryIO]:
    """Open a temporary file that becomes `path` on success.

    A success also removes temporary files of ended processes, unless the caller does (`cleans`): it takes a look at
    the whole folder.
    """
    if not path.absolute().parent.is_dir():
        raise FileNotFoundError(errno.ENOENT, "there is no such folder", str(path.parent))
    check_replaceable(path)

    def make() -> tuple[int, str]:
        # With the rights of any new file, which the system knows. Asking for the umask would change it for a moment,
        # and `mkstemp` makes files that only their owner reads.
        temporary = str(path.parent / f".{path.name}.{secrets.token_hex(4)}{leftovers.SUFFIX}")
        return os.open(temporary, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666), temporary

    with _rename_in_errors(path):
        handle, temporary = leftovers.make_locked(make)
    try:
        # Closing a duplicate does not unlock the file, which nobody may remove before it has its name.
        with os.fdopen(os.dup(handle), "wb") as stream:
            yield stream
        with _rename_in_errors(path):
            Path(temporary).replace(path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise
    finally:
        os.close(handle)
    if cleans:
        # A folder that may be written but not listed keeps what is there.
        with contextlib.suppress(OSError):
            leftovers.remove_files(path.absolute().parent, re.escape(path.name))


@contextlib.contextmanager
def _rename_in_errors(path: Path) -> Iterator[None]:
    """Let errors name the requested file, not the temporary one."""
    try:
        yield
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(path)) from None


@contextlib.contextmanager
def scratch_folder(target: Path) -> Iterator[Path]:
    """Make a temporary folder beside `target`, and remove it afterwards.

    Folders of ended processes go too. Files inside are called as `leftovers.INSIDE` says: by this the next process
    knows the folder.
    """
    check_replaceable(target)

    def make() -> tuple[int, str]:
        name = tempfile.mkdtemp(dir=target.absolute().parent, prefix=f".{target.name}.")
        return os.open(name, os.O_RDONLY | os.O_CLOEXEC), name

    handle, name = leftovers.make_locked(make)
    try:
        yield Path(name)
        # Only after a success: whoever fails shall not spend time on what others left.
        with contextlib.suppress(OSError):
            leftovers.remove_folders(target)
    finally:
        leftovers.remove_tree(Path(name))
        os.close(handle)


def exchange(first: Path, second: Path) -> bool:
    """Swap two files or folders atomically; False if the system cannot."""
    try:
        rename = ctypes.CDLL(None).renameat2
    # A C library before glibc 2.28, or a system that has none.
    except (AttributeError, OSError):
        return False
    paths = [os.fsencode(path) for path in (first, second)]
    return bool(rename(_AT_FDCWD, paths[0], _AT_FDCWD, paths[1], _RENAME_EXCHANGE) == 0)


def replace_folder(target: Path, source: Path, backup: Path, exchange: Callable[[Path, Path], bool] = exchange) -> None:
    """Rename the folder `source` to `target`.

    The old target goes to `source` or `backup`, or stays if that fails.

    Where the file system cannot exchange two names, there is no `target` for a moment.
    """
    if not target.exists():
        source.rename(target)
        return
    if exchange(source, target):
        return
    target.rename(backup)
    try:
        source.rename(target)
    except BaseException:
        backup.rename(target)
        raise


def check_regular(path: Path) -> None:
    """Raise `OSError` for pipes and devices, which never end, and for nothing."""
    if not stat.S_ISREG(path.stat().st_mode) and not path.is_dir():
        raise OSError(errno.EINVAL, "it is a pipe or a device, not a file", str(path))


def check_replaceable(path: Path) -> None:
    """Raise `OSError` for pipes and devices in place of a file."""
    with contextlib.suppress(FileNotFoundError):
        check_regular(path)


def is_utf8(path: Path) -> bool:
    """Check if a path is UTF-8, as C++ libraries ask."""
    try:
        str(path).encode()
    except UnicodeEncodeError:
        return False
    return True


@contextlib.contextmanager
def utf8_folder(folder: Path) -> Iterator[Path]:
    """Yield a UTF-8 path of a folder, by a temporary link if needed."""
    if is_utf8(folder):
        yield folder
        return
    with tempfile.TemporaryDirectory() as scratch:
        link = Path(scratch) / "folder"
        link.symlink_to(folder.absolute())
        yield link


def cache_folder() -> Path | None:
    """Return this user's cache folder; None without one.

    It is ``SOC_PIPELINE_CACHE``, or ``soc-pipeline`` in ``XDG_CACHE_HOME``, by default and unless absolute
    ``~/.cache``.
    """
    if folder := os.environ.get(CACHE_VARIABLE):
        return Path(folder)
    if (home := Path(os.environ.get("XDG_CACHE_HOME", ""))).is_absolute():
        return home / "soc-pipeline"
    try:
        return Path.home() / ".cache" / "soc-pipeline"
    except RuntimeError:
        return None
