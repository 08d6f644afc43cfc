"""Bundle description: plans of a saved bundle without its code."""

from __future__ import annotations

import contextlib
from pathlib import Path

from pipeline.core.shapes import Build
from pipeline.executor import manifest
from pipeline.executor.bundle import Bundle, from_manifest
from pipeline.executor.bundle_folder import BundleFolder
from pipeline.executor.manifest import Manifest


def describe_bundle(path: str | Path, require_signature: str | Path | None = None) -> Bundle:
    """Describe the bundle at `path` without loading code, possibly for other machines.

    Raises `BundleError` if it is missing, its manifest is damaged, or it is not signed as required.
    """
    with contextlib.closing(BundleFolder(Path(path))) as folder:
        facts = manifest.read_from(folder, None if require_signature is None else Path(require_signature))
        checksum = manifest.read_checksum(folder)
    return describe_manifest(facts, checksum)


def describe_manifest(facts: Manifest, checksum: str = "") -> Bundle:
    """Describe the bundle of a manifest, without its code."""
    more = [Build(build.plan, (None,) * len(build.stages), build.symbolic) for build in facts.more]
    return from_manifest(facts, (None,) * len(facts.stages), more, checksum)
