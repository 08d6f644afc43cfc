"""Cost cache: measurements on disk, one JSON file per complete key."""

from __future__ import annotations

import functools
import hashlib
import math
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from pipeline.core.board.board import Board, Device
from pipeline.core.numerics import EXACT, Numerics
from pipeline.core.plan.plan import StagePlan, TensorSpec
from pipeline.executor import build, devices, host_target, parameters
from pipeline.executor.stage_code import StageCode
from pipeline.measure import remote_rates
from pipeline.system.files import CACHE_VARIABLE, cache_folder, check_regular, write_atomically
from pipeline.tvm.access import tvm, tvm_ffi

FORMAT = 3
"""Part of the folder's name: records of another format stay unread."""

COMPILER = Path(build.__file__).parent
"""The folder with the sources of this package's own compiler."""


class OutputLayout(msgspec.Struct, frozen=True):
    """Shape and memory layout of a group's tensor."""

    shape: tuple[int, ...]
    inner: bool
    """True if it is in the stage's own layout, and not in the model's."""


class TimeRecord(msgspec.Struct, frozen=True):
    """One measured time."""

    key: str
    """Key in full, for people, and should two keys ever have one hash."""
    seconds: float
    outputs: tuple[OutputLayout, ...] = ()
    contended: float | None = None
    """Seconds of a group while the device's other cores work as hard, if it has any."""


class RefusalRecord(msgspec.Struct, frozen=True):
    """Answer of a runtime about its support of a model."""

    key: str
    reason: str
    """Reason for a refusal; empty if it runs the group."""


class ImportRecord(msgspec.Struct, frozen=True):
    """Times of a model's groups by a vendor's tool."""

    key: str
    tool: str
    seconds: tuple[float | None, ...]
    """Seconds of each group; None where the device cannot run it."""


class QuoteRecord(msgspec.Struct, frozen=True):
    """Answer of a vendor's compiler, see `pipeline.measure.quotes.Quote`."""

    key: str
    answer: str
    """Its JSON."""


Record = TypeVar("Record", TimeRecord, RefusalRecord, ImportRecord, QuoteRecord)


class CostCache:
    """Records by key, in a folder shared between processes.

    A record that cannot be read counts as not measured, and one that cannot be written is not kept, both with a
    warning. Without a folder nothing is kept; a `fresh` one takes nothing that was measured before, and writes over it.
    """

    def __init__(self, folder: Path | None, *, fresh: bool = False) -> None:
        self._folder, self._ignores_records = folder, fresh

    @staticmethod
    def of_user(*, fresh: bool = False) -> CostCache:
        """Return the user's cache; see `pipeline.system.files.cache_folder`."""
        return CostCache(cache_folder(), fresh=fresh)

    def get(self, key: str) -> TimeRecord | None:
        """Return a key's measured time, if any."""
        record = self._read(key, TimeRecord)
        if record is None:
            return None
        # Others divide by them; what takes no time was not measured.
        times = (record.seconds, record.seconds if record.contended is None else record.contended)
        return record if all(0 < seconds < math.inf for seconds in times) else None

    def get_refusal(self, key: str) -> RefusalRecord | None:
        """Return a key's answer, if any."""
        return self._read(key, RefusalRecord)

    def get_import(self, key: str) -> ImportRecord | None:
        """Return imported times, if any; nothing here could measure them afresh."""
        return self._read(key, ImportRecord)

    def get_quote(self, key: str) -> QuoteRecord | None:
        """Return a compiler's answer, if any."""
        return self._read(key, QuoteRecord)

    def _read(self, key: str, kind: type[Record]) -> Record | None:
        if self._folder is None or (self._ignores_records and kind is not ImportRecord):
            return None
        path = self._path(key)
        try:
            check_regular(path)
            record = msgspec.json.decode(path.read_bytes(), type=kind)
        except FileNotFoundError:
            return None
        except (OSError, msgspec.MsgspecError) as error:
            _warn(f"the measured time in {str(path)!r} cannot be read ({error}); it is measured again")
            return None
        # Two keys may have one hash, and a damaged file may be valid JSON.
        return record if record.key == key else None

    def put(self, record: TimeRecord | RefusalRecord | ImportRecord | QuoteRecord) -> None:
        """Keep a record."""
        if self._folder is None:
            return
        path = self._path(record.key)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            write_atomically(path, msgspec.json.encode(record) + b"\n")
        except OSError as error:
            # Said once, and not for each of hundreds of records: the folder is not tried again.
            _warn(f"measured times cannot be kept in {str(self._folder)!r}: {error.strerror}; set {CACHE_VARIABLE}")
            self._folder = None

    def _path(self, key: str) -> Path:
        digest = hashlib.sha256(key.encode()).hexdigest()
        # Not all in one folder, which grows with every model.
        return self._folder / f"costs-{FORMAT}" / digest[:2] / f"{digest[2:34]}.json"  # type: ignore[operator]


