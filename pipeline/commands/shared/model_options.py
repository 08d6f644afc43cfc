"""Options of a model in place of a bundle: built on its first run, and kept."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pipeline.commands.shared import console, models, plan_options
from pipeline.commands.shared.card_view import describe_candidate, describe_card
from pipeline.errors import InputError

if TYPE_CHECKING:
    from pipeline.core.model_card import ModelCard
    from pipeline.core.plan.plan import Plan
    from pipeline.executor.bundle import Bundle


def arguments(parser: argparse.ArgumentParser) -> None:
    """Add how a model is read and planned."""
    group = parser.add_argument_group("how a model is read and planned, where no bundle is given; see 'plan --help'")
    models.reading_arguments(group)
    plan_options.file_argument(group)
    plan_options.arguments(group, rate=False)


def load_bundle(options: argparse.Namespace, load: Callable[[Path], Bundle]) -> tuple[Bundle, str]:
    """Load the options' bundle, whose folder is ``options.bundle`` from then on.

    Also returns its origin: ``"built"`` from a model now, ``"cache"`` if that was before, or ``"bundle"``. Raises
    `PipelineError` if the model cannot be read, planned, built or kept, or options are given that a bundle has no use
    for.
    """
    from pipeline.workflow import model_cache

    path, choices = Path(options.bundle), _choices(options)
    if not model_cache.is_model(path):
        if choices:
            names = ", ".join(f"--{name.replace('_', '-')}" for name in choices)
            raise InputError(f"{str(path)!r} is a bundle and has its stages; leave out {names}")
        return load(path), "bundle"
    if options.require_signature:
        raise InputError(f"--require-signature is for a bundle; {str(path)!r} is a model, and is built here")
    # The rate of the source says nothing of a model that is kept for others as well.
    model = argparse.Namespace(**{**vars(options), "model": options.bundle, "size": [], "fps": None})
    plan_options.check_file(model)
    files = [Path(name) for name in (options.plan, options.params, options.board) if name and Path(name).is_file()]
    bundle, options.bundle, is_new = model_cache.load_or_build(
        path, load, lambda: _build(model), choices, files, again=options.fresh
    )
    if is_new:
        console.notice(f"built {path.name}; its bundle is kept in {options.bundle.parent}")
    return bundle, "built" if is_new else "cache"


def explain_decoder(plan: Plan, card: ModelCard, *, is_new: bool, saves: bool) -> None:
    """Say why a decoder was chosen, or name those that a model without one may have.

    A choice is explained at the model's first run, if `is_new`; `saves` is True if outputs have another use.
    """
    facts = describe_card(card, plan)
    if card.decoder:
        origin = card.origins.get("decoder", "")
        if is_new and origin.startswith("guess: "):
            console.notice(f"decoder {card.decoder}, since {origin.removeprefix('guess: ')}; --decode chooses another")
        for gap in facts["missing"] if is_new else ():
            console.notice(f"missing: {gap}")
    elif facts["candidates"]:
        choices = ", or ".join(map(describe_candidate, facts["candidates"]))
        console.notice(f"outputs stay as they are, since they fit several decoders; choose one: {choices}")
    elif facts["missing"] and not saves:
        from pipeline.io.decoders.registry import load_families

        shapes = ", ".join(str(list(spec.shape)) for spec in plan.outputs)
        console.notice(
            f"outputs {shapes} fit no decoder; save them as they are by --sink FILE.npz, or choose one by --decode: "
            f"{', '.join(sorted(load_families()))}"
        )


def _choices(options: argparse.Namespace) -> dict[str, Any]:
    """Return the options of a model that are given."""
    parser = argparse.ArgumentParser(add_help=False)
    arguments(parser)
    return {
        name: getattr(options, name)
        for name, default in vars(parser.parse_args([])).items()
        if getattr(options, name) != default
    }


def _build(options: argparse.Namespace) -> Bundle:
    import pipeline

    graph = models.read(options)
    plan = plan_options.load_or_make_plan(graph, options)
    with console.progress(f"building {options.model}") as step:
        return pipeline.build(graph, plan, progress=step)
