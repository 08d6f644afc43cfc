"""Loads and runs bundles whose manifests are changed and have the fitting checksum; run as a process of its own.

Arguments: the bundle, a scratch folder, the first seed, and how many.  Prints a line for each seed that met something
else than this package's own errors, and in the end how many were loaded.
"""

from __future__ import annotations

import copy
import hashlib
import json
import random
import resource
import shutil
import sys
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

import pipeline
from pipeline.errors import PipelineError

NUMBERS = (
    0, 1, -1, 2, 3, 63, 64, 1 << 16, 1 << 31, -(1 << 31), 10**9, 1 << 40, 1 << 53, 1 << 62, (1 << 63) - 1, -(1 << 63),
    1 << 63, (1 << 64) - 1, 0.5, 1e9, 1e300, -1e-300, 1e18,
)  # fmt: skip
TEXTS = (
    "", ".", "..", "x", "float16", "int8", "O", "V1000000000", "(2,", "f4,f4", "M8[s]", "S5", "bool", ",", "a" * 5000,
    "\u0000", "\ud800", "null", "simulated", "cuda", "vta", "python", "manifest.json", "stage0.so", "stage1.parameters",
)  # fmt: skip
HUGE = "@huge@"
DEEP = "@deep@"
MEMORY = 4 << 30


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Yield the path of each value inside a JSON value."""
    if path:
        yield path
    if isinstance(value, dict):
        for key in value:
            yield from places(value[key], (*path, key))
    elif isinstance(value, list):
        for number in range(len(value)):
            yield from places(value[number], (*path, number))


def change_value(rng: random.Random, value: Any) -> Any:
    """Return something else instead of a value."""
    if isinstance(value, list) and rng.random() < 0.7:
        items = list(value)
        change = rng.choice(("shuffle", "drop", "double", "reverse", "empty", "many"))
        if change == "drop" and items:
            del items[rng.randrange(len(items))]
        elif change == "double" and items:
            items.insert(rng.randrange(len(items)), copy.deepcopy(rng.choice(items)))
        elif change == "many" and items:
            items += [copy.deepcopy(rng.choice(items)) for _ in range(100)]
        elif change == "shuffle":
            rng.shuffle(items)
        return [] if change == "empty" else items[::-1] if change == "reverse" else items
    if isinstance(value, bool | None):
        return rng.choice((True, False, None, 1, "x", [], {}))
    if isinstance(value, int | float) and rng.random() < 0.9:
        return rng.choice((*NUMBERS, value + 1, value - 1, -value, value * 2))
    if isinstance(value, str) and rng.random() < 0.9:
        return rng.choice((*TEXTS, value[:-1], value + "x", value.upper()))
    return rng.choice((None, True, 0, "", [], {}, [[]], {"x": 1}, HUGE, DEEP, *NUMBERS))


def mutate(rng: random.Random, content: Any) -> bytes:
    """Return a manifest with a few values changed, removed, or taken from elsewhere."""
    content = copy.deepcopy(content)
    for _ in range(rng.choice((1, 1, 1, 2, 4))):
        *way, last = rng.choice(list(places(content)))
        container = content
        for step in way:
            container = container[step]
        draw = rng.random()
        if draw < 0.1:
            del container[last]
        elif draw < 0.25:
            value = content
            for step in rng.choice(list(places(content))):
                value = value[step]
            container[last] = copy.deepcopy(value)
        else:
            container[last] = change_value(rng, container[last])
    text = json.dumps(content, ensure_ascii=True)
    text = text.replace(f'"{HUGE}"', "9" * 4301).replace(f'"{DEEP}"', "[" * 5000 + "]" * 5000)
    return text.encode() if rng.random() < 0.97 else text.encode().replace(b"stage", b"st\xffge", 1)


def attempt(folder: Path) -> bool:
    """Load and run a bundle; return whether it could be loaded."""
    try:
        running = pipeline.load(folder, stage_timeout=20.0)
    except PipelineError as error:
        if len(str(error).splitlines()) != 1:
            raise ValueError(f"a message of several lines: {error}") from error
        return False
    try:
        specs = running.plan.inputs
        if sum(spec.nbytes for spec in specs) < 1 << 24:
            running.submit({spec.name: np.zeros(spec.shape, spec.dtype) for spec in specs}).result(30)
    except PipelineError:
        pass
    finally:
        running.close(timeout=20)
    return True


def write_mutation(folder: Path, seed: int, content: Any) -> None:
    """Write a changed manifest, with the checksum that belongs to it."""
    data = mutate(random.Random(seed), content)
    (folder / "manifest.json").write_bytes(data)
    (folder / "manifest.sha256").write_text(f"{hashlib.sha256(data).hexdigest()}  manifest.json\n")


def main() -> None:
    """Try the seeds."""
    source, folder, first, count = Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4])
    resource.setrlimit(resource.RLIMIT_DATA, (MEMORY, MEMORY))
    shutil.copytree(source, folder)
    content = json.loads((source / "manifest.json").read_bytes())
    loaded = 0
    for seed in range(first, first + count):
        write_mutation(folder, seed, content)
        try:
            loaded += attempt(folder)
        except BaseException as error:  # noqa: BLE001 - any is what is looked for
            frame = traceback.extract_tb(error.__traceback__)[-1]
            print(f"{seed}: {type(error).__name__}: {str(error)[:200]} ({frame.filename}:{frame.lineno})", flush=True)
    print(f"loaded {loaded} of {count}")


if __name__ == "__main__":
    main()
