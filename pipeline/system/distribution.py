"""Distributions: the installed one, its requirements, and the packages' names."""

from __future__ import annotations

import importlib.util
import re
import sys
from collections.abc import Iterator
from importlib.abc import MetaPathFinder
from pathlib import Path
from typing import Any

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

    It has their own names. That is right for both distributions, and never has pip look for this project's name on an
    index where it may be somebody else's.
    """
    if packages := dict.fromkeys(_extra_packages(extra)):
        return "pip install " + " ".join(f"'{package}'" for package in packages)
    # The runtime lacks the extra, or nothing is installed.
    return f"install the packages of the extra '{extra}', which {FULL}'s pyproject.toml lists"


def requirements(root: Path = _ROOT) -> list[str]:
    """List the requirements of this distribution and its extras.

    A source tree's own ``pyproject.toml`` comes first. The tree may not be installed, or under an earlier name.
    The form is that of `importlib.metadata.requires`.

    Parameters
    ----------
    root : Path
        Folder of the package `pipeline`.

    Raises
    ------
    importlib.metadata.PackageNotFoundError
        If it is neither a source tree nor installed.
    """
    # Not before: it takes as long to import as a bundle to load.
    from importlib import metadata

    import msgspec

    file = root / "pyproject.toml"
    project: dict[str, Any] = msgspec.toml.decode(file.read_bytes()).get("project", {}) if file.is_file() else {}
    if project.get("name") not in (FULL, RUNTIME):
        return metadata.requires(FULL if IS_FULL else RUNTIME) or []
    texts: list[str] = list(project["dependencies"])
    for extra, needs in project["optional-dependencies"].items():
        for need in needs:
            package, _, marker = need.partition(";")
            condition = f"({marker.strip()}) and " if marker else ""
            texts.append(f"{package.strip()}; {condition}extra == '{extra}'")
    return texts


def _extra_packages(extra: str) -> Iterator[str]:
    """Yield the packages of an extra, nested extras included."""
    from importlib import metadata

    try:
        texts = requirements()
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
            yield from _extra_packages(other_extra)


def check_names() -> None:
    """Check the origin of the project's other package.

    Raises
    ------
    ShadowedPackage
        If another package of that name comes first.
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
