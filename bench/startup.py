"""How large is what runs a bundle, and how long does it take from the shell to a first result?

The wheels of both distributions are built, and installed into environments of their own: soc-stages-runtime, which
only runs bundles, and soc-stages, which also builds them and is what a board needed before there were two.  If this
environment has PyTorch, it is measured as well: TVM's FFI would import it.  What is run is one digit through the demo's
network in two stages, by ``soc-pipeline run``, by `pipeline.load`, and by `pipeline.load` after ``import tvm``, as each
process began before.  Sizes are those of files without what Python compiles them to, and for both kinds of processor.
``distributions/trim.sh`` deletes what no bundle needs of other packages.
With --runner, the C++ runner's program is measured beside them.  Needs the network for packages, and the extra [onnx].
"""

from __future__ import annotations

import importlib.util
import json
import os
import platform
import re
import runpy
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from report import Row, environment, median, parser, report

import pipeline
from pipeline.system.distribution import FULL, RUNTIME

ROOT = Path(__file__).parents[1]
TRIM = ROOT / "distributions" / "trim.sh"
PROCESSORS = ("x86_64", "aarch64")
GROUPS = {"numpy": "numpy_mb", "numpy.libs": "numpy_mb", "tvm_ffi": "tvm_ffi_mb", "tvm": "tvm_mb"}
"""Which column of a table counts what lies in a folder of that name."""

OURS = ("pipeline", "boards", "soc_stages.py")

FIRST_RESULT = """
import os, sys
{before}
import numpy as np
import pipeline
frame = np.load(sys.argv[2])[0]
with pipeline.load(sys.argv[1]) as running:
    running.submit(frame).result(60)
    times = os.times()
    resident = int(open("/proc/self/statm").read().split()[1]) * os.sysconf("SC_PAGESIZE")
    print(times.user, resident)
"""


# A small process between: the largest memory of one begins with that of whoever starts it.
LAUNCH = """
import os, sys, time
begin = time.perf_counter()
_, status, usage = os.wait4(os.posix_spawnp(sys.argv[1], sys.argv[1:], os.environ), 0)
print(usage.ru_utime, time.perf_counter() - begin, usage.ru_maxrss * 1024)
sys.exit(os.waitstatus_to_exitcode(status))
"""


class Way(NamedTuple):
    """A way to a first result: a command, and whether it prints its own times there."""

    environment: str
    title: str
    command: Sequence[str]
    variables: dict[str, str]
    prints: bool


def wheel_files(wheels: Path, distribution: str, processor: str) -> list[str]:
    """Wheel of a distribution, by its path: an index may have another of its name."""
    pattern = "soc_stages-*.whl" if distribution == FULL else f"soc_stages_runtime-*{processor}.whl"
    return list(map(str, wheels.glob(pattern)))


def install(folder: Path, wheels: Path, distribution: str) -> Path:
    """Install a distribution into an environment of its own, and return its Python."""
    subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
    python = folder / "bin" / "python"
    subprocess.run([*pip(python), *wheel_files(wheels, distribution, platform.machine())], check=True)
    return python


def system_numpy_mb(processor: str) -> float | None:
    """Return the size of Debian's NumPy with its libraries, as apt says it; None where there is no apt."""
    if processor != platform.machine() or not shutil.which("apt-cache"):
        return None
    command = ["apt-cache", "show", "--no-all-versions", "python3-numpy", "libblas3", "liblapack3", "libgfortran5"]
    shown = subprocess.run(command, capture_output=True, text=True, check=False).stdout
    sizes = re.findall(r"^Installed-Size: (\d+)$", shown, re.MULTILINE)
    return sum(map(int, sizes)) * 1024 / 1e6 if sizes else None


