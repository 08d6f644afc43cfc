"""No fault of memory and no data race while frames stream, fail and are dropped."""

from __future__ import annotations

import subprocess
from pathlib import Path
from shutil import which

import pytest

from tests.support.arithmetic_bundles import stress
from tests.support.runner import build_runner, build_tests

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(1800),
    pytest.mark.skipif(not which("c++"), reason="this system has no C++ compiler, and Zig has no sanitizers"),
]

# TVM's libraries are not compiled for it: what they do to memory that they share is not seen, but for what goes on
# inside of them alone.
SUPPRESSIONS = """\
race:libtvm_ffi.so
race:libtvm_runtime.so
"""


@pytest.mark.parametrize("admission", ["block", "latest"])
@pytest.mark.parametrize("kind", ["address,undefined", "thread"])
def test_streams_have_no_fault(faulty: Path, tmp_path: Path, kind: str, admission: str) -> None:
    name = kind.partition(",")[0]
    runner = build_runner(f"runner-{name}", "--", f"-DSANITIZE={kind}", "-DCMAKE_BUILD_TYPE=RelWithDebInfo")
    programs = build_tests(f"runner-tests-{name}", f"-DRUNNER={runner}", f"-DSANITIZE={kind}")
    (tmp_path / "suppressions").write_text(SUPPRESSIONS)
    environment = {
        "TSAN_OPTIONS": f"halt_on_error=1:suppressions={tmp_path / 'suppressions'}",
        "UBSAN_OPTIONS": "halt_on_error=1:print_stacktrace=1",
    }
    assert sum(stress(programs / "stress", faulty, 20_000, admission, environment)) == 20_000


def test_a_network_is_run_without_fault(digits: Path) -> None:
    runner = build_runner("runner-address", "--", "-DSANITIZE=address,undefined", "-DCMAKE_BUILD_TYPE=RelWithDebInfo")
    command = [str(runner / "soc-run"), str(digits), "--bench", "200"]
    result = subprocess.run(command, capture_output=True, text=True, check=False, timeout=600)
    assert (result.returncode, result.stderr) == (0, "")
    assert '"delivered": 200' in result.stdout
