"""File store: contents by key, shared between processes, bounded in bytes."""

from __future__ import annotations

import contextlib
import hashlib
import os
from dataclasses import dataclass
from pathlib import Path

from pipeline.system import leftovers
from pipeline.system.files import open_replacement

_DIGEST_BYTES = hashlib.sha256().digest_size


@dataclass(frozen=True)
class FileStore:
    """Contents by key, each a file behind its checksum."""

    root: Path
    """Folder of the files."""
    limit: int
    """Bytes that stay; the least recently used makes room."""

    def get(self, key: str) -> memoryview | None:
        """Return a key's content; None without one, or of a damaged one, which is removed."""
        path = self.root / key
        try:
            data = memoryview(path.read_bytes())
        except OSError:
            return None
        content = data[_DIGEST_BYTES:]
        if hashlib.sha256(content).digest() != data[:_DIGEST_BYTES]:
            leftovers.remove(path)
            return None
        with contextlib.suppress(OSError):
            os.utime(path)
        return content

    def put(self, key: str, content: bytes) -> None:
        """Keep a content, whole or not at all; a folder that cannot be written keeps none."""
        with contextlib.suppress(OSError):
            self.root.mkdir(parents=True, exist_ok=True, mode=0o700)
            with open_replacement(self.root / key, cleans=False) as stream:
                stream.write(hashlib.sha256(content).digest())
                stream.write(content)

    def make_room(self) -> None:
        """Remove the least recently used contents beyond `limit`, and what ended processes have left."""
        with contextlib.suppress(OSError):
            leftovers.remove_files(self.root, ".*")
            with os.scandir(self.root) as entries:
                # Those with a dot are being written.
                files = [(entry.path, entry.stat()) for entry in entries if not entry.name.startswith(".")]
            total = 0
            for path, status in sorted(files, key=lambda file: -file[1].st_mtime_ns):
                total += status.st_size
                if total > self.limit:
                    leftovers.remove(Path(path))
