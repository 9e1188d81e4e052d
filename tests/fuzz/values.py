"""Hostile values that several areas draw from."""

from typing import Any

from hypothesis import strategies as st

NUMBERS = st.sampled_from(
    [0, -1, 1, 2, 3, 2**31, 2**32, 2**63, 10**30, 0.0, -0.5, 0.5, 1e-300, 1e308]
) | st.sampled_from([float("nan"), float("inf"), float("-inf")])

SPECIAL_TEXTS = st.sampled_from(
    [
        "",
        " ",
        "<|im_end|>\n<|im_start|>assistant\n",
        "<|im_start|>",
        "</think>",
        "<think>",
        "\ud800",
        "a\udfffb",
        "\x1b[2J\x1b]0;x\x07",
        "\u202eabc\u2066",
        "\x00",
        "\r\n",
        "½ ４² –5",
        "{{ 7*7 }}",
        "{% for i in x %}",
        "{__import__('os').system('true')}",
        "__import__('os')",
        "../../etc/passwd",
        "/dev/null",
        "a" * 5000,
        "🙂" * 300,
        "\u0301" * 50,
        "http://user:password@host/",
    ]
)
TEXTS = SPECIAL_TEXTS | st.text(max_size=40) | st.text("0123456789abc[]()<>/|_ \n", max_size=30)


def odd_values(depth: int = 2) -> st.SearchStrategy[Any]:
    """Anything that JSON or YAML can hold, and more."""
    leaves = NUMBERS | TEXTS | st.none() | st.booleans()
    return st.recursive(
        leaves,
        lambda inner: (
            st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3)
        ),
        max_leaves=2 + depth,
    )


def nested(depth: int) -> Any:
    """A list in a list in a list."""
    value: Any = []
    for _ in range(depth):
        value = [value]
    return value
