"""First steps of sessions of a server that has just been restarted, all at the same time."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from pipeline.executor import manifest
from pipeline.executor.manifest import Manifest
from tests.remote.conftest import LIMIT, plan

TOGETHER = """
import sys, threading
from pathlib import Path
from pipeline.executor import manifest

def work():
    together.wait()
    manifest.read(Path(sys.argv[1]))
    done.append(True)

sys.setswitchinterval(1e-6)
together, done = threading.Barrier(8), []
threads = [threading.Thread(target=work) for _ in range(8)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
sys.exit(len(done) != len(threads))
"""


def test_threads_may_read_their_first_manifest_together(root: Path, tmp_path: Path) -> None:
    """In processes of their own, as each looks at the types once, and what went wrong was a segmentation fault."""
    a_plan = plan("remote://127.0.0.1:1/null")
    manifest.write(tmp_path, Manifest(manifest.FORMAT, "0.27", a_plan, (None,) * len(a_plan.stages)))
    for _ in range(3):
        line = [sys.executable, "-c", TOGETHER, str(tmp_path)]
        process = subprocess.run(line, cwd=root, capture_output=True, text=True, check=False, timeout=LIMIT)
        assert process.returncode == 0, process.stderr
