import sys
from collections.abc import Callable

import pytest

from pipeline.core.plan.plan import Plan
from pipeline.scheduler import Pipeline
from pipeline.scheduler.switch_interval import choose_interval


def test_the_shortest_interval_counts_and_the_old_one_comes_back(chain: Callable[..., Plan]) -> None:
    interval = sys.getswitchinterval()
    with Pipeline(chain(1), switch_interval=interval / 2) as outer_pipeline:
        assert sys.getswitchinterval() == pytest.approx(interval / 2)
        with Pipeline(chain(1), switch_interval=interval / 10):
            assert sys.getswitchinterval() == pytest.approx(interval / 10)
            outer_pipeline.close()
            assert sys.getswitchinterval() == pytest.approx(interval / 10)
        assert sys.getswitchinterval() == pytest.approx(interval)
        with Pipeline(chain(1), switch_interval=interval * 10):
            assert sys.getswitchinterval() == pytest.approx(interval), "never longer"
    assert sys.getswitchinterval() == pytest.approx(interval)


@pytest.mark.parametrize("interval", [0.0, -1.0])
def test_it_is_a_time(chain: Callable[..., Plan], interval: float) -> None:
    with pytest.raises(ValueError, match=f"switch_interval is {interval}"):
        Pipeline(chain(1), switch_interval=interval)


@pytest.mark.parametrize(
    ("stage_s", "interval"),
    [
        ((0.004, 0.002), 0.0005),
        ((0.004, 0.0), 0.001),
        ((0.4,), 0.1),
        ((0.0001,), 0.0001),
        ((0.0,), 0.0005),
    ],
)
def test_commands_choose_it_by_the_shortest_stage(
    chain: Callable[..., Plan], stage_s: tuple[float, ...], interval: float
) -> None:
    plan = chain(len(stage_s), kind="simulated", seconds=dict(zip("abc", stage_s, strict=False)))
    assert choose_interval(plan) == pytest.approx(interval)
