"""A trace of many models: a few busy, most asleep most of the time, with bursts.

    python -m loadtests.many_models --models 60 --days 5 --seed 1 > trace.csv

Popularity follows Zipf's law. Requests come in sessions: a user tries a few things one after
another, and then leaves for minutes to days; a busy model has many users. One session in thirty is
a batch: twenty requests within seconds. Service times are log-normal around the model's own median.
"""

from __future__ import annotations

import argparse
import math
import random
import sys

DAY_S = 86400.0
SESSIONS_PER_DAY = 400.0
"""Those of the most popular model."""
SESSION_REQUESTS = 4.0
"""The mean number of requests of a session."""
THINK_S = 45.0
"""The mean pause between two requests of a session."""
BATCH_SHARE = 1 / 30
BATCH_REQUESTS, BATCH_S = 20, 5.0
SERVICE_S = (3.0, 40.0)
"""A model's median time is between these."""
SPREAD = 0.5
"""Sigma of the logarithm of a request's time."""

Row = tuple[float, float, str, str]


def rows(models: int, days: float, seed: int) -> list[Row]:
    """(arrival s, service s, deployment, organization), by arrival."""
    rng = random.Random(seed)
    found: list[Row] = []
    for number in range(models):
        rate = SESSIONS_PER_DAY / (number + 1) / DAY_S
        low, high = map(math.log, SERVICE_S)
        median_s = math.exp(rng.uniform(low, high))
        now = rng.expovariate(rate)
        while now < days * DAY_S:
            for at in _session(now, rng):
                service_s = rng.lognormvariate(math.log(median_s), SPREAD)
                found.append((at, service_s, f"model-{number}", f"team-{number % 7}"))
            busy_hours = 1.5 + math.sin(2 * math.pi * (now / DAY_S))
            now += rng.expovariate(rate * busy_hours / 1.5)
    return sorted(found)


def _session(began: float, rng: random.Random) -> list[float]:
    if rng.random() < BATCH_SHARE:
        return [began + rng.uniform(0, BATCH_S) for _ in range(BATCH_REQUESTS)]
    times = [began]
    while rng.random() < 1 - 1 / SESSION_REQUESTS:
        times.append(times[-1] + rng.expovariate(1 / THINK_S))
    return times


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--models", type=int, default=60)
    parser.add_argument("--days", type=float, default=5.0)
    parser.add_argument("--seed", type=int, default=1)
    flags = parser.parse_args()
    sys.stdout.write("arrival_s,service_s,deployment,organization\n")
    for arrival_s, service_s, deployment, organization in rows(**vars(flags)):
        sys.stdout.write(f"{arrival_s:.3f},{service_s:.3f},{deployment},{organization}\n")


if __name__ == "__main__":
    main()
