"""Makes an emulated 64-bit Arm board: a folder whose `python` runs this package on any x86-64 machine.

``make arm-board`` calls it.  The board's Python and C library are the system's own packages for arm64, from where apt
takes its packages; this package's requirements and ONNX Runtime are their wheels for aarch64, from where pip takes
them.  Nothing is installed on this machine but a linker if it has none, and no rights of an administrator are needed.
`QEMU_CPU` names the processor, such as cortex-a53; without it, it is a Cortex-A72.  What is emulated is the processor
alone: times say nothing of a real board's, and files and network are this machine's.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from pipeline.errors import BuildError, PipelineError
from pipeline.executor.linker import linker

ROOT = Path(__file__).parents[2]
EMULATORS = ("qemu-aarch64-static", "qemu-aarch64")
PLATFORMS = ("manylinux_2_28_aarch64", "manylinux_2_27_aarch64", "manylinux2014_aarch64")
LIMIT_S = 600
"""Seconds that one program may take: two hundred megabytes come from the network."""

PYTHON = """\
#!/bin/sh
# Runs a Python on an emulated 64-bit Arm processor; $QEMU_CPU says which.
here=$(cd "$(dirname "$0")" && pwd) || exit
: "${{QEMU_CPU:=cortex-a72}}"
export QEMU_CPU
# With -0, Python takes this file for itself, and starts it again where it starts another Python.  With -S it leaves out
# the packages of an environment that this folder lies in, which are for another processor.
exec {emulator} -L "$here/root" -0 "$here/python" -E "PYTHONHOME=$here/root/usr" \\
  -E "PYTHONPATH=$here/packages${{PYTHONPATH:+:$PYTHONPATH}}" "$here/root/usr/bin/{python}" -S "$@"
"""


class Missing(PipelineError):
    """Raised where a piece of the board cannot be had."""


def make(folder: Path) -> None:
    """Make a board in `folder`, which appears when it is complete.

    Raises
    ------
    Missing
        If a piece cannot be had; the message says which and why.
    """
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=f"{folder.name}-", dir=folder.parent) as making:
        part = Path(making) / folder.name
        part.mkdir()
        emulator = _emulator(part)
        python = _system(part)
        _packages(part, python)
        _script(part, emulator, python)
        _linker()
        _try(part)
        shutil.rmtree(folder, ignore_errors=True)
        part.rename(folder)


def _emulator(board: Path) -> str:
    """Return the emulator's command: this machine's, or one that is unpacked beside the board's other parts."""
    if emulator := next(filter(shutil.which, EMULATORS), None):
        return emulator
    # Linked without libraries, it runs wherever it lies.
    _unpack(board / "emulator", "amd64", ["qemu-user-static"], only="qemu-user")
    return next(
        f'"$here/emulator/usr/bin/{name}"' for name in EMULATORS if (board / "emulator/usr/bin" / name).exists()
    )


def _system(board: Path) -> str:
    """Unpack the board's system, and return its Python's name, such as ``python3.11``."""
    root = board / "root"
    _unpack(root, "arm64", ["python3", "libstdc++6"])
    # Where /lib is part of /usr, packages leave the link to another one.
    if not (root / "lib").exists():
        (root / "lib").symlink_to("usr/lib")
    return (root / "usr/bin/python3").resolve().name


def make_system(root: Path, architecture: str, names: Sequence[str]) -> None:
    """Unpack packages and what they depend on as the folder `root`, which appears when it is complete.

    Raises
    ------
    Missing
        If they cannot be had.
    """
    with tempfile.TemporaryDirectory(prefix=f"{root.name}-", dir=root.parent) as making:
        _unpack(Path(making) / root.name, architecture, names)
        (Path(making) / root.name).rename(root)


def _unpack(root: Path, architecture: str, names: Sequence[str], *, only: str = "") -> None:
    """Unpack packages and what they depend on, with lists of its own: this machine's may lack the architecture."""
    with tempfile.TemporaryDirectory() as scratch:
        state = Path(scratch)
        for name in ("lists/partial", "archives/partial"):
            (state / name).mkdir(parents=True)
        (state / "status").touch()
        apt = ["apt-get", "-qq", *_apt_options(state, architecture)]
        _call("the system's packages", [*apt, "update"])
        _call(f"{' and '.join(names)} for {architecture}", [*apt, *_DOWNLOAD, *names])
        for package in sorted((state / "archives").glob(f"{only}*.deb")):
            _call(package.name, ["dpkg-deb", "--extract", str(package), str(root)])


_DOWNLOAD = ("--download-only", "--no-install-recommends", "--yes", "install")


def _apt_options(state: Path, architecture: str) -> list[str]:
    settings = {
        "APT::Architecture": architecture,
        "APT::Architectures": architecture,
        "APT::Sandbox::User": "root",  # the folder is this user's; who is not the administrator stays himself anyway
        "APT::Update::Error-Mode": "any",
        "Debug::NoLocking": "true",
        "Dir::State::lists": f"{state}/lists",
        "Dir::State::status": f"{state}/status",
        "Dir::State::extended_states": f"{state}/extended",
        "Dir::Cache": str(state),
        "Dir::Cache::archives": f"{state}/archives",
    }
    return [f"-o{name}={value}" for name, value in settings.items()]


def _packages(board: Path, python: str) -> None:
    project = msgspec.toml.decode((ROOT / "pyproject.toml").read_bytes())["project"]
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-compile"]
    location = ["--target", str(board / "packages"), "--implementation", "cp", "--only-binary=:all:"]
    kind = ["--python-version", python.removeprefix("python"), *(f"--platform={name}" for name in PLATFORMS)]
    # Later ones end in a segmentation fault of the emulator while they are imported.
    requirements = [*project["dependencies"], "onnxruntime==1.23.*"]
    _call("the packages for aarch64", [*pip, *location, *kind, *requirements])


def _script(board: Path, emulator: str, python: str) -> None:
    script = board / "python"
    script.write_text(PYTHON.format(emulator=emulator, python=python))
    script.chmod(0o755)


def _linker() -> None:
    """See to it that this machine can link for the board."""
    try:
        linker("aarch64")
    except BuildError:
        pip = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        _call("a linker for aarch64", [*pip, "ziglang"])


def _try(board: Path) -> None:
    """Import all once: it shows that the board works, and Python keeps what it compiles on the way."""
    code = "import pipeline.tvm.access, pipeline.commands.run, pipeline.remote.server, tvm.relax"
    _call("an emulated Python", [str(board / "python"), "-c", code], {"PYTHONPATH": str(ROOT)})


def _call(purpose: str, command: Sequence[str], environment: Mapping[str, str] | None = None) -> None:
    if not shutil.which(command[0]):
        raise Missing(f"{purpose}: there is no {command[0]}; boards are made of the packages of Debian or Ubuntu")
    variables = {**os.environ, **(environment or {})}
    result = subprocess.run(command, capture_output=True, text=True, check=False, timeout=LIMIT_S, env=variables)
    if result.returncode:
        trouble = (result.stderr.strip() or result.stdout.strip()).splitlines()[-3:]
        raise Missing(f"{purpose}: {' '.join(trouble) or f'{command[0]} ended with status {result.returncode}'}")


def main(folder: Path) -> int:
    """Make a board, and say how to use it, or why there is none."""
    try:
        make(folder)
    except (Missing, OSError, subprocess.TimeoutExpired) as error:
        print(f"error: no emulated Arm board: {error}", file=sys.stderr)
        return 1
    print(f"Emulated Arm board: {folder}; its Python: QEMU_CPU=cortex-a53 {folder}/python")
    return 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]).absolute()))
