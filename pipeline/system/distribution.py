"""Distributions: the installed one, and the packages' names."""

from __future__ import annotations

import importlib.util
import re
import sys
from collections.abc import Iterator
from importlib.abc import MetaPathFinder
from pathlib import Path

from pipeline.errors import MissingExtra, ShadowedPackage

FULL, RUNTIME = "soc-stages", "soc-stages-runtime"
"""Distribution that reads, plans, builds and runs models, and the one that only runs bundles."""

REMEDY = f"install {FULL} from this project's wheels or source instead"
"""Advice to users of the runtime distribution."""

_ROOT = Path(__file__).parents[2]

IS_FULL = (_ROOT / "pipeline" / "split").is_dir()
"""True for the complete distribution, False for the one that only runs bundles."""


def install_command(extra: str) -> str:
    """Return the install command for an extra's packages.

    The command has the packages' own names.  It is right for both distributions, and never has pip look for this
    project's name on an index where it may be somebody else's.
    """
    if packages := dict.fromkeys(_extra_packages(FULL if IS_FULL else RUNTIME, extra)):
        return "pip install " + " ".join(f"'{package}'" for package in packages)
    # Run from its source, without being installed; or the runtime lacks the extra.
    return f"install the packages of the extra '{extra}', which {FULL}'s pyproject.toml lists"


def _extra_packages(distribution: str, extra: str) -> Iterator[str]:
    """Yield the packages of an extra, nested extras included."""
    # Not before: it takes as long to import as a bundle to load.
    from importlib import metadata

    try:
        texts = metadata.requires(distribution) or []
    except metadata.PackageNotFoundError:
        return
    for text in texts:
        requirement, _, marker = text.partition(";")
        if not re.search(rf"""extra == (["']){re.escape(extra)}\1""", marker):
            continue
        name, _, more = requirement.strip().partition("[")
        if name not in (FULL, RUNTIME):
            yield requirement.strip()
            continue
        for other_extra in more.partition("]")[0].split(","):
            yield from _extra_packages(distribution, other_extra)


def check_names() -> None:
    """Check the origin of the project's other package.

    Raises `ShadowedPackage` if another package of that name comes first.
    """
    spec = importlib.util.find_spec("boards")
    origin = None if spec is None else spec.origin
    if origin is None or Path(origin).parent.parent.resolve() != _ROOT.resolve():
        raise ShadowedPackage("boards", origin or "nothing", str(_ROOT / "boards"))


class _MissingPart(MetaPathFinder):
    """Finder that names the distribution of a missing module."""

    def find_spec(self, name: str, *_: object) -> None:
        """Refuse modules of the complete distribution."""
        if name.startswith("pipeline."):
            raise MissingExtra(f"{name} is not in {RUNTIME}, which only loads and streams bundles; {REMEDY}")


if not IS_FULL:
    # Last: only what no other finder has comes here.
    sys.meta_path.append(_MissingPart())
