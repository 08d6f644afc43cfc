"""Bundle: built stages with their plan, saved as one relocatable folder.

``manifest.json`` names every other file with its size and SHA-256, and ``manifest.sha256`` has the manifest's own
(``sha256sum -c manifest.sha256`` checks it).  A library is a shared object, parameters are plain arrays.
"""

from __future__ import annotations

import contextlib
import copy
import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Any

import msgspec

from pipeline.core.model_card import ModelCard
from pipeline.core.numerics import EXACT, Numerics
from pipeline.core.plan.device_map import DeviceMap, map_devices
from pipeline.core.plan.plan import Plan
from pipeline.core.shapes import Build, OpenShapes
from pipeline.errors import BundleError, MissingExtra, PlanError
from pipeline.executor import host_target, manifest, parameters, source_runtimes
from pipeline.executor.bundle_folder import BundleFolder
from pipeline.executor.devices import is_remote, why_absent
from pipeline.executor.manifest import CHECKSUM, FORMAT, MANIFEST, BuildFiles, Manifest, StageFiles
from pipeline.executor.python_stages import with_stage
from pipeline.executor.signature import SIGNATURE
from pipeline.executor.stage_code import SUFFIXES, StageCode, StoredParameters
from pipeline.executor.verified_file import VerifiedContent, describe_file
from pipeline.system.files import replace_folder, scratch_folder
from pipeline.system.native_output import quietly
from pipeline.tvm.library import tvm_version

ATTEMPTS = 20
"""Attempts to load a bundle that is being replaced meanwhile."""


