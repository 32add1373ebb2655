"""Public traces of language models, read as they are published. Each file is one deployment.

They have tokens, or only rates, and no durations. These are modelled: 20 ms per generated token and
0.2 ms per token of context, about what a model of ten billion parameters takes on one GPU with a
full batch.
"""

from __future__ import annotations

import json
import math
import random
from collections.abc import Callable, Iterator
from datetime import datetime
from functools import partial

from hotplate.autoscaler.simulator.request import Request

GENERATED_TOKEN_S = 0.020
CONTEXT_TOKEN_S = 0.0002
CONTEXT_TOKENS, GENERATED_TOKENS = 1000, 200
"""The tokens assumed for every request where a trace only has rates."""
WINDOW_S = 600.0
"""ServeGen's window: each line is the rate of one."""
MOST_PER_S = 1e4
"""The highest rate of one client, requests/s; a higher one is a mistake."""

Reader = Callable[[str], Iterator[Request]]
"""Returns the requests of one line. Raises ValueError, KeyError, TypeError or ArithmeticError for
an invalid line."""


def reader(first: str, name: str, rng: random.Random) -> Reader | None:
    """The reader for a file with this first line; None = the format is not known.

    `name`: the name of the deployment. The reader shall get the first line too.
    """
    if first.strip() == "TIMESTAMP,ContextTokens,GeneratedTokens":
        return _Azure(name)
    if first.startswith("{") and '"input_length"' in first:
        return partial(_mooncake, name)
    fields = first.strip().split(",")
    if len(fields) == 6 and fields[3] in _GAPS:
        return partial(_servegen, name, rng)
    return None


def service_s(context_tokens: int, generated_tokens: int) -> float:
    """How long a replica works on a request with these tokens, seconds."""
    return CONTEXT_TOKEN_S * context_tokens + GENERATED_TOKEN_S * generated_tokens


class _Azure:
    """Azure's LLM inference traces of 2023: dates and tokens."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._began: datetime | None = None

    def __call__(self, line: str) -> Iterator[Request]:
        if line.startswith("TIMESTAMP") or not line.strip():
            return
        at, context, generated = line.strip().split(",")
        time = datetime.fromisoformat(at[:26])  # their seventh digit is always 0
        self._began = self._began or time
        arrival_s = (time - self._began).total_seconds()
        yield Request(arrival_s, service_s(int(context), int(generated)), self._name, "azure")


def _mooncake(name: str, line: str) -> Iterator[Request]:
    """Mooncake's traces: milliseconds, tokens."""
    if line.strip():
        row = json.loads(line)
        worked_s = service_s(row["input_length"], row["output_length"])
        yield Request(row["timestamp"] / 1000, worked_s, name, "mooncake")


def _servegen(name: str, rng: random.Random, line: str) -> Iterator[Request]:
    """ServeGen's rates of one client: window start s, requests/s, CV, distribution, its shape.

    Gaps between requests are drawn from the distribution, with the mean that the rate gives.
    """
    start, rate, _, distribution, shape, _ = line.strip().split(",")
    per_s = float(rate)
    if not per_s <= MOST_PER_S:
        raise ValueError(f"{rate} requests/s are more than {MOST_PER_S:.0f}")
    if per_s <= 0:
        return
    draw, at_s = _GAPS[distribution], 0.0
    worked_s = service_s(CONTEXT_TOKENS, GENERATED_TOKENS)
    while (at_s := at_s + draw(rng, float(shape)) / per_s) < WINDOW_S:
        yield Request(float(start) + at_s, worked_s, name, "servegen")


def _gamma_gap(rng: random.Random, shape: float) -> float:
    """Of mean 1."""
    return rng.gammavariate(shape, 1 / shape)


def _weibull_gap(rng: random.Random, shape: float) -> float:
    """Of mean 1."""
    return rng.weibullvariate(1 / math.gamma(1 + 1 / shape), shape)


def _no_gap(rng: random.Random, shape: float) -> float:
    return math.inf


_GAPS: dict[str, Callable[[random.Random, float], float]] = {
    "Gamma": _gamma_gap,
    "Weibull": _weibull_gap,
    "": _no_gap,
}