def describe_processor(device: Device, cores: int = 1, numerics: Numerics = EXACT) -> dict[str, object]:
    """Return a device's key part: kind, processor, target, compiler versions.

    The versions of a device on another machine depend on that machine, and not on the address where it is reached.
    Exact `numerics` are left out, as from records of earlier versions.
    """
    kind, name = device.kind, host_target.full_name() if device.capabilities.is_processor else ""
    if devices.is_remote(device):
        address = remote_rates.preferred_address(device)
        kind, name = f"{address.scheme} {address.device}", remote_rates.describe_machine(device)
    return {
        "kind": kind,
        "processor": name,
        "target": str(device.target if devices.compiler(device) else host_target.target(device.target)),
        "cores": cores,
        # Another release may compile the same kernel to other instructions.
        "tvm": str(tvm.__version__),
        "kernels": kernels_digest(),
        **({} if numerics == EXACT else {"numerics": repr(numerics)}),
    }


def key_of_group(
    processor: Mapping[str, object], stage: StagePlan, module: Any, in_stage_layout: Sequence[bool]
) -> str:
    """Return a fused group's key: operators, attributes, shapes, dtypes, no names.

    `in_stage_layout` flags inputs that come in the stage's own layout.
    """
    # Without their weights, so that groups which differ in their weights only are equal.
    main, arrays = parameters.lift(module["main"])
    # By content, in an order of their own: their names and places in the module say nothing.
    callees = [function for variable, function in module.functions.items() if variable.name_hint != "main"]
    inputs = [
        f"{_shape(spec)}{' inner' if flag else ''}" for spec, flag in zip(stage.inputs, in_stage_layout, strict=True)
    ]
    group = {
        "structure": _hash(main),
        "functions": sorted(map(_hash, callees)),
        "inputs": inputs,
        "outputs": [_shape(spec) for spec in stage.outputs],
        "parameters": [f"{array.dtype}{list(array.shape)}" for array in arrays.values()],
    }
    return _text({**group, **processor})


def key_of_span(device: Device, code: StageCode, **conditions: object) -> str:
    """Return the key of a foreign runtime's stage: model, weights, runtime.

    Conditions of the measurement are such as the number of threads.
    """
    return _text(
        {
            "model": hashlib.sha256(code.module()).hexdigest(),
            "kind": device.kind,
            "runtime": code.runtime_version,
            "target": repr(device.target),
            "processor": host_target.full_name(),
            **conditions,
        }
    )


def key_of_refusal(model: bytes, device: Device, fingerprint: str) -> str:
    """Return the key of a device's answer about a model."""
    digest = hashlib.sha256(model).hexdigest()
    return _text({"question": digest, "kind": device.kind, "runtime": fingerprint, "target": repr(device.target)})


def key_of_quote(model: bytes, command: Sequence[str]) -> str:
    """Return the key of a compiler's answer about a model: both and the program that asks."""
    program = Path(command[1]).read_bytes()
    digests = [hashlib.sha256(content).hexdigest() for content in (model, program)]
    return _text({"quote": digests, "python": command[0], "arguments": command[4:]})


def key_of_import(graph_digest: str, board: Board, device: Device) -> str:
    """Return the key of a model's imported times, the same for equal devices of a board."""
    # Options select one of several, such as the cores of an NPU.
    target = {key: value for key, value in (device.target or {}).items() if key != "options"}
    return _text({"import": graph_digest, "board": board.name, "kind": device.kind, "target": target})


def key_of_memory(processor: Mapping[str, object], *memories: str) -> str:
    """Return the key of copying within or between memories."""
    return _text({"copying": memories, **processor})


# Once per process, since it reads the sources of all kernels.
@functools.cache
def kernels_digest(root: Path = COMPILER) -> str:
    """Return a digest of this package's kernels: changes cause new measurements."""
    digest = hashlib.sha256()
    for path in [root / "build.py", root / "executable.py", *sorted((root / "kernels").rglob("*.py"))]:
        digest.update(path.read_bytes())
    return digest.hexdigest()[:16]


def _hash(function: Any) -> str:
    # A signed number in 64 bits; unsigned, it always has 16 digits.
    return f"{tvm_ffi.structural_hash(function) & (1 << 64) - 1:016x}"


def _shape(spec: TensorSpec) -> str:
    return f"{spec.dtype}{list(spec.shape)}"


def _text(value: Mapping[str, object]) -> str:
    # Sorted, so that equal facts are one text, and so one file.
    return msgspec.json.encode(value, order="sorted").decode()


def _warn(text: str) -> None:
    # Behind this function and the method of the cache.
    warnings.warn(text, RuntimeWarning, stacklevel=3)
