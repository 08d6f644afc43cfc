"""BundleParts: bundle files for the nodes, stored by manifest checksum."""

from __future__ import annotations

import contextlib
import hashlib
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from pipeline.errors import BundleError
from pipeline.executor import manifest
from pipeline.executor.bundle import Bundle
from pipeline.executor.bundle_description import describe_manifest
from pipeline.executor.bundle_folder import BundleFolder
from pipeline.executor.manifest import CHECKSUM, MANIFEST
from pipeline.system.file_store import FolderStore
from pipeline.system.files import cache_folder, replace_folder, scratch_folder

MOST_BUNDLES = 16
"""Bundles in a node's folder; the least recently used makes room."""


@dataclass(frozen=True)
class BundleParts:
    """The files of a bundle."""

    digest: str
    """SHA-256 of the manifest, which has those of all other files."""
    files: Mapping[str, np.ndarray]
    """Contents by name."""


def read_parts(bundle: Bundle | Path, require_signature: Path | None = None) -> BundleParts:
    """Read a bundle's files once: the verified bytes are those sent.

    A bundle in memory is saved for that, to a folder that is gone afterwards. Raises `BundleError` if the bundle is
    missing, damaged, or not signed as `require_signature`, a file of allowed signers, wants it.
    """
    if isinstance(bundle, Bundle):
        with tempfile.TemporaryDirectory(prefix="soc-pipeline-") as folder:
            path = Path(folder) / "model.bundle"
            bundle.save(path)
            return read_parts(path)
    with contextlib.closing(BundleFolder(bundle)) as folder:
        data = manifest.read_data(folder, require_signature)
        facts = manifest.decode(data, bundle)
        files = {name: folder.content(part).array for name, part in facts.files.items()}
    files[MANIFEST] = np.frombuffer(data, np.uint8)
    files[CHECKSUM] = np.frombuffer(manifest.checksum_line(data), np.uint8)
    return BundleParts(_digest(files[MANIFEST]), files)


def describe_parts(parts: BundleParts) -> Bundle:
    """Return the files' bundle without code."""
    return describe_manifest(manifest.decode(parts.files[MANIFEST].tobytes(), Path(parts.digest[:12])))


def find_bundle(digest: str, folder: Path | None = None) -> Path | None:
    """Return a stored bundle's folder, if any; other files are verified at loading."""
    store = _store(folder)
    path = store.path(digest)
    try:
        data = (path / MANIFEST).read_bytes()
    except OSError:
        return None
    if hashlib.sha256(data).hexdigest() != digest:
        return None
    store.touch(digest)
    return path


def keep_bundle(parts: BundleParts, folder: Path | None = None) -> Path:
    """Write a bundle's files to this machine and return their folder.

    Raises `BundleError` if it arrived damaged, or cannot be written.
    """
    if _digest(parts.files[MANIFEST]) != parts.digest:
        raise BundleError(f"the manifest of the bundle {parts.digest[:12]} arrived damaged; run it again")
    store = _store(folder)
    target = store.path(parts.digest)
    try:
        target.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        with scratch_folder(target) as scratch:
            new = scratch / "new"
            new.mkdir()
            for name, array in parts.files.items():
                # A manifest is not to be trusted with names before it is read; these are the names of the sender.
                if Path(name).name != name:
                    raise BundleError(f"a bundle's file cannot be called {name!r}")
                (new / name).write_bytes(array.data)
            replace_folder(target, new, scratch / "old")
        store.make_room()
    except OSError as error:
        raise BundleError(f"the bundle cannot be kept in {str(target.parent)!r}: {error.strerror or error}") from error
    return target


def lock_bundle(digest: str, folder: Path | None = None) -> contextlib.AbstractContextManager[None]:
    """Lock a bundle's search and storage between this machine's processes."""
    # Held while the files come: the others then find them here.
    return _store(folder).lock(digest)


def _store(folder: Path | None) -> FolderStore:
    root = folder or cache_folder()
    if root is None:
        raise BundleError("there is no folder to keep bundles in; set SOC_PIPELINE_CACHE, or HOME")
    return FolderStore(root / "bundles", MOST_BUNDLES)


def _digest(array: np.ndarray) -> str:
    return hashlib.sha256(array.data).hexdigest()