class Bundle:
    """The built stages of a plan.

    Parameters
    ----------
    plan : Plan
    codes : sequence
        Code for the device of each of the plan's units: a `StageCode`, a function, or None where it needs no code.
    parity : Parity, optional
        Result of the check against the unsplit model.
    general : sequence of StageGeneral
        Operators without a kernel of their own, and their share of the time, for each stage with code.  Only a bundle
        that was just built has them.
    numerics : Numerics
        Changes to the model's arithmetic.
    shapes : OpenShapes, optional
        Open extents in the shapes of the inputs.
    more : sequence of Build
        The stages for frames of other sizes than the plan's.
    checksum : str
        SHA-256 of the manifest of one that was loaded, by which versions are told apart.
    card : ModelCard, optional
        Inputs wanted and outputs given by the model.
    pictures : StageCode, optional
        Kernels that prepare pictures, of one that was loaded; see `pipeline.executor.picture_code`.

    Attributes
    ----------
    verification : Verification, optional
        Comparison of the model with the library of its format.  Only a bundle that was just built has it.
    unverified : str
        Reason that it was not compared.
    """

    def __init__(  # noqa: PLR0913 - all but the first two by keyword
        self,
        plan: Plan,
        codes: Sequence[Any],
        parity: Any = None,
        general: Sequence[Any] = (),
        *,
        numerics: Numerics = EXACT,
        shapes: OpenShapes | None = None,
        more: Sequence[Build] = (),
        checksum: str = "",
        card: ModelCard | None = None,
        pictures: StageCode | None = None,
    ) -> None:
        self.plan = plan
        self.codes = tuple(codes)
        self.checksum = checksum
        self.card, self.pictures = card, pictures
        self.parity = parity
        self.general = tuple(general)
        self.numerics, self.shapes, self.more = numerics, shapes, tuple(more)
        self.verification: Any = None
        self.unverified = ""

    @property
    def builds(self) -> tuple[Build, ...]:
        """The stages per frame size, the plan's size first."""
        return (Build(self.plan, self.codes, checksum=self.checksum), *self.more)

    def with_stage(self, function: Callable[..., Any], **options: Any) -> Bundle:
        """Return a bundle with an additional Python stage; it cannot be saved.

        Parameters
        ----------
        function : callable
        **options
            Options of `pipeline.executor.python_stages.with_stage`: ``inputs``, ``outputs``, ``name`` and others.
        """
        if self.shapes is not None:
            raise PlanError(
                "a function cannot be a stage of a bundle for several sizes; call it on the frames before they are "
                "submitted, or build the bundle for one size"
            )
        plan, codes = with_stage(self.plan, self.codes, function, **options)
        return Bundle(plan, codes, self.parity, self.general, numerics=self.numerics, card=self.card)

    def on_devices(self, devices: DeviceMap) -> Bundle:
        """Return the bundle with some devices replaced; see `pipeline.load`.

        Raises
        ------
        BoardError
            If the plan has no such device, or the other one cannot run what was built.
        """
        bundle = copy.copy(self)
        bundle.plan = map_devices(self.plan, devices)
        bundle.more = tuple(replace(build, plan=map_devices(build.plan, devices)) for build in self.more)
        return bundle

    def save(self, path: str | Path, *, sign: str | Path | None = None) -> None:
        """Write the bundle as folder `path`, atomically replacing an older one.

        Parameters
        ----------
        path : str or Path
        sign : str or Path, optional
            A private key of OpenSSH, by which the bundle is signed; see `pipeline.executor.signature`.

        Raises
        ------
        BundleError
            If `path` is something else than a bundle, or cannot be written.
        InputError
            If the key cannot be used.
        BuildError
            If there is no linker on this machine.
        """
        # A link to a bundle is followed: the bundle is replaced, and the link stays.
        target = Path(path).resolve()
        if target.exists() and not _is_bundle(target):
            raise BundleError(f"{str(path)!r} exists and is not a bundle; choose another name")
        if not target.parent.is_dir():
            raise BundleError(f"cannot save {str(path)!r}: there is no folder {str(target.parent)!r}")
        try:
            # Complete beside its target, on the same file system, it takes its place by a rename.
            with scratch_folder(target) as scratch:
                folder = scratch / "new"
                folder.mkdir()
                _write(self, folder, None if sign is None else Path(sign))
                replace_folder(target, folder, scratch / "old")
        except OSError as error:
            raise BundleError(f"cannot save {str(path)!r}: {error.strerror or error}") from error

    @staticmethod
    def load(
        path: str | Path, devices: DeviceMap | None = None, *, require_signature: str | Path | None = None
    ) -> Bundle:
        """Verify and load the bundle at `path`, without compiler or unpickling.

        Parameters
        ----------
        path : str or Path
        devices : mapping of str to (str or Device), optional
            Devices in place of some of its plan's; see `pipeline.load`.
        require_signature : str or Path, optional
            A file of allowed signers, of whom one must have signed it; see `pipeline.executor.signature`.

        Raises
        ------
        BundleError
            If it is missing, damaged, of a newer format, not signed as required, or built for another kind of
            processor; the message names the part.
        """
        allowed = None if require_signature is None else Path(require_signature)
        # Half of the files may be of one bundle, and half of its successor: only if the folder still has its name is an
        # error the bundle's own.
        for _ in range(ATTEMPTS - 1):
            with contextlib.closing(BundleFolder(Path(path))) as folder:
                try:
                    return _load(folder, devices, allowed)
                except BundleError:
                    if not folder.is_replaced():
                        raise
        with contextlib.closing(BundleFolder(Path(path))) as folder:
            return _load(folder, devices, allowed)


