"""Files and folders that are either complete or not there."""

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
"""Names the folder of files that can be made again."""


# Of <fcntl.h> and <linux/fs.h>; Python has no names for them.
_AT_FDCWD, _RENAME_EXCHANGE = -100, 2


def write_atomically(path: Path, data: bytes) -> None:
    """Write `data` to a temporary name beside `path`, then rename, so that no reader sees half a file."""
    with open_replacement(path) as stream:
        stream.write(data)


@contextlib.contextmanager
def open_replacement(path: Path, *, cleans: bool = True) -> Iterator[BinaryIO]:
    """Open a temporary file beside `path`, that is renamed to it in the end, or removed if something goes wrong.

    A success also removes those that ended processes left there, unless `cleans` says that the caller does that: it
    takes a look at the whole folder.
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
    """Let errors name the file that was asked for, and not the temporary one."""
    try:
        yield
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(path)) from None


@contextlib.contextmanager
def scratch_folder(target: Path) -> Iterator[Path]:
    """Make a folder beside `target`, and remove it in the end, together with those that ended processes left there.

    What is in it must be called as `leftovers.INSIDE` says, or the next process does not know it for one of these.
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
    """Let two files or folders change names, so that both names always exist; return whether the system could."""
    try:
        rename = ctypes.CDLL(None).renameat2
    # A C library before glibc 2.28, or a system that has none.
    except (AttributeError, OSError):
        return False
    paths = [os.fsencode(path) for path in (first, second)]
    return bool(rename(_AT_FDCWD, paths[0], _AT_FDCWD, paths[1], _RENAME_EXCHANGE) == 0)


def replace_folder(target: Path, source: Path, backup: Path, exchange: Callable[[Path, Path], bool] = exchange) -> None:
    """Rename the folder `source` to `target`; what is there goes to `source` or `backup`, or stays if that fails.

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
    """Check that a path is no pipe and no device, which would be read for ever.

    Raises
    ------
    OSError
        If it is, or there is nothing.
    """
    if not stat.S_ISREG(path.stat().st_mode) and not path.is_dir():
        raise OSError(errno.EINVAL, "it is a pipe or a device, not a file", str(path))


def check_replaceable(path: Path) -> None:
    """Check that a new file may take a name: pipes and devices, which a rename would replace, keep theirs.

    Raises
    ------
    OSError
        If there is one.
    """
    with contextlib.suppress(FileNotFoundError):
        check_regular(path)


def is_utf8(path: Path) -> bool:
    """Check whether a path is text, which libraries in C++ ask for; to the system it is any bytes."""
    try:
        str(path).encode()
    except UnicodeEncodeError:
        return False
    return True


@contextlib.contextmanager
def utf8_folder(folder: Path) -> Iterator[Path]:
    """Yield a path of a folder that is UTF-8: its own, or for the time of the block that of a link to it."""
    if is_utf8(folder):
        yield folder
        return
    with tempfile.TemporaryDirectory() as scratch:
        link = Path(scratch) / "folder"
        link.symlink_to(folder.absolute())
        yield link


def cache_folder() -> Path | None:
    """Return the folder of this user's files that can be made again; None if there is none.

    That is the folder that ``SOC_PIPELINE_CACHE`` names, or ``soc-pipeline`` in ``XDG_CACHE_HOME``, which is
    ``~/.cache`` unless it is set to an absolute path.
    """
    if folder := os.environ.get(CACHE_VARIABLE):
        return Path(folder)
    if (home := Path(os.environ.get("XDG_CACHE_HOME", ""))).is_absolute():
        return home / "soc-pipeline"
    try:
        return Path.home() / ".cache" / "soc-pipeline"
    except RuntimeError:
        return None
