"""Manifest of a bundle: files with size and SHA-256, written last."""

from __future__ import annotations

import contextlib
import hashlib
from pathlib import Path

import msgspec

from pipeline.core.model_card import ModelCard
from pipeline.core.numerics import EXACT, Numerics
from pipeline.core.plan.device_map import DeviceMap, map_devices
from pipeline.core.plan.plan import Plan, StagePlan
from pipeline.core.plan.plan_file import rename_old_options
from pipeline.core.shapes import Build, OpenShapes
from pipeline.errors import BundleError, PipelineError, PlanError, reason
from pipeline.executor.bundle_folder import REPLACING, BundleFolder
from pipeline.executor.parameters import ParameterEntry
from pipeline.executor.shape_checks import check_shapes
from pipeline.executor.signature import LARGEST as LARGEST_SIGNATURE
from pipeline.executor.signature import SIGNATURE, SignedManifest, sign, verify
from pipeline.executor.verified_file import BundleFile

FORMAT = 1
MANIFEST = "manifest.json"
CHECKSUM = "manifest.sha256"

LARGEST = 64 << 20
"""Upper bound on a manifest in bytes. A stage with thousands of parameters takes less than one of 64."""


class StageFiles(msgspec.Struct, frozen=True):
    """Files of one stage, and the needs of its code.

    Its `variants` are the same stage for other cores of the device, by their `processor` as LLVM calls it, with the
    same file of parameters; who does not know of them has the code that runs on all cores.
    """

    library: BundleFile
    parameters: BundleFile
    entries: tuple[ParameterEntry, ...]
    machine: str
    features: tuple[str, ...]
    runtimes: tuple[str, ...] = ()
    runtime_version: str = ""
    processor: str = ""
    variants: tuple[StageFiles, ...] = ()

    @property
    def family(self) -> tuple[StageFiles, ...]:
        """The files per kind of core, own first."""
        return (self, *self.variants)


class BuildFiles(msgspec.Struct, frozen=True):
    """Stages for frames of another size than the plan's."""

    plan: Plan
    stages: tuple[StageFiles | None, ...]
    symbolic: bool = False


class Manifest(msgspec.Struct, frozen=True):
    """Contents of ``manifest.json``: a stage per plan unit, null without code."""

    format: int
    tvm: str
    plan: Plan
    stages: tuple[StageFiles | None, ...]
    numerics: Numerics = EXACT
    shapes: OpenShapes | None = None
    more: tuple[BuildFiles, ...] = ()
    card: ModelCard | None = None
    pictures: StageFiles | None = None

    @property
    def builds(self) -> tuple[BuildFiles, ...]:
        """The stages for all sizes, the plan's own first."""
        return (BuildFiles(self.plan, self.stages), *self.more)

    @property
    def pairs(self) -> list[tuple[StagePlan, StageFiles | None]]:
        """The stages of all builds, with their files."""
        return [pair for build in self.builds for pair in zip(build.plan.units, build.stages, strict=True)]

    def on_devices(self, devices: DeviceMap) -> Manifest:
        """Return the manifest with some plans' devices replaced."""
        other_builds = tuple(
            msgspec.structs.replace(build, plan=map_devices(build.plan, devices)) for build in self.more
        )
        return msgspec.structs.replace(self, plan=map_devices(self.plan, devices), more=other_builds)

    @property
    def files(self) -> dict[str, BundleFile]:
        """Files of all builds by name; builds share parameters."""
        units = [*(files for _, files in self.pairs), self.pictures]
        stages = [part for files in units if files is not None for part in files.family]
        return {part.file: part for stage in stages for part in (stage.library, stage.parameters)}


class _FormatNumber(msgspec.Struct):
    format: int = 0


# Made once, while this is imported: two threads that let msgspec look at one type at the same time end in a segfault.
_FORMAT, _MANIFEST = msgspec.json.Decoder(_FormatNumber), msgspec.json.Decoder(Manifest)


def write(folder: Path, manifest: Manifest, key: Path | None = None) -> None:
    """Write a folder's manifest, checksum, and signature for a key."""
    # Indented, since people read manifests and compare them.
    data = msgspec.json.format(msgspec.json.encode(manifest), indent=1) + b"\n"
    if key is not None:
        (folder / SIGNATURE).write_bytes(sign(data, key))
    # Last of all files: a folder without it is no bundle yet.
    (folder / MANIFEST).write_bytes(data)
    (folder / CHECKSUM).write_bytes(checksum_line(data))