def _load(folder: BundleFolder, devices: DeviceMap | None, allowed: Path | None) -> Bundle:
    written_facts, signed = manifest.read_signed(folder, allowed)
    facts = written_facts.on_devices(devices or {})
    # Before the files are read: a bundle for another processor is refused at once, however large it is.
    _check_processor(facts, folder)
    # By name, since builds for several sizes share files, which are read and verified once.
    contents = {file.file: folder.content(file) for file in facts.files.values()}
    codes, *other_codes = (
        tuple(None if files is None else _code(folder, files, contents) for files in build.stages)
        for build in facts.builds
    )
    builds = zip(facts.more, other_codes, strict=True)
    other_builds = [Build(build.plan, sized_codes, build.symbolic) for build, sized_codes in builds]
    for code in chain(codes, *other_codes):
        if code is not None:
            # A server may ask for it.
            code.signed = signed
    # Somebody else's processor may prepare them, as where this machine only looks at outputs.
    fits = facts.pictures is not None and not host_target.misfit(facts.pictures.machine, facts.pictures.features)
    pictures = _code(folder, facts.pictures, contents) if facts.pictures is not None and fits else None
    return from_manifest(facts, codes, other_builds, manifest.read_checksum(folder), pictures)


def from_manifest(
    facts: Manifest, codes: Sequence[Any], more: Sequence[Build], checksum: str, pictures: StageCode | None = None
) -> Bundle:
    """Return the bundle of a manifest, with the code of its plan and of other sizes."""
    return Bundle(
        facts.plan,
        codes,
        numerics=facts.numerics,
        shapes=facts.shapes,
        more=more,
        checksum=checksum,
        card=facts.card,
        pictures=pictures,
    )


def _check_processor(facts: Manifest, folder: BundleFolder) -> None:
    for stage, files in facts.pairs:
        if files is None or is_remote(facts.plan.board.device(stage.device)):
            continue  # That machine looks for itself.
        if problem := host_target.other_tvm(facts.tvm):
            raise BundleError(
                f"{str(folder.path)!r}: {stage.name} ({files.library.file}) {problem}; build it again with this one"
            )
        devices = map(facts.plan.board.device, dict.fromkeys(stage.replica_names))
        if problem := next(filter(None, map(why_absent, devices)), ""):
            raise MissingExtra(f"{str(folder.path)!r}: {stage.name} is for a device that is not here: {problem}")
        if problem := host_target.misfit(files.machine, files.features):
            raise BundleError(f"{str(folder.path)!r}: {stage.name} ({files.library.file}) {problem}")
        if problem := source_runtimes.why_missing(files.runtimes):
            raise MissingExtra(f"{str(folder.path)!r}: {stage.name} {problem}")


def _code(folder: BundleFolder, files: StageFiles, contents: Mapping[str, VerifiedContent]) -> StageCode:
    parameter_file = StoredParameters(contents[files.parameters.file], files.entries)
    try:
        # The others may be for extensions that this machine lacks on all its cores.
        fitting = [variant for variant in files.variants if not host_target.misfit(variant.machine, variant.features)]
        variants = [_code(folder, variant, contents) for variant in fitting]
        return stage_code(contents[files.library.file], parameter_file, files, folder.path, variants)
    except BundleError as error:
        raise BundleError(f"{str(folder.path)!r}: {files.parameters.file} {error}; build it again") from None


def stage_code(
    library: VerifiedContent,
    parameter_file: StoredParameters,
    files: StageFiles,
    folder: Path | None = None,
    variants: Sequence[StageCode] = (),
) -> StageCode:
    """Return the stage of these files, from a folder or a client, or raise `BundleError`."""

    def module() -> Any:
        # Imported when a device asks for the code, so that a bundle can be looked at without TVM.
        from pipeline.executor import library as libraries

        return libraries.module(library)

    return StageCode(
        module,
        parameters.read(parameter_file.content.array, parameter_file.entries),
        library=library,
        parameter_file=parameter_file,
        file="" if folder is None else str(folder / files.library.file),
        machine=files.machine,
        features=files.features,
        runtimes=files.runtimes,
        suffix=Path(files.library.file).suffix,
        runtime_version=files.runtime_version,
        processor=files.processor,
        variants=tuple(variants),
    )


