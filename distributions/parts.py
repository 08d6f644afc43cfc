"""Parts: which files of the one source tree belong to which of the two distributions, and how they are built."""

import os
import shutil
import zipfile
from pathlib import Path

from setuptools.command.bdist_wheel import bdist_wheel
from setuptools.command.build_py import build_py

ROOT = Path(__file__).parents[1]

BUILDING = (
    "pipeline/demo/",
    "pipeline/executor/build.py",
    "pipeline/executor/core_estimates.py",
    "pipeline/executor/executable.py",
    "pipeline/executor/kernels/",
    "pipeline/executor/linker.py",
    "pipeline/executor/parameter_checks.py",
    "pipeline/executor/parity.py",
    "pipeline/executor/precision.py",
    "pipeline/executor/targets.py",
    "pipeline/executor/tuning/",
    "pipeline/quantization/",
    "pipeline/simulation/",
    "pipeline/split/",
)
"""What only the larger distribution has: files, and folders with all that is in them."""

RUNNING = {
    "pipeline/commands": ("bench.py", "devices.py", "node.py", "run.py", "serve.py", "service.py", "vta.py"),
    "pipeline/measure": ("comparison.py", "server_slots.py", "throughput.py"),
    "pipeline/workflow": (
        "load.py",
        "server_bundle.py",
        "update_checks.py",
        "update_record.py",
        "update_shadow.py",
        "updates.py",
    ),
}
"""Of folders that both have a part of: the files that run bundles."""

WHEEL = "SOC_PIPELINE_TVM_WHEEL"
"""Environment variable: the official wheel of TVM that its runtime library is taken from."""

LIBRARIES = ("tvm/lib/libtvm_runtime.so", "tvm/lib/libtvm_runtime_extra.so")
"""Of TVM's wheel, what stages call: its runtime, and its functions that sort."""

LICENCES = ("tvm/LICENSE", "tvm/NOTICE", "tvm/licenses/")


def is_runtime(path: str) -> bool:
    """Return whether a module belongs to the runtime's distribution; its path is relative to the source tree."""
    folder, _, name = path.rpartition("/")
    if folder in RUNNING:
        return name in ("__init__.py", *RUNNING[folder])
    return not path.startswith(BUILDING)


class _Build(build_py):
    """Build of one of the two parts."""

    runtime: bool

    def find_package_modules(self, package: str, package_dir: str) -> list[tuple[str, str, str]]:
        """Return the modules of a package that this distribution has."""
        modules = super().find_package_modules(package, package_dir)
        return [each for each in modules if is_runtime(_relative(each[2])) == self.runtime]

    def run(self) -> None:
        """Build afresh: what an earlier build has left would be packed as well."""
        if not self.editable_mode:
            shutil.rmtree(self.build_lib, ignore_errors=True)
        super().run()


def _relative(file: str) -> str:
    return Path(file).resolve().relative_to(ROOT).as_posix()


class BuilderBuild(_Build):
    """Build of what reads, plans and builds models."""

    runtime = False


class RuntimeBuild(_Build):
    """Build of what runs bundles, with TVM's libraries for that where its wheel is named."""

    runtime = True

    def run(self) -> None:
        """Build, and add the libraries with their licence and version."""
        super().run()
        if not self.editable_mode and (wheel := os.environ.get(WHEEL)):
            _unpack_library(Path(wheel), Path(self.build_lib) / "pipeline" / "native")


def _unpack_library(wheel: Path, folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(wheel) as archive:
        for name in archive.namelist():
            if name in LIBRARIES or (name.startswith(LICENCES) and not name.endswith("/")):
                (folder / Path(name).name).write_bytes(archive.read(name))
    for library in LIBRARIES:
        (folder / Path(library).name).chmod(0o755)
    (folder / "version.txt").write_text(wheel.name.split("-")[1] + "\n", encoding="utf-8")


class RuntimeWheel(bdist_wheel):
    """Wheel for the platform of the library that is in it; for any if there is none."""

    def get_tag(self) -> tuple[str, str, str]:
        """Return the tags: any Python 3, and the platforms of TVM's own wheel."""
        wheel = os.environ.get(WHEEL)
        # Pure all the same: both distributions must be installed into one folder.
        return ("py3", "none", Path(wheel).stem.split("-")[-1]) if wheel else super().get_tag()
