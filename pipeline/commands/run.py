"""``soc-pipeline run``: stream files through a bundle."""

from __future__ import annotations

import argparse
import os
from pathlib import Path

import pipeline
from pipeline.commands import common

HELP = "Stream inputs through a bundle and save the outputs, in order."
EXAMPLE = "soc-pipeline run model.bundle --input frames/ --output results.npz"


def arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument("bundle", metavar="BUNDLE", help="a folder from 'soc-pipeline build'")
    parser.add_argument(
        "--input",
        metavar="PATH",
        nargs="+",
        required=True,
        help=".npy (one frame, or frames stacked along a new first axis), .npz (inputs by name), images, or folders of these",
    )
    parser.add_argument(
        "--output",
        metavar="PATH",
        help="one .npz with all outputs stacked, or a folder for one .npz per frame; without it nothing is saved",
    )
    parser.add_argument("--json", action="store_true", help="print the statistics as JSON")


def run(options: argparse.Namespace) -> int:
    """Check the inputs, stream them, save and report."""
    # Nothing is compiled here: the small runtime starts faster and needs less memory.
    os.environ.setdefault("TVM_USE_RUNTIME_LIB", "1")
    from pipeline.executor.bundle import Bundle
    from pipeline.io import files

    bundle = Bundle.load(options.bundle)
    found = files.find([Path(path) for path in options.input])
    frames = files.frames(found, bundle.plan.inputs)
    with files.sink(options.output, bundle.plan.outputs) as sink, pipeline.load(bundle) as running:
        names = []

        def named() -> files.Arrays:
            for name, arrays in frames:
                names.append(name)
                yield arrays

        for number, result in enumerate(running.map(named())):
            sink.add(names[number], result)
        statistics = running.statistics()
    if options.json:
        common.print_json(statistics)
        return 0
    out = common.console()
    out.print(f"{statistics.delivered} frames, {statistics.frames_per_s:.1f} frames/s")
    if options.output:
        out.print(f"Outputs: {options.output}", soft_wrap=True)
    return 0
