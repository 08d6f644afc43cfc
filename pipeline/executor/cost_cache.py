"""Measured times on disk: one small JSON file for each, under a key that says all that the time depends on."""

from __future__ import annotations

import functools
import hashlib
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from pipeline.board import Device
from pipeline.executor import devices, far, parameters, processor
from pipeline.files import CACHE_VARIABLE, cache_folder, write_atomically
from pipeline.plans import StagePlan, TensorSpec
from pipeline.tvm_access import tvm, tvm_ffi

FORMAT = 2


class Made(msgspec.Struct, frozen=True):
    """A tensor that a group makes, as it lies in memory.

    Attributes
    ----------
    shape : tuple of int
    inner : bool
        Whether it is in the stage's own layout, and not in the model's.
    """

    shape: tuple[int, ...]
    inner: bool


class Record(msgspec.Struct, frozen=True):
    """What was measured.

    Attributes
    ----------
    key : str
        In full, for people, and should two keys ever have one hash.
    seconds : float
    made : tuple of Made
        Of a group, its outputs.
    crowded : float, optional
        Seconds of a group while the device's other cores work as hard, if it has any.
    """

    key: str
    seconds: float
    made: tuple[Made, ...] = ()
    crowded: float | None = None


class CostCache:
    """Records by key, in a folder that any number of processes may use at once.

    What cannot be read counts as not measured, and what cannot be written is not kept, both with a warning.

    Parameters
    ----------
    folder : Path or None
        None keeps nothing.
    fresh : bool
        Take nothing that was measured before, and write over it.
    """

    def __init__(self, folder: Path | None, *, fresh: bool = False) -> None:
        self._folder, self._fresh = folder, fresh

    @staticmethod
    def of_user(*, fresh: bool = False) -> CostCache:
        """Return the cache in the user's own folder; see `pipeline.files.cache_folder`."""
        return CostCache(cache_folder(), fresh=fresh)

    def get(self, key: str) -> Record | None:
        """Return what was measured for a key, if it was."""
        if self._folder is None or self._fresh:
            return None
        path = self._path(key)
        try:
            found = msgspec.json.decode(path.read_bytes(), type=Record)
        except FileNotFoundError:
            return None
        except (OSError, msgspec.MsgspecError) as error:
            _warn(f"the measured time in {str(path)!r} cannot be read ({error}); it is measured again")
            return None
        return found if found.key == key and found.seconds >= 0 else None

    def put(self, record: Record) -> None:
        """Keep a record."""
        if self._folder is None:
            return
        path = self._path(record.key)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            write_atomically(path, msgspec.json.encode(record) + b"\n")
        except OSError as error:
            _warn(f"measured times cannot be kept in {str(self._folder)!r}: {error.strerror}; set {CACHE_VARIABLE}")
            self._folder = None

    def _path(self, key: str) -> Path:
        digest = hashlib.sha256(key.encode()).hexdigest()
        # Not all in one folder, which grows with every model.
        return self._folder / f"costs-{FORMAT}" / digest[:2] / f"{digest[2:34]}.json"  # type: ignore[operator]


def place(device: Device, cores: int = 1) -> dict[str, object]:
    """Return what the times of a device depend on besides what runs there.

    Those of a device on another machine depend on that machine, and not on the address where it is reached.

    Parameters
    ----------
    device : Device
        One of another machine with its target.
    cores : int
        How many of its cores are used.
    """
    kind, name = device.kind, processor.full_name() if device.kind == "cpu" else ""
    if devices.elsewhere(device):
        where = far.preferred(device)
        kind, name = f"{where.scheme} {where.device}", far.machine(device)
    return {
        "kind": kind,
        "processor": name,
        "target": str(processor.target(device.target)),
        "cores": cores,
        "tvm": str(tvm.__version__),
        "kernels": kernels(),
    }


def key_of_group(where: Mapping[str, object], stage: StagePlan, module: Any, inner: Sequence[bool]) -> str:
    """Return the key of a fused group: its operators, attributes, shapes and element types, but no names.

    Parameters
    ----------
    where : mapping
        Of `place`.
    stage : StagePlan
        With the group's inputs and outputs.
    module : tvm.IRModule
    inner : sequence of bool
        For each input, whether it comes in the stage's own layout.
    """
    # Lifted, so that groups which differ in their weights only are equal.
    main, lifted = parameters.lift(module["main"])
    others = [function for variable, function in module.functions.items() if variable.name_hint != "main"]
    read = [f"{_shape(spec)}{' inner' if each else ''}" for spec, each in zip(stage.inputs, inner, strict=True)]
    group = {
        "structure": _hash(main),
        "functions": sorted(map(_hash, others)),
        "inputs": read,
        "outputs": [_shape(spec) for spec in stage.outputs],
        "parameters": [f"{array.dtype}{list(array.shape)}" for array in lifted.values()],
    }
    return _text({**group, **where})


def key_of_memory(where: Mapping[str, object], *memories: str) -> str:
    """Return the key of copying inside of a memory, or between two."""
    return _text({"copying": memories, **where})


@functools.cache
def kernels() -> str:
    """Return a digest of this package's own compiler: whoever changes how kernels are written measures anew."""
    root = Path(__file__).parent
    sources = [root / "build.py", *sorted((root / "schedules").rglob("*.py"))]
    digest = hashlib.sha256()
    for path in sources:
        digest.update(path.read_bytes() if path.exists() else b"")
    return digest.hexdigest()[:16]


def _hash(function: Any) -> str:
    return f"{tvm_ffi.structural_hash(function) & (1 << 64) - 1:016x}"


def _shape(spec: TensorSpec) -> str:
    return f"{spec.dtype}{list(spec.shape)}"


def _text(value: Mapping[str, object]) -> str:
    return msgspec.json.encode(value, order="sorted").decode()


def _warn(text: str) -> None:
    warnings.warn(text, RuntimeWarning, stacklevel=3)
