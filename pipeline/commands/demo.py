"""``soc-pipeline demo``: a trained network, real images, unsplit against pipelined."""

from __future__ import annotations

import argparse
from pathlib import Path

from pipeline.commands.shared import values

HELP = "Stream held-out images of handwritten digits through a trained network, unsplit and as a pipeline."
EXAMPLE = "soc-pipeline demo --stages 2 --output timeline.png"


def arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument(
        "--stages", metavar="N", type=values.count, default=2, help="stages of the pipeline (default: 2)"
    )
    parser.add_argument(
        "--frames",
        metavar="N",
        type=values.count,
        help="number of frames of ten images (default: all held-out images, four times)",
    )
    parser.add_argument(
        "--output", metavar="FILE", help="the timeline picture, .png or .svg (default: demo-output/timeline.png)"
    )


def run(options: argparse.Namespace) -> int:
    """Run the demo and print its results."""
    from pipeline.demo import stream

    output = Path(options.output) if options.output else stream.OUTPUT
    stream.show(stream.run(output, options.frames, options.stages))
    return 0
