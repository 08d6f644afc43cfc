"""``soc-pipeline convert``: keep a model as a Relax module."""

from __future__ import annotations

import argparse
from pathlib import Path

from pipeline.commands.shared import console, models

HELP = "Read a model of any format, clean it up, and write it as a Relax module, which can be read again."
EXAMPLE = "soc-pipeline convert model.relay --params model.params -o model.relax"


def arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    models.arguments(parser)
    parser.add_argument("-o", "--output", metavar="FILE", required=True, help="the file to write, JSON of TVM")


def run(options: argparse.Namespace) -> int:
    """Read, clean up and save."""
    from pipeline import frontends
    from pipeline.frontends import relax

    with console.progress(f"reading {options.model}") as step:
        model = frontends.load(Path(options.model), models.shapes(options), options.params)
        step(f"writing {options.output}")
        relax.save(model, Path(options.output))
    console.console().print(f"Relax module: {options.output}", soft_wrap=True)
    return 0
