"""The manifest of a bundle: every file with its size and SHA-256, written last and verified first."""

from __future__ import annotations

import hashlib
from pathlib import Path

import msgspec

from pipeline.errors import BundleError, PlanError
from pipeline.executor.numerics import EXACT, Numerics
from pipeline.executor.parameters import Entry
from pipeline.memory import mapped
from pipeline.plans import Plan, StagePlan
from pipeline.sizes import OpenShapes

FORMAT = 1
MANIFEST = "manifest.json"
CHECKSUM = "manifest.sha256"


class Part(msgspec.Struct, frozen=True):
    """One file of a bundle."""

    file: str
    nbytes: int
    sha256: str


class Stage(msgspec.Struct, frozen=True):
    """The files of one stage, and what its code needs to run."""

    library: Part
    parameters: Part
    entries: tuple[Entry, ...]
    machine: str
    features: tuple[str, ...]


class OtherBuild(msgspec.Struct, frozen=True):
    """The stages for frames of another size than that of the manifest's own plan."""

    plan: Plan
    stages: tuple[Stage | None, ...]
    symbolic: bool = False


class Manifest(msgspec.Struct, frozen=True):
    """What ``manifest.json`` holds; a stage without code is null."""

    format: int
    tvm: str
    plan: Plan
    stages: tuple[Stage | None, ...]
    numerics: Numerics = EXACT
    shapes: OpenShapes | None = None
    more: tuple[OtherBuild, ...] = ()

    @property
    def builds(self) -> tuple[OtherBuild, ...]:
        """Those for all sizes, the plan's own first."""
        return (OtherBuild(self.plan, self.stages), *self.more)

    @property
    def pairs(self) -> list[tuple[StagePlan, Stage | None]]:
        """The stages of all builds, with their files."""
        return [pair for build in self.builds for pair in zip(build.plan.stages, build.stages, strict=True)]

    @property
    def files(self) -> dict[str, Part]:
        """All files, by name; builds share parameters."""
        stages = [files for _, files in self.pairs if files is not None]
        return {part.file: part for each in stages for part in (each.library, each.parameters)}


class _Format(msgspec.Struct):
    format: int = 0


# Made once, while this is imported: two threads that let msgspec look at one type at the same time end in a segfault.
_FORMAT, _MANIFEST = msgspec.json.Decoder(_Format), msgspec.json.Decoder(Manifest)


def write(folder: Path, manifest: Manifest) -> None:
    """Write the manifest of a bundle's folder, and its checksum."""
    data = msgspec.json.format(msgspec.json.encode(manifest), indent=1) + b"\n"
    (folder / MANIFEST).write_bytes(data)
    (folder / CHECKSUM).write_text(_checksum_line(data))


def read(folder: Path) -> Manifest:
    """Return the manifest of the bundle in `folder`.

    Raises
    ------
    BundleError
        If there is no bundle, or the manifest is damaged, of a newer format, or not valid.
    """
    if not folder.is_dir():
        what = "is not a bundle" if folder.exists() else "does not exist"
        raise BundleError(f"{str(folder)!r} {what}; make one with 'soc-pipeline build'")
    if not (folder / MANIFEST).exists():
        raise BundleError(f"{str(folder)!r} is not a bundle: it has no {MANIFEST}")
    data = _read(folder / MANIFEST)
    if _read(folder / CHECKSUM) != _checksum_line(data).encode():
        raise BundleError(
            f"{str(folder)!r}: {MANIFEST} does not have the checksum in {CHECKSUM}; copy the bundle again"
        )
    return _decoded(data, folder)


def part(path: Path) -> Part:
    """Describe a file as it is."""
    digest, nbytes = hashlib.sha256(), path.stat().st_size
    if nbytes:
        # Through the same pages as later on: a file of parameters is read once, and in large pages.
        with path.open("rb") as stream, mapped(stream) as pages:
            digest.update(pages)
    return Part(path.name, nbytes, digest.hexdigest())


def verify(folder: Path, expected: Part) -> None:
    """Raise `BundleError` unless the file that a manifest describes is in `folder`, and unchanged."""
    path, name = folder / expected.file, f"{str(folder)!r}: part {expected.file!r}"
    if path.name != expected.file or not path.is_file():
        raise BundleError(f"{name} is missing; copy the whole bundle again")
    if (found := path.stat().st_size) != expected.nbytes:
        raise BundleError(f"{name} has {found} bytes instead of {expected.nbytes}; copy it again")
    if part(path).sha256 != expected.sha256:
        raise BundleError(f"{name} has been changed (SHA-256 differs); copy or build it again")


def _checksum_line(manifest: bytes) -> str:
    return f"{hashlib.sha256(manifest).hexdigest()}  {MANIFEST}\n"


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise BundleError(f"{str(path)!r}: cannot be read ({error.strerror}); copy the whole bundle again") from None


def _decoded(data: bytes, folder: Path) -> Manifest:
    try:
        version = _FORMAT.decode(data).format
        if version > FORMAT:
            raise BundleError(
                f"{str(folder)!r}: {MANIFEST} has format {version}, newer than {FORMAT}, which this version reads; "
                "upgrade soc-pipeline or build the bundle again"
            )
        manifest = _MANIFEST.decode(data)
        for build in manifest.builds:
            if len(build.stages) != len(build.plan.stages):
                raise BundleError(
                    f"{str(folder)!r}: {MANIFEST} lists {len(build.stages)} of {len(build.plan.stages)} stages"
                )
    except (msgspec.MsgspecError, PlanError) as error:
        raise BundleError(f"{str(folder)!r}: {MANIFEST} is not valid: {error}; build the bundle again") from None
    return manifest
