"""Addresses of remote devices."""

import pytest

from pipeline.core.remote_address import Address, alternatives, parse
from pipeline.errors import BoardError


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("remote://board:9123/cpu", Address("remote", "board", 9123)),
        ("remote://[::1]:1/cuda?timeout=2&patience=0", Address("remote", "::1", 1, "cuda", 2.0, 0.0)),
        ("rpc://10.0.0.2:9090/cpu?key=pynq", Address("rpc", "10.0.0.2", 9090, key="pynq")),
        ("rpc://hub:9190/pynq?tracker&device=cuda", Address("rpc", "hub", 9190, "cuda", tracker=True, key="pynq")),
        ("local:cpu", Address("local")),
        ("pool:cameras", Address("pool", key="cameras", timeout=1.0)),
        (
            "pool:dock-2/bundle?via=tcp/hub:7447&tls=keys",
            Address("pool", device="bundle", key="dock-2", timeout=1.0, tls="keys", via="tcp/hub:7447"),
        ),
    ],
)
def test_what_an_address_says(text: str, expected: Address) -> None:
    assert parse(text) == expected
    assert parse(str(expected)).host == expected.host


def test_a_tracker_is_a_pool_of_its_servers() -> None:
    tracker = Address("rpc", "hub", 9190, tracker=True, key="pynq", timeout=1.0)
    assert parse("pool:rpc://hub:9190/pynq?tracker") == Address("pool", members=(tracker,), timeout=1.0)


def test_alternatives_are_separated_by_spaces() -> None:
    assert [str(each) for each in alternatives("remote://a:1/cpu?timeout=1 local:cpu")] == [
        "remote://a:1/cpu",
        "local:cpu",
    ]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("board:9123", "write it like remote://"),
        ("http://board:9123/cpu", "write it like remote://"),
        ("remote://board/cpu", "not a whole address"),
        ("remote://board:9123", "not a whole address"),
        ("remote://board:99999/cpu", "not an address"),
        ("remote://board:9123/cpu/0", "not a whole address"),
        ("remote://board:9123/cpu?timeuot=2", "did you mean 'timeout'"),
        ("remote://board:9123/cpu?timeout=soon", "timeout is 'soon'"),
        ("remote://board:9123/cpu?timeout=0", "seconds above 0"),
        ("remote://board:9123/cpu?timeout=nan", "seconds above 0"),
        ("local:cpu?timeout=1", "it takes none"),
        ("pool:", "write it like pool:remote://"),
        ("pool:two words", "write it like pool:remote://"),
        ("pool:cameras/cpu/0", "write it like pool:remote://"),
        ("pool:cameras?viia=x", "did you mean 'via'"),
        ("pool:rpc://hub:9190/pynq?tracker,remote://a:1/cpu", "cannot be a member of a pool"),
        ("pool:rpc://board:9090/cpu", "cannot be a member of a pool"),
    ],
)
def test_mistakes_are_named(text: str, words: str) -> None:
    with pytest.raises(BoardError, match=r"write|there are|it takes|seconds|whole") as caught:
        parse(text)
    assert words in str(caught.value)