def _is_bundle(folder: Path) -> bool:
    """Test if `folder` holds only a bundle, and is safe to replace."""
    names = {entry.name for entry in folder.iterdir()} if folder.is_dir() else set()
    return {MANIFEST, CHECKSUM} <= names and all(
        name in (MANIFEST, CHECKSUM, SIGNATURE) or name.endswith((".parameters", *SUFFIXES)) for name in names
    )


def _write(bundle: Bundle, folder: Path, key: Path | None) -> None:
    # First of all: a bundle that cannot be saved is refused before minutes are spent on writing it.
    for stage, code in zip(bundle.plan.units, bundle.codes, strict=True):
        if code is not None and not isinstance(code, StageCode):
            raise BundleError(
                f"stage {stage.name!r} is a Python function, which a bundle does not hold; save the bundle without it, "
                "and add the stage after loading"
            )
    stage_files = [
        _write_stage([build.codes[number] for build in bundle.builds], folder, f"stage{number}")
        for number in range(len(bundle.codes))
    ]
    first, *other_files = zip(*stage_files, strict=True)
    other_builds = [
        BuildFiles(build.plan, stages, build.symbolic) for build, stages in zip(bundle.more, other_files, strict=True)
    ]
    (pictures,) = _write_stage([_pictures(bundle)], folder, "pictures")
    facts = Manifest(
        FORMAT,
        tvm_version(),
        bundle.plan,
        first,
        bundle.numerics,
        bundle.shapes,
        tuple(other_builds),
        bundle.card,
        pictures,
    )
    manifest.write(folder, facts, key)


def _pictures(bundle: Bundle) -> StageCode | None:
    """Return a bundle's kernels for pictures, compiled now if it was just built."""
    if bundle.pictures is not None or bundle.checksum:
        return bundle.pictures
    from pipeline.executor.picture_code import compile_for_bundle

    return compile_for_bundle(bundle.plan, bundle.card)


def _write_stage(codes: Sequence[StageCode | None], folder: Path, name: str) -> list[StageFiles | None]:
    """Write a stage's code per size, with equal parameters once."""
    stage_codes = [code for code in codes if code is not None]
    if not stage_codes:
        return [None] * len(codes)
    # Not the stage's own name, which need not be a legal file name.
    arrays = folder / f"{name}.parameters"
    all_codes = [member for code in stage_codes for member in code.family]
    entries = iter(parameters.write(arrays, parameters.share_arrays([code.parameters for code in all_codes])))
    part = describe_file(arrays)

    def write(code: StageCode, stem: str) -> StageFiles:
        library = folder / f"{stem}{code.suffix}"
        export(code, library)
        return StageFiles(
            describe_file(library),
            part,
            tuple(next(entries)),
            code.machine,
            code.features,
            runtimes=code.runtimes,
            runtime_version=code.runtime_version,
            processor=code.processor,
        )

    stages = []
    for size, code in enumerate(stage_codes):
        stem = f"{name}.{size}" if size else name
        files = write(code, stem)
        # Numbered: LLVM's names of processors are none of this project's, and names of files have to be safe.
        variants = [write(variant, f"{stem}.core{kind}") for kind, variant in enumerate(code.variants, 1)]
        stages.append(msgspec.structs.replace(files, variants=tuple(variants)))
    stage_files = iter(stages)
    return [None if code is None else next(stage_files) for code in codes]


def export(code: StageCode, library: Path) -> None:
    """Write a stage's shared library.

    Raises `BuildError` if it has just been compiled, and there is no linker on this machine.
    """
    # Byte for byte as it was loaded: that needs no linker, and keeps the checksum.
    if code.library is not None:
        library.write_bytes(code.library.array.data)
        return
    from pipeline.executor.linker import link
    from pipeline.tvm.access import compiler_lock

    # TVM calls the linker itself, and knows nothing of the machine that the stage is for.
    link_stage = functools.partial(link, built_for=code.machine)
    with compiler_lock:
        quietly(lambda: code.executable.export_library(str(library), fcompile=link_stage))
