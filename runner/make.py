"""Builds the C++ runner with installed tools, or the packages cmake and ziglang.

`make runner` calls it.  For another processor, such as ``--machine aarch64`` or ``--machine armv7l``, Zig is the
compiler: it brings the libraries of all of them along.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

SOURCE = Path(__file__).resolve().parent
# The C library of 2018, which JetPack 4 has, since boards keep theirs for long; TVM's libraries need no newer one.
TARGETS = {
    "aarch64": "aarch64-linux-gnu.2.27",
    "armv7l": "arm-linux-gnueabihf.2.27",
    "x86_64": "x86_64-linux-gnu.2.27",
}

CORES = {
    "aarch64": "64-bit Arm cores (ARMv8-A): Cortex-A35, A53 and later",
    # Of the Cortex-A9, the oldest that is supported.
    "armv7l": "32-bit Arm cores with NEON (ARMv7-A): Cortex-A7, A9 and later, not ARMv6 (Raspberry Pi Zero and 1)",
    "x86_64": "x86-64 processors",
}
"""What runs the program of a machine, the bundle aside."""


def packages() -> Path:
    """Return the folder of tvm and tvm_ffi for this Python."""
    spec = importlib.util.find_spec("tvm_ffi")
    if spec is None or spec.origin is None:
        sys.exit("error: the runner needs the headers and libraries of TVM; pip install apache-tvm")
    return Path(spec.origin).parents[1]


def find_cmake() -> list[str]:
    """Return a sufficient CMake command, or end."""
    if importlib.util.find_spec("cmake"):
        return [sys.executable, "-c", "import cmake; cmake.cmake()"]
    if path := shutil.which("cmake"):
        return [path]
    sys.exit("error: the runner is built with CMake, which is not installed; pip install cmake ninja")


def find_compiler(machine: str, folder: Path) -> list[str]:
    """Return CMake's compiler options for `machine`, or end."""
    is_foreign = machine != platform.machine()
    has_zig = importlib.util.find_spec("ziglang") is not None
    # What the system's own compiler links needs this system's C library, or a newer one.
    if not is_foreign and (os.environ.get("CXX") or (not has_zig and (shutil.which("c++") or shutil.which("g++")))):
        return []
    if not has_zig:
        sys.exit(f"error: there is no C++ compiler for {machine}; pip install ziglang")
    script = folder / "zig-c++"
    # CMake's first trials name no level, with which Zig would compile its libraries a second time.
    command = f'exec "{sys.executable}" -m ziglang c++ -target {TARGETS[machine]} -O2 "$@"'
    if machine == "armv7l":
        command = command.replace(' "$@"', ' -mcpu=cortex_a9 "$@"')
    script.write_text(f"#!/bin/sh\n{command}\n")
    script.chmod(0o755)
    options = [f"-DCMAKE_CXX_COMPILER={script}"]
    return [*options, "-DCMAKE_SYSTEM_NAME=Linux", f"-DCMAKE_SYSTEM_PROCESSOR={machine}"] if is_foreign else options


def forget_other_tools(folder: Path, configure: Sequence[str]) -> None:
    """Remove CMake's memory of other, possibly missing tools."""
    tools, stamp = "\n".join((*configure, shutil.which("c++") or "")), folder / "tools.txt"
    if not stamp.exists() or stamp.read_text() != tools:
        (folder / "CMakeCache.txt").unlink(missing_ok=True)
        shutil.rmtree(folder / "CMakeFiles", ignore_errors=True)
        stamp.write_text(tools)


def build(folder: Path, machine: str, options: Sequence[str]) -> Path:
    """Build the runner for a machine and return its folder."""
    folder.mkdir(parents=True, exist_ok=True)
    cmake = find_cmake()
    configure = ["-S", str(SOURCE), "-B", str(folder), f"-DPACKAGES={packages()}", *find_compiler(machine, folder)]
    configure += [f"-DCORES={CORES[machine]}", "-G", "Ninja" if shutil.which("ninja") else "Unix Makefiles"]
    forget_other_tools(folder, configure)
    for arguments in ([*configure, *options], ["--build", str(folder), "--parallel", str(os.cpu_count())]):
        if status := subprocess.run([*cmake, *arguments], check=False).returncode:
            sys.exit(status)
    return folder / "soc-runner"


def main() -> None:
    """Build the command line's runner."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--machine", choices=TARGETS, default=platform.machine())
    parser.add_argument("--folder", type=Path, help="where to build (default: build/runner, with the machine's name)")
    parser.add_argument("options", nargs="*", metavar="-DNAME=VALUE", help="options of CMake, behind --")
    arguments = parser.parse_args()
    suffix = "" if arguments.machine == platform.machine() else f"-{arguments.machine}"
    folder = arguments.folder or SOURCE.parent / f"build/runner{suffix}"
    print(build(folder.absolute(), arguments.machine, arguments.options))
    print(f"It runs on {CORES[arguments.machine]}.")


if __name__ == "__main__":
    main()
