"""The bucket of an address: what fills it, what empties it, and what leaves it alone."""

import pytest

from pipeline.remote.rate_limit import FAILURE, MOST_ADDRESSES, RateLimit, is_loopback

STRANGER = "10.0.0.1"


@pytest.mark.parametrize(
    ("per_s", "burst", "arrivals"),
    [
        # As many at once as the burst, then one for each that the time has brought.
        (2.0, 3.0, [(0.0, True), (0.0, True), (0.0, True), (0.0, False), (0.5, True), (0.5, False), (1.5, True)]),
        # An idle address collects a burst, and no more.
        (2.0, 2.0, [(100.0, True), (100.0, True), (100.0, False), (200.0, True), (200.0, True), (200.0, False)]),
        # Refused ones take nothing: part of a connection stays part of it.
        (1.0, 1.0, [(0.0, True), (0.5, False), (1.0, True)]),
        (1.0, 1.0, [(0.0, True), (0.25, False), (0.5, False), (0.75, False), (1.0, True), (1.0, False)]),
        (1.0, 1.5, [(0.0, True), (0.0, False), (0.5, True), (0.5, False), (1.5, True)]),
    ],
)
def test_an_address_takes_what_time_has_brought(per_s: float, burst: float, arrivals: list[tuple[float, bool]]) -> None:
    clock = [0.0]
    limit = RateLimit(per_s, burst, clock=lambda: clock[0])
    for seconds, is_allowed in arrivals:
        clock[0] = seconds
        assert limit.allows(STRANGER) == is_allowed, f"after {seconds} s"


@pytest.mark.parametrize(
    ("burst", "failures", "wait_s"),
    [
        (FAILURE + 1.0, 1, 0.0),
        (float(FAILURE), 1, 1.0),
        (1.0, 1, 1.0),
        # A bucket is empty at worst, however often it fails.
        (1.0, 9, 1.0),
        (2.5 * FAILURE, 3, 1.0),
        (2.5 * FAILURE, 2, 0.0),
    ],
)
def test_a_failure_counts_as_many_connections(burst: float, failures: int, wait_s: float) -> None:
    clock = [0.0]
    limit = RateLimit(1.0, burst, clock=lambda: clock[0])
    for _ in range(failures):
        limit.note_failure(STRANGER)
    for share in (0.5, 1.0) if wait_s else (1.0,):
        clock[0] = share * wait_s
        assert limit.allows(STRANGER) == (share == 1)


def test_addresses_have_buckets_of_their_own() -> None:
    limit = RateLimit(1.0, 1.0, clock=lambda: 0.0)
    assert [limit.allows(address) for address in ("10.0.0.1", "10.0.0.2", "10.0.0.1")] == [True, True, False]
    limit.note_failure("10.0.0.3")
    assert not limit.allows("10.0.0.3")


def test_the_address_that_came_least_lately_is_forgotten() -> None:
    limit = RateLimit(1.0, 1.0, exempt=lambda _: False, clock=lambda: 0.0)
    assert all(limit.allows(str(number)) for number in range(MOST_ADDRESSES))
    assert not limit.allows("0"), "it comes again"
    assert limit.allows("one more")
    assert not limit.allows("0")
    assert limit.allows("1"), "it was forgotten, with what it took"


@pytest.mark.parametrize(
    ("address", "is_local"),
    [
        *[("127.0.0.1", True), ("127.9.9.9", True), ("::1", True), ("", True), ("::1%lo", True)],
        *[("10.0.0.1", False), ("fe80::1%eth0", False), ("0.0.0.0", False), ("localhost", False)],
    ],
)
def test_this_machine_has_no_limit(address: str, is_local: bool) -> None:
    assert is_loopback(address) == is_local
    limit = RateLimit(1.0, 1.0, clock=lambda: 0.0)
    assert all(limit.allows(address) for _ in range(3)) == is_local
