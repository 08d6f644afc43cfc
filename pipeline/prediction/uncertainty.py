"""Uncertainty: rates of a plan under the published accuracy of its processors.

A draw has a factor for each processor. All of its work is that much faster, transfers included, since published rates
include them. Equal devices have the same error, and so the same factor.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from statistics import NormalDist

import numpy as np

from pipeline.core.board.board import Board, Device
from pipeline.core.plan.plan import Plan
from pipeline.core.plan.stage_plan import StagePlan
from pipeline.prediction.predict import predict

DRAWS = 25
"""Number of draws: enough for a share of 80 %, few enough to predict a plan in each."""

GAIN = 1.1
"""Least notable gain of one plan over another."""

_NORMAL = NormalDist()

# Of a range that holds 90 %, and of the draws: the middles of equal strata.
_ENDS = (0.05, 0.95)
_QUANTILES = [(stratum + 0.5) / DRAWS for stratum in range(DRAWS)]

Factors = Mapping[str, float]
"""Factor of the rates of each device, by its name."""


@dataclass(frozen=True)
class RateRange:
    """Range of a plan's rate in frames per second that holds 90 %."""

    low: float
    high: float
    figures: int
    """Number of published figures behind it, of all processors."""


def rate_range(plan: Plan) -> RateRange | None:
    """Return the range of a plan's rate; None without published figures."""
    accuracies = {device.likeness: device.accuracy for device in _used_devices(plan)}
    figures = sum(accuracy.figures for accuracy in accuracies.values() if accuracy)
    if plan.measured or not figures:
        return None
    if len(accuracies) == 1:
        # The rate follows the only factor: its range needs no draws.
        rates = [
            _rate(plan, {device.name: _factor(device, quantile) for device in _used_devices(plan)})
            for quantile in _ENDS
        ]
    else:
        rates = np.interp(_ENDS, _QUANTILES, sorted(_rates(plan))).tolist()
    return RateRange(min(rates), max(rates), figures)


def gain_share(plan: Plan, baseline: Plan, at_least: float = GAIN) -> float:
    """Return the share of draws with a gain above `at_least`.

    Both plans are of one board, and meet the same draws.
    """
    gains = [rate > at_least * other for rate, other in zip(_rates(plan), _rates(baseline), strict=True)]
    return sum(gains) / len(gains)


def draws(board: Board) -> tuple[Factors, ...]:
    """Return the draws of a board; one without published accuracy.

    They are stratified, and the same in each call. Factors are log-normal, 90 % of them in the accuracy's range.
    """
    devices = [device for device in board.devices if device.accuracy]
    if not devices:
        return ({},)
    # A Latin hypercube: each processor meets each of its quantiles once.
    orders = dict[str, list[float]]()
    for likeness in dict.fromkeys(device.likeness for device in devices):
        orders[likeness] = np.random.default_rng(len(orders)).permutation(_QUANTILES).tolist()
    return tuple(
        {device.name: _factor(device, orders[device.likeness][draw]) for device in devices} for draw in range(DRAWS)
    )


def _factor(device: Device, quantile: float) -> float:
    """Return a quantile of a device's factor."""
    if device.accuracy is None:
        return 1.0
    low, high = math.log(device.accuracy.low), math.log(device.accuracy.high)
    # Both ends of the range are as far from the middle.
    share = _NORMAL.inv_cdf(quantile) / _NORMAL.inv_cdf(_ENDS[1])
    return math.exp((low + high + (high - low) * share) / 2)


def _used_devices(plan: Plan) -> list[Device]:
    names = {name for stage in plan.stages for name in (*stage.replica_names, *(step.device for step in stage.steps))}
    return [device for device in plan.board.devices if any(map(device.is_called, names))]


def _rates(plan: Plan) -> Iterator[float]:
    """Yield a plan's rate in each draw of its board."""
    used, rates = {device.name for device in _used_devices(plan)}, dict[frozenset[tuple[str, float]], float]()
    for factors in draws(plan.board):
        # Measured times are right, and other devices change nothing.
        key = frozenset(item for item in factors.items() if item[0] in used and not plan.measured)
        if key not in rates:
            rates[key] = _rate(plan, dict(key))
        yield rates[key]


def _rate(plan: Plan, factors: Factors) -> float:
    if not factors:
        return predict(plan).frames_per_s
    board = plan.board
    by_name = {
        name: factors.get(device.name, 1.0) for device in board.devices for name in (device.name, *device.variants)
    }
    stages = tuple(_scale_stage(stage, by_name) for stage in plan.stages)
    return predict(replace(plan, board=_scale_board(board, by_name), stages=stages)).frames_per_s


def _scale_board(board: Board, factors: Factors) -> Board:
    """Return a board with other rates of devices and links."""
    # The device beside the caller's pays for a link, and so its error is the link's.
    home = board.home.memory if board.home else ""
    rates = {device.memory: factors[device.name] for device in board.devices if device.memory != home}
    devices = (replace(device, bytes_per_s=device.bytes_per_s * factors[device.name]) for device in board.devices)
    links = []
    for link in board.links:
        rate = next((rates[end] for end in link.ends if end in rates), 1.0)
        links.append(replace(link, bytes_per_s=link.bytes_per_s * rate, latency_s=link.latency_s / rate))
    return replace(board, devices=tuple(devices), links=tuple(links))


def _scale_stage(stage: StagePlan, factors: Factors) -> StagePlan:
    """Return a stage with other rates of its devices."""
    steps = tuple(
        replace(step, seconds=step.seconds / factors[step.device], transfer_s=step.transfer_s / factors[step.device])
        for step in stage.steps
    )
    before_s, after_s = (sum(step.seconds for step in parts) for parts in (stage.steps, steps))
    ratio = after_s / before_s if before_s else 1 / factors[stage.device]
    return replace(
        stage,
        seconds=stage.seconds * ratio,
        transfer_s=stage.transfer_s * ratio,
        replica_seconds=tuple(seconds * ratio for seconds in stage.replica_seconds),
        memory_traffic=stage.memory_traffic / factors[stage.device],
        steps=steps,
    )
