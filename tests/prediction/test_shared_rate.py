"""A server in equal parts, followed by hand."""

import pytest

from pipeline.prediction.shared_rate import SharedRate


@pytest.mark.parametrize(
    ("per_s", "arrivals", "ends"),
    [
        (1.0, [(0.0, 3.0)], [3.0]),
        (2.0, [(0.0, 3.0)], [1.5]),
        (2.0, [(1.0, 3.0)], [2.5]),
        # Two have half of it each, and the one that is left has all.
        (2.0, [(0.0, 4.0), (0.0, 4.0)], [4.0, 4.0]),
        (2.0, [(0.0, 2.0), (0.0, 4.0)], [2.0, 3.0]),
        (2.0, [(0.0, 4.0), (0.0, 2.0)], [3.0, 2.0]),
        (1.0, [(0.0, 1.0), (0.0, 2.0), (0.0, 3.0)], [3.0, 5.0, 6.0]),
        # One comes while another is served: of 4, 2 are left then.
        (2.0, [(0.0, 4.0), (1.0, 2.0)], [3.0, 3.0]),
        (2.0, [(0.0, 4.0), (1.0, 1.0)], [2.5, 2.0]),
        (2.0, [(0.0, 4.0), (0.0, 4.0), (1.0, 2.0)], [5.0, 5.0, 4.0]),
        # One comes after the other has gone, at once or after a pause.
        (2.0, [(0.0, 4.0), (2.0, 2.0)], [2.0, 3.0]),
        (2.0, [(0.0, 4.0), (5.0, 2.0), (5.0, 2.0)], [2.0, 7.0, 7.0]),
        # Nothing to do takes no time.
        (2.0, [(0.0, 0.0), (0.0, 2.0)], [0.0, 1.0]),
    ],
)
def test_all_are_served_in_equal_parts(per_s: float, arrivals: list[tuple[float, float]], ends: list[float]) -> None:
    rate = SharedRate[int](per_s)
    waiting = list(enumerate(arrivals))
    results: dict[int, float] = {}
    while len(results) < len(arrivals):
        due = rate.next_time()
        if waiting and waiting[0][1][0] <= due:
            number, (time, amount) = waiting.pop(0)
            rate.add(time, amount, number)
        else:
            results[rate.pop(due)] = due
    assert [results[number] for number in range(len(arrivals))] == pytest.approx(ends)
    assert rate.next_time() == float("inf")


def test_a_change_makes_earlier_answers_void() -> None:
    rate = SharedRate[str](1.0)
    versions = [rate.version]
    for number in range(2):
        rate.add(0.0, 1.0, str(number))
        versions.append(rate.version)
    rate.pop(rate.next_time())
    versions.append(rate.version)
    assert len(set(versions)) == len(versions)
