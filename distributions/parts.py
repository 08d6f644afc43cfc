"""Parts: the source files of the runtime's distribution, and its build."""

import os
import shutil
import zipfile
from pathlib import Path

from setuptools.command.bdist_wheel import bdist_wheel
from setuptools.command.build_py import build_py
from setuptools.command.sdist import sdist

ROOT = next(folder for folder in Path(__file__).resolve().parents if (folder / "pipeline").is_dir())
"""Root of the source tree; that of the runtime's source archive has this file beside its modules."""

BUILDING = (
    "pipeline/demo/",
    "pipeline/executor/build.py",
    "pipeline/executor/compile_cache.py",
    "pipeline/executor/core_estimates.py",
    "pipeline/executor/executable.py",
    "pipeline/executor/kernel_objects.py",
    "pipeline/executor/kernels/",
    "pipeline/executor/linker.py",
    "pipeline/executor/parameter_checks.py",
    "pipeline/executor/parity.py",
    "pipeline/executor/precision.py",
    "pipeline/executor/stage_cache.py",
    "pipeline/executor/targets.py",
    "pipeline/executor/tuning/",
    "pipeline/export/",
    "pipeline/frontends/",
    "pipeline/model/",
    "pipeline/quantization/",
    "pipeline/simulation/",
    "pipeline/split/",
)
"""Parts of the complete distribution alone: files, and whole folders."""

RUNNING = {
    "pipeline/commands": (
        "app.py",
        "bench.py",
        "devices.py",
        "doctor.py",
        "inspect.py",
        "node.py",
        "run.py",
        "serve.py",
        "service.py",
        "vta.py",
    ),
    "pipeline/measure": ("comparison.py", "server_slots.py", "throughput.py"),
    "pipeline/workflow": (
        "load.py",
        "model_cache.py",
        "server_bundle.py",
        "update_checks.py",
        "update_record.py",
        "update_shadow.py",
        "updates.py",
    ),
}
"""Files that run bundles, in folders that both distributions have a part of."""

WHEEL = "SOC_PIPELINE_TVM_WHEEL"
"""Environment variable with the official wheel of TVM that its runtime library is taken from."""

LIBRARIES = ("tvm/lib/libtvm_runtime.so", "tvm/lib/libtvm_runtime_extra.so")
"""Libraries of TVM's wheel that stages call: its runtime, and its functions that sort."""

LICENCES = ("tvm/LICENSE", "tvm/NOTICE", "tvm/licenses/")


def is_runtime(path: str) -> bool:
    """Test for the runtime's modules, by path in the source tree."""
    folder, _, name = path.rpartition("/")
    if folder in RUNNING:
        return name in ("__init__.py", *RUNNING[folder])
    return not path.startswith(BUILDING)


def _relative(file: str) -> str:
    return Path(file).resolve().relative_to(ROOT).as_posix()


class RuntimeBuild(build_py):
    """Build of the runtime, with TVM's libraries from a named wheel."""

    def find_package_modules(self, package: str, package_dir: str) -> list[tuple[str, str, str]]:
        """Return the runtime's modules of a package."""
        modules = super().find_package_modules(package, package_dir)
        return [module for module in modules if is_runtime(_relative(module[2]))]

    def run(self) -> None:
        """Build afresh, excluding earlier leftovers, and add the libraries."""
        if not self.editable_mode:
            shutil.rmtree(self.build_lib, ignore_errors=True)
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


class RuntimeSource(sdist):
    """Source archive with the upper tree's necessary modules."""

    def make_release_tree(self, base_dir: str, files: list[str]) -> None:
        """Copy modules and this file to their independent places."""
        super().make_release_tree(base_dir, [name for name in files if not name.startswith("..")])
        for name in (*(name for name in files if name.startswith("..")), __file__):
            source = Path(name).resolve()
            goal = Path(base_dir) / (source.name if name == __file__ else source.relative_to(ROOT))
            goal.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(source, goal)
        project = Path(base_dir) / "pyproject.toml"
        text = project.read_text(encoding="utf-8").replace('"../.."', '"."')
        # The copy is a link to the original.
        project.unlink()
        project.write_text(text, encoding="utf-8")


class RuntimeWheel(bdist_wheel):
    """Wheel for its library's platform, or any without library."""

    def get_tag(self) -> tuple[str, str, str]:
        """Return the tags: any Python 3, and TVM's platforms."""
        wheel = os.environ.get(WHEEL)
        # Pure all the same: it is installed where the complete distribution would be.
        return ("py3", "none", Path(wheel).stem.split("-")[-1]) if wheel else super().get_tag()
