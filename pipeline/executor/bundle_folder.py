"""BundleFolder: a bundle's folder, held open while it is read."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

from pipeline.errors import BundleError
from pipeline.executor import verified_file
from pipeline.executor.verified_file import BundleFile, DamagedFile, VerifiedContent

REPLACING = "to replace a bundle, copy the new one beside it, then rename"


class BundleFolder:
    """Open folder of one bundle, unaffected by a replacement; `BundleError` without folder."""

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            # Files are opened relative to this descriptor, which stays the same folder when another one gets its name.
            self._descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        # ValueError is for a null byte in the name.
        except (OSError, ValueError) as error:
            raise BundleError(f"{str(path)!r} {_absence(error)}; make one with 'soc-pipeline build'") from None

    def close(self) -> None:
        """Give the folder back."""
        os.close(self._descriptor)

    def is_replaced(self) -> bool:
        """Test if the folder was replaced or removed meanwhile."""
        try:
            current = self.path.stat()
        except OSError:
            return True
        return not os.path.samestat(current, os.fstat(self._descriptor))

    def has(self, name: str) -> bool:
        """Test if a file exists."""
        try:
            os.stat(name, dir_fd=self._descriptor)
        except OSError:
            return False
        return True

    def small_file(self, name: str, limit: int) -> bytes:
        """Read a file of at most `limit` bytes; `BundleError` if it has more, or cannot be read."""
        title = str(self.path / name)
        try:
            with self._open_file(name) as descriptor:
                if (size := os.fstat(descriptor).st_size) > limit:
                    raise BundleError(f"{title!r} has {size} bytes, and is none of a bundle; build the bundle again")
                # One more than allowed: the file may grow while it is read.
                with os.fdopen(os.dup(descriptor), "rb") as stream:
                    return stream.read(limit + 1)
        except OSError as error:
            raise BundleError(f"{title!r}: cannot be read ({error.strerror}); copy the whole bundle again") from None

    def content(self, part: BundleFile) -> VerifiedContent:
        """Return a file of the manifest, or raise `BundleError`.

        A file that is missing or differs from the manifest is an error.
        """
        name = f"{str(self.path)!r}: part {part.file!r}"
        # The manifest is as little to be trusted as the files: a name with folders in it would lead out of the bundle.
        if Path(part.file).name != part.file or part.file == "..":
            raise BundleError(f"{name} is missing; copy the whole bundle again")
        try:
            with self._open_file(part.file) as descriptor:
                return verified_file.read(descriptor, part.nbytes, part.sha256)
        except FileNotFoundError:
            raise BundleError(f"{name} is missing; copy the whole bundle again") from None
        except DamagedFile as error:
            raise BundleError(f"{name} {error}; copy or build it again ({REPLACING})") from None
        except (OSError, ValueError) as error:
            reason = getattr(error, "strerror", None) or error
            raise BundleError(f"{name} cannot be read: {reason}; copy the whole bundle again") from None

    @contextlib.contextmanager
    def _open_file(self, name: str) -> Iterator[int]:
        descriptor = verified_file.open_regular(name, self._descriptor)
        try:
            yield descriptor
        finally:
            os.close(descriptor)


def _absence(error: Exception) -> str:
    if isinstance(error, FileNotFoundError):
        return "does not exist"
    if isinstance(error, NotADirectoryError):
        return "is not a bundle"
    return f"cannot be opened: {getattr(error, 'strerror', None) or error}"
