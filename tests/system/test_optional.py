from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from pipeline.errors import MissingExtra
from pipeline.system.distribution import install_command
from pipeline.system.optional import require


def test_an_installed_module_is_returned() -> None:
    assert require("json.decoder", "demo", "a test").__name__ == "json.decoder"


def test_a_missing_package_names_the_purpose_and_the_command() -> None:
    with pytest.raises(MissingExtra) as caught:
        require("surely_not_installed.part", "demo", "the demo's images")
    message = f"the demo's images: needs surely_not_installed; {install_command('demo')}"
    assert (str(caught.value), caught.value.exit_status) == (message, 2)


def test_a_package_that_is_broken_says_so_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "broken_extra.py").write_text("import something_it_needs_itself\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(ModuleNotFoundError, match="something_it_needs_itself") as caught:
        require("broken_extra", "demo", "a test")
    assert not isinstance(caught.value, MissingExtra)
    assert "broken_extra" not in sys.modules


SESSION = """
from pipeline.system.distribution import install_command
from pipeline.system.optional import require
runtime = require("onnxruntime", "onnxruntime", "a test")
try:
    runtime.InferenceSession(b"")
except Exception:
    pass
"""


def test_onnx_runtime_reports_nothing(tmp_path: Path, root: Path) -> None:
    pytest.importorskip("onnxruntime")
    environment = {name: value for name, value in os.environ.items() if name != "ORT_DISABLE_TELEMETRY"}
    environment |= {"HOME": str(tmp_path), "XDG_CACHE_HOME": str(tmp_path), "PYTHONPATH": str(root)}
    subprocess.run([sys.executable, "-c", SESSION], env=environment, check=True, timeout=60)
    # What is to be reported is kept in the user's cache until it is sent.
    assert not [path for path in tmp_path.rglob("*") if "onnxruntime" in path.name]


IMPORT = """
import sys
from pipeline.system.optional import require
require("openvino", "openvino", "a test").Core()
assert sys.modules["openvino_telemetry"] is None
"""


def test_openvino_reports_nothing(root: Path) -> None:
    pytest.importorskip("openvino")
    environment = {**os.environ, "PYTHONPATH": str(root)}
    subprocess.run([sys.executable, "-c", IMPORT], env=environment, check=True, timeout=60)
