from __future__ import annotations

import math
import random
from typing import TYPE_CHECKING

import pytest

from hotplate.serving.streaming.sharding import WHOLE, Part, Plan, shard, spans
from tests.support.imported_later import imported_later

if TYPE_CHECKING:
    import torch
else:
    torch = imported_later("torch")


def test_a_plan_has_a_rule_for_each_tensor() -> None:
    plan = Plan(
        {
            "norm": None,
            "*.weight": shard(-1, 1, 4),
            "a.weight": (0, 1, 3),
            "b.*": WHOLE,
        },
        rest=Part(0, 0, 1),
    )
    assert plan.index("a.weight", (4, 8)) == (slice(1, 3),), "the name goes before a pattern"
    assert plan.index("b.weight", (4, 8)) == (slice(None), slice(2, 4)), "the first pattern counts"
    assert plan.index("b.bias", (4,)) == ()
    assert plan.index("norm", (4,)) is None
    assert plan.index("other", (4,)) == (slice(0, 1),)
    assert Plan().index("any", ()) == (), "what no rule names comes whole"


@pytest.mark.parametrize(
    ("rule", "shape", "sentence"),
    [
        (shard(0, 0, 3), (4,), "4 along dimension 0 cannot be shared evenly by 3 ranks"),
        ((2, 0, 1), (4, 4), r"shape \[4, 4\] has no dimension 2"),
        ((0, 0, 1), (), r"shape \[\] has no dimension 0"),
        ((0, 0, 5), (4,), "0 to 5 is not within the 4 along dimension 0"),
        ((0, 3, 2), (4,), "3 to 2 is not within"),
        ((0, -1, 2), (4,), "-1 to 2 is not within"),
        ((0, 1), (4,), r"\(0, 1\) is none of"),
        (5, (4,), "5 is none of"),
        ((0, 0.5, 1), (4,), r"\(0, 0.5, 1\) is none of"),
        (("0", 0, 2), (4,), r"\(.0., 0, 2\) is none of"),
    ],
)
def test_a_rule_that_does_not_fit_is_a_sentence(
    rule: object, shape: tuple[int, ...], sentence: str
) -> None:
    with pytest.raises(ValueError, match=f"plan for x: {sentence}"):
        Plan({"x": rule}).index("x", shape)


def test_a_rank_is_one_of_its_world() -> None:
    with pytest.raises(ValueError, match="rank 4 is none of 0 to 3"):
        shard(0, 4, 4)


def test_the_shards_of_all_ranks_are_the_tensor() -> None:
    whole = torch.arange(2 * 6 * 3).reshape(2, 6, 3)
    for dim, world in ((0, 2), (1, 3), (2, 1), (-2, 6)):
        parts = [
            whole[Plan(rest=shard(dim, rank, world)).index("x", whole.shape)]
            for rank in range(world)
        ]
        assert torch.equal(torch.cat(parts, dim), whole)


def test_spans_are_the_bytes_of_a_part_and_no_hole_of_a_chunk() -> None:
    """Against every byte marked one by one."""
    rng = random.Random(5)
    holes = 0
    for _ in range(300):
        shape = [rng.randint(0, 5) for _ in range(rng.randint(0, 4))]
        view = torch.arange(math.prod(shape)).reshape(shape)
        part = view[tuple(slice(rng.randint(0, 2), None, rng.randint(1, 2)) for _ in shape)]
        hole_bytes = rng.choice((1, 4, 9, 100))
        items = part.flatten().tolist()
        needed = {byte for item in items for byte in range(4 * item, 4 * item + 4)}
        first = part.storage_offset() * 4
        got = [
            (first + start, first + stop)
            for start, stop in spans(part.shape, part.stride(), 4, hole_bytes)
        ]
        assert needed <= {byte for start, stop in got for byte in range(start, stop)}
        assert all(start in needed and stop - 1 in needed for start, stop in got)
        for start, stop in got:
            run = 0
            for byte in range(start, stop):
                run = 0 if byte in needed else run + 1
                assert run < hole_bytes
        holes += len(got) > 1
    assert holes > 20
