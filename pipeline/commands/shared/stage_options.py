"""Build options of all stages that change their times, and ``--stage-option`` of one."""

from __future__ import annotations

import argparse
import contextlib
from dataclasses import fields
from typing import TYPE_CHECKING, Any

from pipeline.core.plan.stage_options import DEFAULT_PRECISION, PRECISIONS, StageOptions, rename_options
from pipeline.errors import PlanError, near

if TYPE_CHECKING:
    from pipeline.core.plan.plan import Plan

OPTION = "--stage-option"
_KEYS = tuple(field.name for field in fields(StageOptions))


def arguments(parser: argparse._ActionsContainer) -> None:
    """Declare the options."""
    parser.add_argument(
        "--precision",
        choices=PRECISIONS,
        default=DEFAULT_PRECISION,
        help="multiply as float32; float32-exact, without Winograd's transforms; bfloat16 or float16, where the "
        f"processor has it; or auto, what it multiplies fastest (default: {DEFAULT_PRECISION})",
    )
    # Earlier names of parts of it.
    hidden: dict[str, Any] = {"dest": "precision", "help": argparse.SUPPRESS, "default": argparse.SUPPRESS}
    parser.add_argument("--winograd", action="store_const", const="float32", **hidden)
    parser.add_argument("--arithmetic", metavar="TYPE", choices=PRECISIONS, **hidden)
    parser.add_argument("--weights", metavar="TYPE", default="float32", help=argparse.SUPPRESS)
    parser.add_argument(
        OPTION,
        metavar="STAGE.KEY=VALUE",
        action="append",
        default=[],
        help="build one stage otherwise than the others: stage1.precision=bfloat16, "
        "stage1.tolerance=1e-3, or a key of its device's target, stage1.target.mcpu=cortex-a53; kept in the plan; may "
        "be repeated",
    )


def apply(plan: Plan, options: argparse.Namespace) -> Plan:
    """Return the plan with stage options from the command line, or raise `PlanError`."""
    for text in options.stage_option:
        stage, key, value = _parse(text)
        changes = {key: value}
        if isinstance(value, dict):
            changes = {key: {**(plan.stage(stage).options.target or {}), **value}}
        # One after the other: a later option wins, and one of the target adds to those before it.
        plan = plan.with_options(stage, **changes)
    return plan


def _parse(text: str) -> tuple[str, str, Any]:
    """Return the stage, the key and its value."""
    names, _, value = text.partition("=")
    # A stage's own name may have dots in it.
    stage, _, key = names.rpartition(".")
    target_key = ""
    if stage.endswith(".target"):
        stage, target_key, key = stage.removesuffix(".target"), key, "target"
    if not (stage and value and (key != "target" or target_key)):
        raise PlanError(f"{OPTION} {text!r} must be like 'stage1.precision=bfloat16': a stage, a key and its value")
    plain = tuple(value.split(",")) if key == "float32_layers" else _value(value)
    (new_key,) = rename_options({key: plain})
    if new_key not in _KEYS:
        raise PlanError(f"{OPTION} {text!r}: no option {key!r}; there are {', '.join(_KEYS)}{near(key, _KEYS)}")
    return stage, key, {target_key: plain} if target_key else plain


def _value(text: str) -> Any:
    """Parse a truth value, number, feature list (``+neon,-sve``) or text."""
    if text in ("true", "false"):
        return text == "true"
    with contextlib.suppress(ValueError):
        # Whole numbers stay whole: some keys of a target take no others.
        return int(text)
    with contextlib.suppress(ValueError):
        return float(text)
    return text.split(",") if text.startswith(("+", "-")) else text
