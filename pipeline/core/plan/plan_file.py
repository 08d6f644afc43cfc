"""Plan file: the fields of a plan as JSON."""

from __future__ import annotations

from typing import Any, TypeVar

import msgspec

from pipeline.core.plan.stage_options import rename_options
from pipeline.errors import PipelineError, PlanError

FORMAT = 2
"""Version of the JSON form; another one is refused, since its fields have other names."""

Value = TypeVar("Value")


def encode_plan(plan: object) -> bytes:
    """Return a plan as indented JSON."""
    return msgspec.json.format(msgspec.json.encode(plan), indent=1) + b"\n"


def decode_plan(data: bytes, origin: str, kind: type[Value]) -> Value:
    """Return the plan of class `kind` in `data`; errors call it `origin`."""
    try:
        # The version first: in another format, any other field may be of another type.
        version = msgspec.json.decode(data, type=_Version).format
        if version == 1:
            data = _upgrade_format_1(data)
        elif version != FORMAT:
            raise PlanError(
                f"{origin}: plan format {version}, but this version reads format {FORMAT}; "
                "use the release that wrote it, or plan again"
            )
        data = rename_old_options(data)
        plan = msgspec.json.decode(data, type=kind)
        # msgspec drops unknown fields without a word: compare what was written with what was understood.
        if unknown := _unknown_fields(msgspec.json.decode(data), msgspec.to_builtins(plan)):
            raise PlanError(f"{origin}: unknown field {unknown[0]!r}; correct or remove it")
    except msgspec.MsgspecError as error:
        # Errors of the plan's own checks arrive wrapped.
        reason = error.__cause__ if isinstance(error.__cause__, PipelineError) else error
        raise PlanError(f"{origin}: not a plan: {reason}; make one with 'soc-pipeline plan'") from None
    except PipelineError:
        raise
    except (ValueError, OverflowError, RecursionError) as error:
        # Of values that the decoder does not bound: thousands of digits, no UTF-8, nested without end.
        raise PlanError(f"{origin}: not a plan: {error}; make one with 'soc-pipeline plan'") from None
    return plan


def rename_old_options(data: bytes) -> bytes:
    """Return JSON with the present names of stages' and builds' options."""
    if not any(name in data for name in (b'"winograd"', b'"arithmetic"')):
        return data

    def rename(value: Any, key: str = "") -> Any:
        if isinstance(value, list):
            return [rename(item) for item in value]
        if not isinstance(value, dict):
            return value
        content = {name: rename(item, name) for name, item in value.items()}
        return rename_options(content) if key in {"options", "numerics"} else content

    return msgspec.json.encode(rename(msgspec.json.decode(data)))


def _upgrade_format_1(data: bytes) -> bytes:
    """Rename the renamed field of the first format."""
    content = msgspec.json.decode(data)
    for stage in content["stages"] if isinstance(content.get("stages"), list) else ():
        if isinstance(stage, dict) and "moving" in stage:
            stage["transfer_s"] = stage.pop("moving")
    return msgspec.json.encode({**content, "format": FORMAT})


def _unknown_fields(content: Any, fields: Any, prefix: str = "") -> list[str]:
    """Return written but unknown fields, such as misspelt ones."""
    if isinstance(content, dict):
        paths = [f"{prefix}{name}" for name in content if name not in fields]
        pairs = [(f"{prefix}{name}.", name) for name in content if name in fields]
    elif isinstance(content, list):
        paths, pairs = [], [(f"{prefix}{number}.", number) for number in range(len(content))]
    else:
        return []
    return paths + [unknown for path, key in pairs for unknown in _unknown_fields(content[key], fields[key], path)]


class _Version(msgspec.Struct):
    format: int = 0
