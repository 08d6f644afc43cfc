"""Build both distributions' wheels; ``make wheels`` calls it.

The runtime's has TVM's runtime library for one kind of processor, taken from TVM's official wheel for that.
"""

import argparse
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).parents[1]
PROCESSORS = ("x86_64", "aarch64")
GLIBC = ("2_28", "2_27", "2_17")
"""Versions of the C library that wheels which a board can run are built for."""

WHEEL = "SOC_PIPELINE_TVM_WHEEL"


def build(output: Path, processors: Sequence[str] = PROCESSORS, downloads: Path = ROOT / "build" / "tvm") -> list[Path]:
    """Build the wheels, and return their paths.

    Parameters
    ----------
    output : Path
        Folder for the wheels.
    processors : sequence of str
        Processors to build the runtime's wheel for.
    downloads : Path
        Folder where TVM's wheels are kept, of 100 MB each.
    """
    output.mkdir(parents=True, exist_ok=True)
    for processor in processors:
        folder = downloads / processor
        download(folder, processor, [tvm_requirement()])
        (wheel,) = folder.glob("apache_tvm-*.whl")
        _pip_wheel(output, ROOT / "distributions" / "runtime", {WHEEL: str(wheel)})
    # What an earlier build has left would be packed as well.
    shutil.rmtree(ROOT / "build" / "lib", ignore_errors=True)
    _pip_wheel(output, ROOT, {})
    return sorted(output.glob("soc_stages*.whl"))


def tvm_requirement() -> str:
    """Return the builder distribution's TVM requirement."""
    # By its text, since the oldest Python has no reader of TOML.
    match = re.search(r'^ +"(apache-tvm>[^"]+)",$', (ROOT / "pyproject.toml").read_text(encoding="utf-8"), re.MULTILINE)
    assert match is not None
    return match[1]


def download(folder: Path, processor: str, requirements: Sequence[str], *, dependencies: bool = False) -> None:
    """Download a processor's wheels by pip."""
    platforms = [f"--platform=manylinux_{glibc}_{processor}" for glibc in GLIBC]
    options = ["--only-binary=:all:", *platforms, *([] if dependencies else ["--no-deps"]), "--dest", str(folder)]
    _pip("download", *options, *requirements)


def _pip_wheel(output: Path, project: Path, variables: dict[str, str]) -> None:
    _pip("wheel", "--no-deps", "--wheel-dir", str(output), str(project), variables=variables)


def _pip(verb: str, *arguments: str, variables: dict[str, str] | None = None) -> None:
    command = [sys.executable, "-m", "pip", verb, "--quiet", "--disable-pip-version-check", *arguments]
    subprocess.run(command, check=True, env={**os.environ, **(variables or {})})


def main() -> int:
    """Build, check and list the wheels."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--output", type=Path, default=ROOT / "dist", help="folder for the wheels (default: dist)")
    parser.add_argument("--processors", nargs="+", choices=PROCESSORS, default=PROCESSORS)
    options = parser.parse_args()
    try:
        wheels = build(options.output, options.processors)
        subprocess.run([sys.executable, "-m", "twine", "check", "--strict", *map(str, wheels)], check=True)
    except subprocess.CalledProcessError as error:
        print(f"error: {' '.join(error.cmd[1:4])} ended with status {error.returncode}", file=sys.stderr)
        return 1
    for wheel in wheels:
        print(f"{wheel}: {wheel.stat().st_size / 1e6:.1f} MB")
    return 0


if __name__ == "__main__":
    sys.exit(main())
