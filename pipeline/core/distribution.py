"""Distributions of this project: which of the two is installed, and whether the names of its packages are its own."""

from __future__ import annotations

import importlib.util
import sys
from importlib.abc import MetaPathFinder
from pathlib import Path

from pipeline.errors import MissingExtra, ShadowedPackage

FULL, RUNTIME = "soc-pipeline", "soc-pipeline-runtime"
"""What reads, plans, builds and runs models, and what only runs bundles."""

REMEDY = f"install {FULL} from this project's wheels or source (on PyPI, that is another project's name)"
"""Of whoever has the runtime only; never by its name alone, which would install what others have written."""

RUNTIME_EXTRAS = (
    "bag", "images", "litert", "metrics", "onnxruntime", "openvino", "pynq", "ros2", "torch", "video", "web", "zenoh",
)  # fmt: skip
"""The extras that the runtime's distribution has as well."""

_ROOT = Path(__file__).parents[2]

IS_FULL = (_ROOT / "pipeline" / "split").is_dir()
"""Whether everything is here, and not only what runs bundles."""


def describe_extra(extra: str) -> str:
    """Return what pip is asked for to get an extra, such as ``soc-pipeline[onnx]``."""
    return f"{FULL if IS_FULL or extra not in RUNTIME_EXTRAS else RUNTIME}[{extra}]"


def check_names() -> None:
    """Check that this project's other package is the one that Python finds by its name.

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
    """Names the other distribution where a module is looked for that only that one has."""

    def find_spec(self, name: str, *_: object) -> None:
        """Refuse what nobody else has found."""
        if name.startswith("pipeline."):
            raise MissingExtra(f"{name} is not in {RUNTIME}, which only loads and streams bundles; {REMEDY}")


if not IS_FULL:
    # Last: only what no other finder has comes here.
    sys.meta_path.append(_MissingPart())
