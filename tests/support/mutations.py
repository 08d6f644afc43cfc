"""Seeded damage to binary files, and the readers' duty: a model, or one of our own errors, soon."""

from __future__ import annotations

import copy
import io
import json
import random
import struct
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pipeline
from pipeline.errors import PipelineError
from tests.support.time_limits import time_limit

LIMIT = 60.0
"""Seconds that reading a damaged file may take; all take less than one."""

_NUMBERS = (0, 1, -1, 2, 127, 128, 255, 256, 2**15, 2**16, 2**24, 2**31 - 1, -(2**31))


def damage(data: bytes, seed: int) -> bytes:
    """Return `data` with a few bytes changed, left out, repeated or moved, or without its end."""
    generator = random.Random(seed)
    result = bytearray(data)
    for _ in range(generator.choice((1, 1, 1, 2, 5))):
        generator.choice(_DAMAGES)(generator, result)
    return bytes(result)


def _flip(generator: random.Random, data: bytearray) -> None:
    if data:
        data[generator.randrange(len(data))] ^= 1 << generator.randrange(8)


def _overwrite(generator: random.Random, data: bytearray) -> None:
    if data:
        data[generator.randrange(len(data))] = generator.choice((0, 1, 127, 128, 255, generator.randrange(256)))


def _number(generator: random.Random, data: bytearray) -> None:
    if len(data) >= 8:
        start = generator.randrange(len(data) // 4) * 4
        data[start : start + 4] = struct.pack("<i", generator.choice(_NUMBERS))


def _cut(generator: random.Random, data: bytearray) -> None:
    del data[generator.randrange(len(data) + 1) :]


def _leave_out(generator: random.Random, data: bytearray) -> None:
    start = generator.randrange(len(data) + 1)
    del data[start : start + generator.choice((1, 4, 30))]


def _repeat(generator: random.Random, data: bytearray) -> None:
    start, length = generator.randrange(len(data) + 1), generator.choice((1, 4, 30))
    data[start:start] = data[start : start + length]


# Most often what leaves a file's structure as it is.
_DAMAGES: tuple[Callable[[random.Random, bytearray], None], ...] = (
    *(_flip, _flip, _overwrite, _overwrite, _number, _number, _number),
    *(_cut, _leave_out, _repeat),
)


def damaged_archive(data: bytes, seed: int) -> bytes:
    """Return a ZIP archive with one of its members damaged, missing or empty, and with checksums that fit."""
    generator = random.Random(seed)
    members = read_archive(data)
    name = generator.choice([each for each in members for _ in range(1 + 8 * each.endswith(".json"))])
    action = generator.choice(("damage", "damage", "damage", "damage", "drop", "empty"))
    if action == "damage":
        members[name] = damage(members[name], seed)
    elif action == "empty":
        members[name] = b""
    else:
        del members[name]
    return write_archive(members)


def damaged_fields(data: bytes, seed: int) -> bytes:
    """Return a ZIP archive with some values of one of its JSON members changed, so that it remains JSON."""
    generator = random.Random(seed)
    members = read_archive(data)
    # The longer a member, the more there is to change.
    names = [name for name in members if name.endswith(".json")]
    name = generator.choices(names, [len(members[name]) for name in names])[0]
    return write_archive({**members, name: _damage_fields(members[name], generator)})


def damaged_json(data: bytes, seed: int) -> bytes:
    """Return JSON with some of its values changed, so that it remains JSON."""
    return _damage_fields(data, random.Random(seed))


def _damage_fields(data: bytes, generator: random.Random) -> bytes:
    document = json.loads(data)
    for _ in range(generator.choice((1, 1, 1, 2, 3))):
        if positions := _positions(document):
            _change_value(generator, positions)
    return json.dumps(document).encode()


def _positions(value: Any) -> list[tuple[Any, Any]]:
    """Return each container inside of a JSON value, with each of its keys or indices."""
    keys = list(value) if isinstance(value, dict) else list(range(len(value))) if isinstance(value, list) else []
    return [(value, key) for key in keys] + [position for key in keys for position in _positions(value[key])]


def _change_value(generator: random.Random, positions: list[tuple[Any, Any]]) -> None:
    (container, key), (other_container, other_key) = generator.choice(positions), generator.choice(positions)
    action = generator.choice(("replace", "replace", "copy", "copy", "remove", "rename"))
    if action == "replace":
        container[key] = generator.choice(_VALUES)
    elif action == "copy":
        container[key] = copy.deepcopy(other_container[other_key])
    elif action == "rename" and isinstance(container, dict) and isinstance(other_key, str):
        container[other_key] = container.pop(key)
    else:
        del container[key]


_VALUES: tuple[Any, ...] = (0, 1, -1, 7, 2**31, 2**63 - 1, -(2**63), 1.5, None, True, "", "x", "2*s0", [], {}, [0])


def read_archive(data: bytes) -> dict[str, bytes]:
    """Return the members of a ZIP archive."""
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def write_archive(members: Mapping[str, bytes]) -> bytes:
    """Return a ZIP archive."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name, content in members.items():
            # An entry of its own has no time of day, so that equal members give equal archives.
            archive.writestr(zipfile.ZipInfo(name), content)
    return buffer.getvalue()


def check(path: Path, data: bytes, seed: int, **options: Any) -> bool:
    """Read a damaged file, or the parameters in one; return whether it was read all the same."""
    path.write_bytes(data)
    try:
        with time_limit(LIMIT):
            pipeline.read(**{"model": path, **options})
    except PipelineError:
        return False
    except BaseException as error:
        raise AssertionError(f"seed {seed}: {type(error).__name__}: {error}") from error
    return True
