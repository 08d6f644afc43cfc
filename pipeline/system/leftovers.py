"""Leftovers: temporary files and folders of killed processes.

Whoever writes holds a lock on what it writes to.  The system gives the lock back when the process ends, in whatever
way: what has a temporary name and no holder is dead.  Where the file system has no locks, everything is left there.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import shutil
from collections.abc import Callable
from pathlib import Path

INSIDE = {"new", "old"}
"""Marker inside the folders, so that nobody else's is taken for one."""

SUFFIX = ".tmp"
"""Ending of the files, for the same reason: `.plan.json.original` is somebody's, and looks like `mkstemp`'s."""


def make_locked(make: Callable[[], tuple[int, str]]) -> tuple[int, str]:
    """Make and lock something temporary; return its descriptor and name.

    Closing the descriptor unlocks it. `make` makes a file or folder that is not there yet, and returns an open
    descriptor of it, and its name.
    """
    while True:
        handle, name = make()
        # Somebody else may have found it before it was locked, and removed it.
        if _lock(handle) is not False and _is(name, handle):
            return handle, name
        os.close(handle)


def remove_files(folder: Path, names: str) -> None:
    """Remove temporary files of ended processes that match `names`."""
    # `open_replacement` adds eight characters between the name and the suffix.
    pattern = re.compile(rf"\.{names}\.\w{{8}}{re.escape(SUFFIX)}")
    with os.scandir(folder) as entries:
        for entry in entries:
            if pattern.fullmatch(entry.name) and entry.is_file(follow_symlinks=False):
                remove_dead(Path(entry.path))


def remove_folders(target: Path) -> None:
    """Remove the temporary folders of ended processes for `target`."""
    # `mkdtemp` adds eight characters behind the prefix of `scratch_folder`.
    pattern = re.compile(rf"\.{re.escape(target.name)}\.\w{{8}}")
    for path in target.parent.iterdir():
        if pattern.fullmatch(path.name) and not path.is_symlink() and path.is_dir():
            with contextlib.suppress(OSError):
                # Somebody else's folder may have such a name by chance, but hardly such a content as well.
                if {entry.name for entry in path.iterdir()} <= INSIDE:
                    remove_dead(path)


def remove_dead(path: Path) -> None:
    """Remove a temporary file or folder, unless locked."""
    try:
        # Neither waits at a pipe nor follows a link to what is not ours.
        handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOFOLLOW)
    except OSError:
        return
    try:
        if _lock(handle) and _is(path, handle):
            remove(path)
    finally:
        os.close(handle)


def remove(path: Path) -> None:
    """Remove a file or folder, as far as possible."""
    if path.is_dir() and not path.is_symlink():
        remove_tree(path)
        return
    with contextlib.suppress(OSError):
        path.unlink()


def remove_tree(path: Path) -> None:
    """Remove a folder and its contents, as far as possible."""
    shutil.rmtree(path, ignore_errors=True)


def _lock(handle: int) -> bool | None:
    """Lock an open file or folder. False if another process has it, None if the system never can."""
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        return None
    return True


def _is(path: str | Path, handle: int) -> bool:
    try:
        return os.path.samestat(os.lstat(path), os.fstat(handle))
    except OSError:
        return False