def read(path: Path) -> Manifest:
    """Read the manifest of the bundle at `path`; raises as `read_from`."""
    with contextlib.closing(BundleFolder(path)) as folder:
        return read_from(folder)


def read_from(folder: BundleFolder, require_signature: Path | None = None) -> Manifest:
    """Return the manifest of the bundle in `folder`.

    Raises `BundleError` if there is no bundle, or the manifest is damaged, of a newer format, not valid, or not signed.

    `require_signature`: the file of those of whom one must have signed it.
    """
    return decode(read_data(folder, require_signature), folder.path)


def read_data(folder: BundleFolder, require_signature: Path | None = None) -> bytes:
    """Read the verified manifest in `folder`; parameters and errors as `read_from`."""
    data = _read_data(folder)
    if require_signature is not None:
        # Before anything of it is believed, and of the very bytes that are decoded.
        _verify(folder, _signed(folder, data), require_signature)
    return data


def read_signed(folder: BundleFolder, require_signature: Path | None = None) -> tuple[Manifest, SignedManifest | None]:
    """Read the manifest in `folder`, with its signed form if signed.

    The parameters and errors are those of `read_from`.
    """
    data = read_data(folder, require_signature)
    return decode(data, folder.path), _signed(folder, data)


def _signed(folder: BundleFolder, data: bytes) -> SignedManifest | None:
    has_signature = folder.has(SIGNATURE)
    return SignedManifest(data, folder.small_file(SIGNATURE, LARGEST_SIGNATURE)) if has_signature else None


def read_checksum(folder: BundleFolder) -> str:
    """Return the manifest's SHA-256 of a bundle already read."""
    return folder.small_file(CHECKSUM, LARGEST).decode().partition(" ")[0]


def decode_signed(signed: SignedManifest, allowed: Path, origin: str) -> Manifest:
    """Decode a manifest signed by an allowed signer; `BundleError` if nobody of them did, or it is not valid."""
    verify(signed, allowed)
    return decode(signed.manifest, Path(origin))


def _verify(folder: BundleFolder, signed: SignedManifest | None, allowed: Path) -> None:
    if signed is None:
        raise BundleError(f"{str(folder.path)!r} is not signed; build it with '--sign KEY', or do not ask for it")
    try:
        verify(signed, allowed)
    except BundleError as error:
        raise BundleError(f"{str(folder.path)!r}: {error}") from None


def _read_data(folder: BundleFolder) -> bytes:
    if not folder.has(MANIFEST):
        raise BundleError(f"{str(folder.path)!r} is not a bundle: it has no {MANIFEST}")
    data = folder.small_file(MANIFEST, LARGEST)
    # Before anything is decoded: a damaged byte is to be told as damage, not as an odd plan.
    if folder.small_file(CHECKSUM, LARGEST) != checksum_line(data):
        raise BundleError(
            f"{str(folder.path)!r}: {MANIFEST} does not have the checksum in {CHECKSUM}; copy the bundle again "
            f"({REPLACING})"
        )
    return data


def checksum_line(manifest: bytes) -> bytes:
    """Content of the file with a manifest's checksum."""
    return f"{hashlib.sha256(manifest).hexdigest()}  {MANIFEST}\n".encode()


def decode(data: bytes, folder: Path) -> Manifest:
    """Decode a manifest; messages name `folder`."""
    try:
        # The number alone first: this version's types may refuse the fields of a newer manifest.
        version = _FORMAT.decode(data).format
        manifest = _MANIFEST.decode(rename_old_options(data)) if version <= FORMAT else None
        if manifest is not None:
            _check_stages(manifest)
            check_shapes(manifest.shapes, [Build(build.plan, (), build.symbolic) for build in manifest.builds])
    except (msgspec.MsgspecError, PipelineError, ValueError, OverflowError, RecursionError) as error:
        # The last three of values that the decoder does not bound: no UTF-8, thousands of digits, nested without end.
        raise BundleError(
            f"{str(folder)!r}: {MANIFEST} is not valid: {reason(error, line=0)}; build the bundle again"
        ) from None
    if manifest is None:
        raise BundleError(
            f"{str(folder)!r}: {MANIFEST} has format {version}, newer than {FORMAT}, which this version reads; "
            "upgrade soc-pipeline or build the bundle again"
        )
    return manifest


def _check_stages(manifest: Manifest) -> None:
    # The types cannot say that two lists have one length.
    for build in manifest.builds:
        if len(build.stages) != len(build.plan.units):
            raise PlanError(f"it lists {len(build.stages)} of {len(build.plan.units)} stages")
