"""Stage titles: short, readable names of stages, from the model's own."""

from __future__ import annotations

import re
from collections.abc import Sequence
from os.path import commonprefix

from pipeline.core.plan.stage_plan import StagePlan

LONGEST = 24
"""Most characters of a title."""

_BETWEEN = ".."


def stage_titles(stages: Sequence[StagePlan]) -> tuple[str, ...]:
    """Return a unique title for each stage, such as ``layer1..layer2.0``.

    It has the modules of the first and the last operator, as deep as neighbours differ.
    """
    ends = [[_path(name) for name in stage.operators] for stage in stages]
    # Modules around all operators tell no stages apart.
    paths = [path for pair in ends for path in pair]
    skip = min([len(commonprefix(paths)), *(len(path) - 1 for path in paths)])  # noqa: RUF071 - of lists
    titles: list[str] = []
    for index, (stage, pair) in enumerate(zip(stages, ends, strict=True)):
        if not pair:
            titles.append(stage.name)
            continue
        before = ends[index - 1][-1:] if index else []
        after = ends[index + 1][:1] if index + 1 < len(ends) else []
        title = _fit(list(dict.fromkeys((_label(pair[0], before, skip), _label(pair[-1], after, skip)))))
        # Two stages of one module, or of names that differ in their middle only.
        titles.append(title if title not in titles else f"{title[: LONGEST - 4]}~{index}")
    return tuple(titles)


def _path(name: str) -> list[str]:
    """Return an operator's modules, outermost first, and itself."""
    path: list[str] = []
    for part in filter(None, re.split(r"[/.]", name)):
        if path and part.isdigit():
            path[-1] += f".{part}"
        # PyTorch's exporter repeats a module's name in its children's: layer1/layer1.0.
        elif not path or part != path[-1]:
            path.append(part)
    return path or [name]


def _label(path: Sequence[str], neighbours: Sequence[Sequence[str]], skip: int) -> str:
    """Return the outermost modules of `path` that are not those of a neighbour."""
    depths = range(skip + 1, len(path) + 1)
    depth = next((depth for depth in depths if path[:depth] not in [other[:depth] for other in neighbours]), len(path))
    return ".".join(path[skip:depth])


def _fit(labels: Sequence[str]) -> str:
    room = (LONGEST - len(_BETWEEN) * (len(labels) - 1)) // len(labels)
    spare = sum(max(room - len(label), 0) for label in labels)
    return _BETWEEN.join(_shorten(label, room + spare) for label in labels)


def _shorten(label: str, room: int) -> str:
    if len(label) <= room:
        return label
    # The end tells more: numbers and kinds are there.
    tail = (room - 1) * 2 // 3
    return f"{label[: room - 1 - tail]}…{label[-tail:]}"
