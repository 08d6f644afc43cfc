"""Database: tuning results in a JSON file, rewritten on improvement."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import msgspec

from pipeline.errors import TuningError
from pipeline.system.files import check_regular, write_atomically

FORMAT = 1

MARGIN = 0.98
"""Largest share of the rule's time worth being called faster."""


@dataclass(frozen=True, order=True)
class TuningKey:
    """Function and machine of a schedule, nothing else."""

    structure: str
    """Structural hash of the function."""
    shapes: str
    """Shapes of operands and result, for people, and should two structures ever have one hash."""
    target: str
    """Target as JSON."""
    cores: int
    """Cores that it may use."""
    tvm: str
    """Version that the schedule was found with."""


class TuningRecord(msgspec.Struct, frozen=True):
    """Best schedule of one function, with its times."""

    key: TuningKey
    name: str
    """The function's in the model that was tuned."""
    trials: int
    """Schedules measured so far."""
    rule_seconds: float
    """Least time of the function as it is built without tuning."""
    tuned_seconds: float | None = None
    """Least time with `trace`, measured in turns with the former; None if nothing faster was found."""
    trace: str | None = None
    """The schedule, in MetaSchedule's own JSON."""
    in_stage: bool = False
    """True if the two times were taken inside of a stage, and not on the function alone; only then it is used."""

    @property
    def faster(self) -> bool:
        """True if the schedule is to be used."""
        return self.in_stage and self.tuned_seconds is not None and self.tuned_seconds < MARGIN * self.rule_seconds


class _TuningFile(msgspec.Struct, frozen=True):
    soc_pipeline_tuning: int
    records: tuple[TuningRecord, ...]


class _TuningFormat(msgspec.Struct):
    soc_pipeline_tuning: int


class Database:
    """Records by key.

    `path`: file to which each change is written.
    """

    def __init__(self, records: Iterable[TuningRecord] = (), path: Path | None = None) -> None:
        self._records = {record.key: record for record in records}
        self._path = path

    @property
    def records(self) -> tuple[TuningRecord, ...]:
        """The records, in the order of their keys."""
        # Not in the order of discovery: a file under version control changes only where a record does.
        return tuple(self._records[key] for key in sorted(self._records))

    def get(self, key: TuningKey) -> TuningRecord | None:
        """Return a function's record, if tuned."""
        return self._records.get(key)

    def put(self, record: TuningRecord) -> None:
        """Replace a record and write the file."""
        self._records[record.key] = record
        # After each change, so that an interrupted search loses nothing.
        if self._path is not None:
            data = msgspec.json.encode(_TuningFile(FORMAT, self.records))
            write_atomically(self._path, msgspec.json.format(data, indent=1) + b"\n")

    @staticmethod
    def load(path: str | Path, *, create: bool = False) -> Database:
        """Load the database at `path`, which receives changes.

        With `create` a missing file stands for an empty database; its folder has to be there. Raises `TuningError` if
        it is missing, damaged, newer, or another kind of file.
        """
        file = Path(path)
        if create and not file.absolute().parent.is_dir():
            raise TuningError(f"cannot keep {str(path)!r}: there is no folder {str(file.absolute().parent)!r}")
        # Not written yet: a search that measures nothing leaves no file.
        if create and not file.exists():
            return Database(path=file)
        try:
            check_regular(file)
            data = file.read_bytes()
        except OSError as error:
            raise TuningError(
                f"cannot read the tuning database {str(path)!r}: {error.strerror}; make one with 'soc-pipeline tune'"
            ) from None
        return Database(_decode_file(data, str(path)).records, file)


def _decode_file(data: bytes, path: str) -> _TuningFile:
    remedy = "remove it and tune again, or name another file"
    # The version alone first: a newer file may have fields that cannot be decoded, but is not damaged.
    try:
        version = msgspec.json.decode(data, type=_TuningFormat).soc_pipeline_tuning
    except msgspec.MsgspecError as error:
        raise TuningError(f"{path!r} is not a tuning database: {error}; {remedy}") from None
    if version > FORMAT:
        raise TuningError(
            f"{path!r} has format {version}, newer than {FORMAT}, which this version reads; upgrade soc-pipeline"
        )
    try:
        return msgspec.json.decode(data, type=_TuningFile)
    except msgspec.MsgspecError as error:
        raise TuningError(f"the tuning database {path!r} is damaged: {error}; {remedy}") from None
