"""Card file: a model card written by hand, or kept in a model's metadata."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from pipeline.core.model_card import TASKS, ModelCard, Preparation
from pipeline.core.plan.stage_plan import TensorSpec
from pipeline.errors import InputError, near, reason
from pipeline.system.files import check_regular

CARD_KEY = "soc_pipeline.card"
"""Key of a model's metadata with its card, as JSON."""

LARGEST = 1 << 20
"""Upper bound on a file of labels or a card in bytes: names of 20,000 classes take a third of it."""

TENSOR_DTYPES = ("float32", "float16", "int8", "uint8", "int16", "uint16", "int32", "int64", "bool")
"""Dtypes of a compiled file's tensors."""

Table = TypeVar("Table", bound=msgspec.Struct)


class _CardFile(msgspec.Struct, forbid_unknown_fields=True):
    task: str = ""
    labels: list[str] | str = ""
    decoder: str = ""
    parameters: dict[str, Any] = {}
    preparation: dict[str, Any] = {}
    states: dict[str, str] = {}
    compiled: dict[str, Any] = {}


class _Tensor(msgspec.Struct, forbid_unknown_fields=True):
    name: str
    shape: list[int]
    dtype: str = "float32"


class CompiledTable(msgspec.Struct, forbid_unknown_fields=True):
    """Table ``compiled`` of a card: what a compiled file does not say itself."""

    chip: str = ""
    ms: float = 0.0
    """Measured time of a frame."""
    inputs: list[_Tensor] = []
    outputs: list[_Tensor] = []

    def specs(self, name: str) -> tuple[TensorSpec, ...]:
        """Return the tensors under ``inputs`` or ``outputs``."""
        return tuple(TensorSpec(row.name, tuple(row.shape), row.dtype) for row in getattr(self, name))


def read_compiled_table(path: Path) -> CompiledTable:
    """Read the table of a card of TOML; raises as `read_card`."""
    try:
        table = convert_table(_read_table(path).get("compiled", {}), CompiledTable, "compiled.")
    except InputError as error:
        raise InputError(f"the card {str(path)!r}: {error}") from None
    for row in (*table.inputs, *table.outputs):
        if not row.shape or min(row.shape) < 1 or row.dtype not in TENSOR_DTYPES:
            raise InputError(
                f"the card {str(path)!r}: {row.name!r} is {row.dtype}{row.shape}; give whole numbers above 0 as shape, "
                f"and one of {', '.join(TENSOR_DTYPES)} as dtype"
            )
    return table


def read_card(path: str | Path) -> ModelCard:
    """Read a card of TOML.

    Raises `InputError` if it is missing, no TOML, or has an unknown key or an impossible value.
    """
    path = Path(path)
    return convert_card(_read_table(path), f"the card {str(path)!r}", path.name, path.parent)


def _read_table(path: Path) -> dict[str, Any]:
    text = read_text(path, "card")
    try:
        table: dict[str, Any] = msgspec.toml.decode(text)
    except (msgspec.DecodeError, ValueError, RecursionError) as error:  # a number of thousands of digits, too
        raise InputError(f"the card {str(path)!r} is no TOML: {reason(error)}") from None
    return table


def read_labels(path: str | Path) -> tuple[str, ...]:
    """Read names of classes, one per line; `InputError` without any."""
    # An editor may have left blank lines at the end.
    labels = tuple(line.strip() for line in read_text(Path(path), "labels").rstrip().splitlines())
    if not labels:
        raise InputError(f"the labels {str(path)!r} are empty; write one name per line")
    return labels


def read_text(path: Path, noun: str) -> str:
    """Read a small text file; `InputError` if it is none."""
    try:
        check_regular(path)
        with path.open("rb") as stream:
            data = stream.read(LARGEST + 1)
        if len(data) > LARGEST:
            raise InputError(f"the {noun} {str(path)!r} are more than {LARGEST >> 20} MiB, and hardly {noun}")
        return data.decode()
    except OSError as error:
        raise InputError(f"no {noun} in {str(path)!r}: {error.strerror or error}") from None
    except UnicodeDecodeError:
        raise InputError(f"the {noun} {str(path)!r} is no text in UTF-8") from None


