"""Which parts of which tensors are wanted, as by one rank of a tensor-parallel model. Pure."""

from __future__ import annotations

import fnmatch
import itertools
import operator
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Union

WHOLE = ...
"""The rule for a tensor that is wanted whole."""


class Part(NamedTuple):
    """The rule for elements `start` up to `stop` along dimension `dim`; a plain tuple does too."""

    dim: int
    start: int
    stop: int


class Shard(NamedTuple):
    """The rule for the `rank`-th of `world` equal parts along dimension `dim`."""

    dim: int
    rank: int
    world: int


Rule = Union[Part, Shard, tuple[int, int, int], Any, None]
"""What is wanted of a tensor; `WHOLE`, or None for nothing."""

Index = tuple[slice, ...]
"""The index that gives the part of a tensor; () for all of it."""


def shard(dim: int, rank: int, world: int) -> Shard:
    """The rule for rank `rank` (from 0) of `world` ranks that share dimension `dim` evenly.

    Raises ValueError for a rank that is not one of them.
    """
    if not 0 <= rank < world:
        raise ValueError(f"rank {rank} is none of 0 to {world - 1}; give each rank its own")
    return Shard(dim, rank, world)


@dataclass(frozen=True)
class Plan:
    """What is wanted of each tensor of a file.

    Plan({"*.q_proj.weight": shard(0, rank, world),
          "*.o_proj.weight": shard(1, rank, world),
          "lm_head.weight": (0, 0, 4096),
          "*.rotary_emb.*": None})
    """

    rules: Mapping[str, Rule] = field(default_factory=dict)
    """By name, or by a pattern with `*`, `?`, `[…]`; a name goes first, then the first pattern."""
    rest: Rule = WHOLE
    """For the tensors that no rule names."""

    def index(self, name: str, shape: Sequence[int]) -> Index | None:
        """The index of the wanted part of that tensor; None to leave it out.

        Raises ValueError for a rule that its shape has no room for.
        """
        rule = self._rule(name)
        if rule is None or rule is WHOLE:
            return None if rule is None else ()
        try:
            dim, start, stop = map(operator.index, rule)
        except (TypeError, ValueError):
            raise ValueError(
                f"plan for {name}: {rule!r} is none of (dim, start, stop), shard(…), WHOLE and None"
            ) from None
        if not -len(shape) <= dim < len(shape):
            raise ValueError(f"plan for {name}: shape {list(shape)} has no dimension {dim}")
        length = shape[dim]
        if isinstance(rule, Shard):
            if length % rule.world:
                raise ValueError(
                    f"plan for {name}: {length} along dimension {dim} cannot be shared evenly by "
                    f"{rule.world} ranks"
                )
            step = length // rule.world
            start, stop = rule.rank * step, (rule.rank + 1) * step
        if not 0 <= start <= stop <= length:
            raise ValueError(
                f"plan for {name}: {start} to {stop} is not within the {length} along dimension "
                f"{dim}"
            )
        return (slice(None),) * (dim % len(shape)) + (slice(start, stop),)

    def _rule(self, name: str) -> Rule:
        if name in self.rules:
            return self.rules[name]
        patterns = (one for one in self.rules if fnmatch.fnmatchcase(name, one))
        return self.rules.get(next(patterns, ""), self.rest)


def spans(
    shape: Sequence[int], strides: Sequence[int], item_bytes: int, hole_bytes: int
) -> Iterator[tuple[int, int]]:
    """Byte ranges (start, stop) that a strided tensor takes, from its first element on.

    `strides` are positive, in elements. Ranges with fewer than `hole_bytes` between them are one:
    where bytes come in chunks of that size, each chunk of such a hole is needed anyway.
    """
    if 0 in shape:
        return
    axes = sorted(
        (stride * item_bytes, length) for length, stride in zip(shape, strides) if length > 1
    )
    run_bytes = item_bytes
    while axes and axes[0][0] - run_bytes < hole_bytes:
        step, length = axes.pop(0)
        run_bytes += (length - 1) * step
    for offsets in itertools.product(
        *(range(0, length * step, step) for step, length in reversed(axes))
    ):
        yield sum(offsets), sum(offsets) + run_bytes
