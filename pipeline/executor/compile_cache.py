"""Compile cache: compiled kernels and stages by content, target and versions."""

from __future__ import annotations

import functools
import hashlib
import os
from pathlib import Path
from typing import Any

import msgspec

from pipeline.system.file_store import FileStore
from pipeline.system.files import cache_folder
from pipeline.system.version import VERSION
from pipeline.tvm.library import tvm_version

VARIABLE = "SOC_PIPELINE_COMPILE_CACHE"
"""Environment variable that switches the cache off, if it is ``0``."""

LIMIT = 1 << 30
"""Bytes that are kept; the least recently used make room."""

FORMAT = 1
"""Part of the folder's name: contents of another form stay unread."""

COMPILER = Path(__file__).parents[1]
"""Folder of the package; the parts below follow from its sources."""

PARTS = ("executor", "model", "tvm")
"""Rooms whose sources determine a stage's code."""


def open_cache() -> FileStore | None:
    """Return this user's cache; None where it is switched off, or there is no folder."""
    root = cache_folder()
    if root is None or os.environ.get(VARIABLE) == "0":
        return None
    return FileStore(root / f"compiled-{FORMAT}", LIMIT)


def key_of(kind: str, *facts: Any) -> str:
    """Return the key of what follows from facts, this package and TVM."""
    text = msgspec.json.encode((kind, facts, VERSION, tvm_version(), sources_digest()), enc_hook=repr, order="sorted")
    return f"{kind}-{hashlib.sha256(text).hexdigest()[:40]}"


@functools.cache
def sources_digest(root: Path = COMPILER) -> str:
    """Return a digest of the compiler's sources, whose changes a version does not tell."""
    digest = hashlib.sha256()
    for part in PARTS:
        for path in sorted((root / part).rglob("*.py")):
            digest.update(path.read_bytes())
    return digest.hexdigest()