def decode_card(text: str, origin: str) -> ModelCard:
    """Decode a card of JSON, as `encode_card` writes it; raises as `read_card`."""
    try:
        table = msgspec.json.decode(text)
    except (msgspec.DecodeError, ValueError, RecursionError) as error:
        raise InputError(f"the card in {origin} is no JSON: {reason(error)}") from None
    return convert_card(table, f"the card in {origin}", origin)


def encode_card(card: ModelCard) -> str:
    """Encode a card for a model's metadata, without guesses and origins."""
    fields = msgspec.to_builtins(card)
    origins = fields.pop("origins", {})
    guessed = {name for name, origin in origins.items() if origin.startswith("guess")}
    fields["preparation"] = _without(fields.get("preparation", {}), "preparation", guessed)
    fields["parameters"] = _without(fields.get("parameters", {}), "parameters", guessed)
    return msgspec.json.encode(
        {name: value for name, value in fields.items() if value and name not in guessed}
    ).decode()


def _without(values: Mapping[str, Any], field: str, guessed: set[str]) -> dict[str, Any]:
    return {name: value for name, value in values.items() if f"{field}.{name}" not in guessed}


def convert_card(table: Any, subject: str, origin: str, folder: Path | None = None) -> ModelCard:
    """Return the card of a decoded file.

    Raises `InputError` if a key is unknown, or a value impossible. `subject` names the file in messages, `origin` the
    card's origins. Labels may be a file in `folder`; without it, they must be a list.
    """
    try:
        written = convert_table(table, _CardFile, "")
        # One number stands for all channels.
        rules = {
            name: [value] if name in ("mean", "std") and isinstance(value, int | float) else value
            for name, value in written.preparation.items()
        }
        preparation = convert_table(rules, Preparation, "preparation.")
        labels = _check_fields(written, folder)
    except InputError as error:
        raise InputError(f"{subject}: {error}") from None
    return ModelCard.of(
        origin,
        task=written.task,
        labels=labels,
        decoder=written.decoder,
        parameters=written.parameters,
        states=written.states,
        preparation={name: getattr(preparation, name) for name in rules},
    )


def _check_fields(written: _CardFile, folder: Path | None) -> tuple[str, ...]:
    """Return the labels; raise `InputError` for impossible fields."""
    if written.task and written.task not in TASKS:
        raise InputError(f"task is {written.task!r}; it must be one of {', '.join(TASKS)}")
    if not isinstance(written.labels, str):
        return tuple(written.labels)
    if written.labels and folder is None:
        raise InputError("labels must be a list here, not the name of a file")
    return read_labels(folder / written.labels) if folder and written.labels else ()


def convert_table(table: Any, kind: type[Table], prefix: str) -> Table:
    """Return a decoded table as a struct; `InputError` names its wrong key."""
    names = [field.name for field in msgspec.structs.fields(kind)]
    for key in table if isinstance(table, Mapping) else ():
        if key not in names:
            raise InputError(f"unknown key '{prefix}{key}'; there are {', '.join(names)}{near(str(key), names)}")
    try:
        return msgspec.convert(table, kind)
    except msgspec.ValidationError as error:
        raise describe_mistake(error, prefix) from None


def describe_mistake(error: msgspec.ValidationError, prefix: str = "") -> InputError:
    """Return the error of a value in our words, with its key."""
    # Errors of the card's own checks arrive wrapped.
    if isinstance(error.__cause__, InputError):
        return error.__cause__
    problem, _, place = str(error).replace("`", "").partition(" - at $")
    key = f"{prefix}{place.lstrip('.')}" or "the card"
    return InputError(f"{key}: {problem[:1].lower()}{problem[1:]}")
