from __future__ import annotations

import pytest

from hotplate.serving.replica.description import DEPTH_MAX, NODES_MAX, read_description

ALIASES = b"a: &a [x, x]\nb: &b [*a, *a]\nname: *b\n"


def test_a_description_is_read_with_its_aliases() -> None:
    assert read_description(ALIASES)["name"] == [["x", "x"], ["x", "x"]]


HOSTILE = {
    "so deep that the C loader would end the process": (b"[" * 200_000, f"{DEPTH_MAX} deep"),
    "deep by indentation": (b"".join(b" " * n + b"a:\n" for n in range(200)), f"{DEPTH_MAX} deep"),
    "millions of values": (b"a: [" + b"a," * (1 << 20) + b"]", f"more than {NODES_MAX} values"),
    "no text": (b"\0\xff", "it is not YAML"),
    "no mapping": (b"[]", "it is not a mapping"),
    "a python object": (b"a: !!python/object/apply:os.getpid []", "it is not YAML"),
}


@pytest.mark.parametrize(("data", "reason"), HOSTILE.values(), ids=HOSTILE)
def test_a_hostile_description_is_refused_with_its_reason(data: bytes, reason: str) -> None:
    with pytest.raises(ValueError, match=reason) as refused:
        read_description(data)
    assert "\n" not in str(refused.value)
