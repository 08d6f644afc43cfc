"""Cost of a hop between two stages of the C++ runner.

Stages hand their input on, so that what is left is the runner and 0.5 us of TVM's virtual machine.  Frames stream
through on one core as fast as they can.  hop_us is what each stage adds to the processor's time for a frame, which
does not depend on what else runs on this machine; frames_per_s does.
"""

from __future__ import annotations

import json
import os
import resource
import subprocess
import tempfile
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

from report import Row, median, parser, report, usable_cores

from pipeline.core.board.board import Board, Device
from pipeline.core.plan.plan import Plan, StagePlan, TensorSpec
from pipeline.executor.bundle import Bundle
from pipeline.executor.stage_code import StageCode

STAGES = (1, 2, 4, 8)


def main() -> None:
    """Measure chains of several lengths in turn."""
    options = parser(__doc__)
    options.add_argument(
        "--runner", type=Path, default=Path("build/runner/soc-runner"), help="what 'make runner' built"
    )
    arguments = options.parse_args()
    rounds, frames = (3, 20_000) if arguments.quick else (9, 100_000)
    with tempfile.TemporaryDirectory() as scratch:
        bundles = [save(Path(scratch) / f"{stages}.bundle", stages) for stages in STAGES]
        samples = [[measure(arguments.runner / "soc-run", bundle, frames) for bundle in bundles] for _ in range(rounds)]
    times = [median([seconds for seconds, _ in chain]) for chain in zip(*samples, strict=True)]
    rates = [median([rate for _, rate in chain]) for chain in zip(*samples, strict=True)]
    rows: list[Row] = [
        {
            "stages": stages,
            "us_per_frame": round(seconds * 1e6, 2),
            "hop_us": round((seconds - times[0]) / (stages - 1) * 1e6, 2) if stages > 1 else None,
            "frames_per_s": round(rate),
        }
        for stages, seconds, rate in zip(STAGES, times, rates, strict=True)
    ]
    report(
        "The cost of a hop in the C++ runner, on one core", rows, (__doc__ or "").partition("\n\n")[2], arguments.json
    )


def save(path: Path, stages: int) -> Path:
    """Write a bundle of stages that hand a small tensor on."""
    import tvm
    from tvm import relax

    tensor = relax.Var("x", relax.TensorType((16,), "float32"))
    builder = relax.BlockBuilder()
    with builder.function("main", [tensor]):
        builder.emit_func_output(tensor)
    executable = tvm.compile(builder.get(), tvm.target.Target("llvm"))
    specs = [TensorSpec(f"t{number}", (16,)) for number in range(stages + 1)]
    core = usable_cores()[0]
    plans = tuple(
        StagePlan(f"s{number}", "cpu", (source,), (target,), cores=(core,), queue_depth=4)
        for number, (source, target) in enumerate(pairwise(specs))
    )
    plan = Plan("hop", "", Board("one", (Device("cpu"),)), (specs[0],), (specs[-1],), plans)
    Bundle(plan, [StageCode(executable.jit, {}, executable=executable)] * stages).save(path)
    return path


def measure(program: Path, bundle: Path, frames: int) -> tuple[float, float]:
    """Return the processor's seconds for a frame, and frames per second."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    command: Sequence[str] = [str(program), str(bundle), "--bench", str(frames)]
    core = usable_cores()[0]
    result = subprocess.run(
        command, capture_output=True, text=True, check=True, preexec_fn=lambda: os.sched_setaffinity(0, {core})
    )
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    seconds = after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime
    return seconds / frames, float(json.loads(result.stdout)["frames_per_s"])


if __name__ == "__main__":
    main()
