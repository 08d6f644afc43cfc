"""Entry under a unique name: `pipeline` and `boards` are common words.

``import soc_stages as pipeline`` is ``import pipeline``, except that it refuses a package of another project that
Python finds under one of these names.
"""

import importlib
import importlib.util
import os
import signal
import sys
from pathlib import Path
from typing import Any, NoReturn

_ROOT = Path(__file__).parent


def _refusal() -> str:
    """Explain why this project's packages cannot be imported, else empty."""
    for name in ("pipeline", "boards"):
        spec = importlib.util.find_spec(name)
        places = [] if spec is None else [spec.origin] if spec.origin else list(spec.submodule_search_locations or ())
        expected = _ROOT / name / "__init__.py"
        if not places or Path(places[0]).resolve() != expected.resolve():
            return (
                f"Python finds {places[0] if places else 'nothing'} under the name {name!r}, where {expected} is "
                "meant; rename the other one, take its folder from PYTHONPATH, or use an environment of its own "
                "(python3 -m venv)"
            )
        # Another distribution may have written its files over these.
        if 'PROJECT = "soc-pipeline"' not in expected.read_text(encoding="utf-8"):
            return (
                f"{expected} is another project's, which was installed over this one; use an environment of its own "
                "(python3 -m venv)"
            )
    return ""


def __getattr__(name: str) -> Any:
    if name.startswith("__"):
        raise AttributeError(name)
    if problem := _refusal():
        raise ImportError(problem)
    return getattr(importlib.import_module("pipeline"), name)


def _end(*_: object) -> NoReturn:
    os.write(2, b"soc-pipeline: interrupted\n")
    os._exit(130)


def main() -> int:
    """Run the command line ``soc-pipeline`` and return its exit status."""
    # A command has handlers of its own; until it is imported, and after its end, an interrupt is no fault to be traced.
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, _end)
    if problem := _refusal():
        print(f"soc-pipeline: {problem}", file=sys.stderr)
        return 1
    status: int = importlib.import_module("pipeline.cli").main()
    # All is said: a further Ctrl-C ends the interpreter's own end.
    if signal.getsignal(signal.SIGINT) is _end:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    return status


if __name__ == "__main__":
    sys.exit(main())
