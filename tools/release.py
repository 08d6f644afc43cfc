"""Release rehearsal: build, check and try both distributions; ``make release`` calls it.

It works on the last commit, and uploads nothing: it ends with the command that does.
"""

from __future__ import annotations

import argparse
import io
import os
import platform
import re
import runpy
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Sequence
from pathlib import Path

from tests.support.snippets import Workshop, snippets

ROOT = Path(__file__).resolve().parents[1]
VERSIONS = {
    "pipeline/system/version.py": r'^VERSION = "(.+)"$',
    "pyproject.toml": r'^version = "(.+)"$',
    "distributions/runtime/pyproject.toml": r'^version = "(.+)"$',
}
"""Files that state the version, and the line that does."""

UNRELEASED = "Unreleased"
"""Heading of the changelog's part for the next version."""

SDIST = "import sys, setuptools.build_meta as backend; backend.build_sdist(sys.argv[1])"


class ReleaseError(Exception):
    """Raised when something has to change before a release."""


def stated_version(root: Path) -> str:
    """Return the version of a source tree.

    Raises
    ------
    ReleaseError
        If its files state several.
    """
    versions = {}
    for name, pattern in VERSIONS.items():
        match = re.search(pattern, (root / name).read_text(encoding="utf-8"), re.MULTILINE)
        versions[name] = match[1] if match else "none"
    if len(set(versions.values())) > 1:
        raise ReleaseError("the versions differ: " + ", ".join(f"{name} has {text}" for name, text in versions.items()))
    return next(iter(versions.values()))


def check_changelog(root: Path, version: str) -> None:
    """Check that the changelog begins with a version's changes.

    Raises
    ------
    ReleaseError
        If it begins with another part, or this part is empty.
    """
    text = (root / "CHANGELOG.md").read_text(encoding="utf-8")
    parts = re.findall(r"^## (.+)\n((?:(?!## ).*\n)*)", text, re.MULTILINE)
    heading, changes = parts[0] if parts else ("nothing", "")
    if heading == UNRELEASED:
        remedy = f"set the new version in {', '.join(VERSIONS)}, and call that part so"
        raise ReleaseError(f"CHANGELOG.md begins with '{UNRELEASED}', and the version is {version}: {remedy}")
    if heading != version:
        raise ReleaseError(f"CHANGELOG.md begins with '{heading}', and the version is {version}")
    if not changes.strip():
        raise ReleaseError(f"CHANGELOG.md says nothing of {version}")


def export_commit(root: Path, folder: Path) -> None:
    """Export the last commit into a folder, without uncommitted files."""
    archive = subprocess.run(["git", "-C", str(root), "archive", "HEAD"], check=True, capture_output=True).stdout
    with tarfile.open(fileobj=io.BytesIO(archive)) as files:
        # A link that leaves the folder is refused.
        files.extractall(folder, filter="data")


def build(tree: Path, output: Path) -> list[Path]:
    """Build the wheels and the source archives of a tree, and return their paths."""
    output.mkdir(parents=True, exist_ok=True)
    for old in output.glob("soc_stages*"):
        old.unlink()
    # TVM's wheels, of 100 MB each, are kept where 'make wheels' keeps them.
    runpy.run_path(str(tree / "distributions" / "wheels.py"))["build"](output, downloads=ROOT / "build" / "tvm")
    for project in (tree, tree / "distributions" / "runtime"):
        subprocess.run([sys.executable, "-c", SDIST, str(output)], cwd=project, check=True, stdout=subprocess.DEVNULL)
    return sorted(output.glob("soc_stages*"))


def install(wheel: Path, folder: Path, extras: str = "") -> Path:
    """Install a wheel into an empty environment, and return the folder of its programs."""
    subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
    pip = [str(folder / "bin" / "python"), "-I", "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    subprocess.run([*pip, f"{wheel}{extras}"], check=True)
    return folder / "bin"


def run_readme(tree: Path, full: Path, runtime: Path, folder: Path) -> None:
    """Run the README with the complete distribution, and its bundle with the other one."""
    folder.mkdir()
    os.environ["SOC_PIPELINE_CACHE"] = str(folder / "cache")
    workshop = Workshop(folder, tree, full)
    # The model and the pictures of the README's commands.
    guide = snippets((tree / "docs" / "guide.md").read_text(encoding="utf-8"))
    (folder / "make_model.py").write_text(next(block.text for block in guide if block.title == "make_model.py"))
    workshop.run("python make_model.py")
    workshop.run_page((tree / "README.md").read_text(encoding="utf-8"))
    Workshop(folder, tree, runtime).run("soc-pipeline run model.bundle --input images.npy --output runtime.npz")
    same = "a, b = (numpy.load(f'{name}.npz')['scores'] for name in ('results', 'runtime')); assert (a == b).all()"
    workshop.run(f'python -c "import numpy; {same}"')


def release(output: Path, *, is_rehearsal: bool) -> None:
    """Check, build, install and try; each step prints a line."""
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        tree = folder / "tree"
        export_commit(ROOT, tree)

        # 1. Version and changelog.
        version = stated_version(tree)
        try:
            check_changelog(tree, version)
        except ReleaseError as error:
            if not is_rehearsal:
                raise
            print(f"Before the release: {error}")
        print(f"Version: {version}", flush=True)

        # 2. Wheels and source archives.
        files = build(tree, output)
        subprocess.run([sys.executable, "-m", "twine", "check", "--strict", *map(str, files)], check=True)
        for file in files:
            print(f"{file}: {file.stat().st_size / 1e6:.1f} MB", flush=True)

        # 3. The README, in environments that have nothing but a wheel.
        (full,) = output.glob("soc_stages-*.whl")
        (runtime,) = output.glob(f"soc_stages_runtime-*{platform.machine()}.whl")
        run_readme(
            tree,
            install(full, folder / "full", "[onnx,onnxruntime]"),
            install(runtime, folder / "runtime"),
            folder / "work",
        )
        print("The README's commands and program work as installed.")
    if is_rehearsal:
        print("A rehearsal: nothing to upload.")
    else:
        print(f"Upload: {sys.executable} -m twine upload {' '.join(map(str, files))}")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=Path, default=ROOT / "dist", help="folder for the files (default: dist)")
    parser.add_argument("--rehearsal", action="store_true", help="go on where the changelog has no such version yet")
    options = parser.parse_args(arguments)
    try:
        release(options.output.resolve(), is_rehearsal=options.rehearsal)
    except (ReleaseError, FileNotFoundError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    except AssertionError as error:
        print(f"error: the README does not work as installed: {error}", file=sys.stderr)
        return 1
    except subprocess.CalledProcessError as error:
        print(f"error: {' '.join(map(str, error.cmd[:4]))} ... ended with status {error.returncode}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
