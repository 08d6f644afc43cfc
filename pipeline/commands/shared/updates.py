"""Updates of streaming commands: origin and outcome of new versions."""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from pipeline.commands.shared import values
from pipeline.errors import InputError

if TYPE_CHECKING:
    from pipeline.executor.bundle import Bundle
    from pipeline.scheduler.pipeline import Pipeline
    from pipeline.workflow.updates import UpdateCounts


def arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of new versions: origin and conditions."""
    group = parser.add_argument_group("updates")
    group.add_argument(
        "--watch",
        metavar="FOLDER",
        type=Path,
        help="take new versions of the bundle from this folder, each a folder of its own, without losing a frame",
    )
    group.add_argument(
        "--shadow",
        metavar="N",
        type=values.count,
        default=0,
        help="let N frames pass a new version beside the old one first; it is refused if one fails (default: none)",
    )
    group.add_argument(
        "--most-different",
        metavar="X",
        type=values.positive,
        help="with --shadow: refuse a version whose outputs differ from those of the version at work by more than this "
        "share of the largest one (default: any difference is taken)",
    )
    group.add_argument(
        "--most-slower",
        metavar="X",
        type=values.positive,
        default=1.5,
        help="go back if frames of a new version take more than X times as long, or fail (default: 1.5)",
    )


def check_folder(options: argparse.Namespace) -> None:
    """Raise `InputError` unless the folder of new versions is one."""
    if options.watch and not options.watch.is_dir():
        raise InputError(f"--watch {str(options.watch)!r} is no folder; make it, and put new versions into it")
    if options.most_different and not options.shadow:
        raise InputError("--most-different compares outputs in the shadow of the version at work; give --shadow N too")


@dataclasses.dataclass
class Updates:
    """New versions, as the options ask for them."""

    options: argparse.Namespace
    """Options, with those of `arguments`."""
    load: Callable[[Path], Bundle]
    counts: UpdateCounts | None = None
    """Counts of versions by outcome, after the stream has ended; None if nobody looked for any."""

    def load_first(self, path: Path) -> Bundle:
        """Load the recorded last version, or the command's bundle."""
        if self.options.watch is None:
            return self.load(path)
        from pipeline.workflow.update_record import UpdateRecord

        return UpdateRecord(self.options.watch, path).load(self.load)

    @contextlib.contextmanager
    def watch(self, running: Pipeline, bundle: Bundle) -> Iterator[None]:
        """Take new versions while the block runs."""
        if self.options.watch is None:
            yield
            return
        from pipeline.workflow.update_checks import UpdateOptions
        from pipeline.workflow.update_record import UpdateRecord
        from pipeline.workflow.updates import Updater

        options = self.options
        limits = UpdateOptions(shadow=options.shadow, tolerance=options.most_different, most_slower=options.most_slower)
        record = UpdateRecord(self.options.watch, Path(self.options.bundle)).note
        with Updater(running, bundle, self.options.watch, self.load, limits, record=record) as updater:
            yield
        self.counts = updater.counts