def pip(python: str | Path) -> list[str]:
    """Return the command that installs."""
    return [str(python), "-I", "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]


def size_row(distribution: str, processor: str, wheels: Path, scratch: Path) -> Row:
    """Install for a kind of processor, which may be another one than this machine's, and add up the files."""
    folder = scratch / f"{distribution}-{processor}"
    platforms = [f"--platform=manylinux_{glibc}_{processor}" for glibc in ("2_28", "2_27", "2_17", "2_12")]
    options = ["--only-binary=:all:", "--no-compile", "--target", str(folder), *platforms]
    subprocess.run([*pip(sys.executable), *options, *wheel_files(wheels, distribution, processor)], check=True)
    sizes = measure(folder)
    subprocess.run(["sh", str(TRIM), str(folder)], check=True)
    trimmed_sizes = measure(folder)
    total, trimmed, system_numpy = sum(sizes.values()), sum(trimmed_sizes.values()), system_numpy_mb(processor)
    smaller = None if system_numpy is None else trimmed - trimmed_sizes["numpy_mb"] + system_numpy
    totals = {"total_mb": total, "trimmed_mb": trimmed, "trimmed_with_debian_numpy_mb": smaller}
    return {"distribution": distribution, "processor": processor, **sizes, **totals}


def measure(folder: Path) -> dict[str, float]:
    """Add up the files of each part, in MB."""
    sizes = dict.fromkeys(["ours_mb", *GROUPS.values(), "others_mb"], 0.0)
    for path in folder.rglob("*"):
        if path.is_file() and not path.is_symlink():
            top = path.relative_to(folder).parts[0]
            sizes["ours_mb" if top in OURS else GROUPS.get(top, "others_mb")] += path.stat().st_size / 1e6
    return sizes


def ways(environments: dict[str, Path], bundle: Path, frames: Path, runner: Path | None) -> Iterator[Way]:
    """Yield the ways to a first result that are compared."""
    output = bundle.with_name("results.npz")
    files = (str(bundle), str(frames))
    for name, python in environments.items():
        # This environment has this source tree from where it lies, whatever is installed there.
        variables = {"PYTHONPATH": str(ROOT)} if python == Path(sys.executable) else {}
        run = (str(python), "-m", "soc_stages", "run", files[0], "--input", files[1], "--output", str(output))
        yield Way(name, "soc-pipeline run", run, variables, prints=False)
        yield Way(name, "pipeline.load", (str(python), "-c", FIRST_RESULT.format(before=""), *files), variables, True)
        if name != RUNTIME:
            code = FIRST_RESULT.format(before="import tvm")
            yield Way(name, "import tvm, pipeline.load", (str(python), "-c", code, *files), variables, prints=True)
    if runner is not None:
        results = str(output.with_suffix(".npy"))
        command = (str(runner), files[0], "--input", files[1], "--output", results)
        yield Way("C++ runner", "soc-run", command, {}, prints=False)


def time_once(way: Way, folder: Path) -> tuple[float, float, float]:
    """Return user time and wall time in seconds, and memory in MiB: until the first result if the way prints them."""
    variables = {"PATH": os.environ["PATH"], "HOME": os.environ.get("HOME", ""), **way.variables}
    launch = [sys.executable, "-I", "-S", "-c", LAUNCH, *way.command]
    process = subprocess.run(launch, cwd=folder, env=variables, stdout=subprocess.PIPE, text=True, check=False)
    if process.returncode:
        raise SystemExit(f"{way.environment}, {way.title}: ended with status {process.returncode}")
    *_, printed, usage = ["", *process.stdout.splitlines()]
    user, wall, resident = map(float, usage.split())
    if way.prints:
        user, resident = map(float, printed.split())
    return user, wall, resident / 2**20


def start_rows(all_ways: Sequence[Way], rounds: int, folder: Path) -> Iterator[Row]:
    """Take the ways in turns, and yield the medians of each."""
    for way in all_ways:
        # Once before: Python keeps what it compiles, and the system the files.
        time_once(way, folder)
    samples = [[time_once(way, folder) for way in all_ways] for _ in range(rounds)]
    for way, measured in zip(all_ways, zip(*samples, strict=True), strict=True):
        user, wall, resident = (median(values) for values in zip(*measured, strict=True))
        yield {
            "environment": way.environment, "way": way.title, "user_s": user, "wall_s": wall, "resident_mib": resident
        }  # fmt: skip


def make_bundle(folder: Path) -> tuple[Path, Path]:
    """Build the demo's network in two stages, and write one digit; return both paths."""
    graph = pipeline.read(ROOT / "pipeline" / "demo" / "digits.onnx")
    bundle, frames = folder / "digits.bundle", folder / "frames.npy"
    pipeline.build(graph, pipeline.plan(graph, stages=2)).save(bundle)
    np.save(frames, np.random.default_rng(1).random((1, 1, 1, 32, 32), np.float32))
    return bundle, frames


def main() -> None:
    options = parser(__doc__)
    options.add_argument("--wheels", type=Path, metavar="DIR", help="where 'make wheels' has put them (default: build)")
    options.add_argument("--runner", type=Path, metavar="FILE", help="the C++ runner's program soc-run")
    arguments = options.parse_args()
    with tempfile.TemporaryDirectory() as name:
        scratch = Path(name)
        wheels = arguments.wheels or scratch / "wheels"
        if arguments.wheels is None:
            runpy.run_path(str(ROOT / "distributions" / "wheels.py"))["build"](wheels)
        distributions = (RUNTIME, FULL)
        processors = (platform.machine(),) if arguments.quick else PROCESSORS
        sizes = [size_row(each, processor, wheels, scratch) for each in distributions for processor in processors]
        environments = {each: install(scratch / f"env-{each}", wheels, each) for each in distributions}
        if importlib.util.find_spec("torch"):
            environments[f"{FULL}, PyTorch"] = Path(sys.executable)
        bundle, frames = make_bundle(scratch)
        all_ways = list(ways(environments, bundle, frames, arguments.runner))
        starts = list(start_rows(all_ways, 3 if arguments.quick else 9, scratch))
    caption = "Files as in the wheels; what Python compiles of them, where pip lets it, is up to 20 MB more."
    report("Installed size", sizes, caption)
    caption = (
        "pipeline.load: until the first result, memory resident then; others: the whole process, its largest memory."
    )
    report("From the shell to a first result", starts, caption)
    if arguments.json:
        content = {"environment": environment(), "rows": [*sizes, *starts]}
        arguments.json.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
