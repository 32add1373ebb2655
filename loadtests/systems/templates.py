"""Storms whose replicas are forked, as they are by default, without a long calm first."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from loadtests.harness.verdict import Verdict
from tests.support.end_to_end.platform_process import Platform

SOON = "calm_s = 0.5"
"""As the section `standby` of a `hotplate.toml`."""


@dataclass
class ForkCount:
    """How many replicas were forked, as a platform says now and then: it forgets them when its
    control plane ends."""

    platform: Platform
    total: int = 0
    _last: int = 0

    async def look(self) -> None:
        said = sum(pool["forks"] for pool in await _pools(self.platform))
        self.total += said - self._last if said >= self._last else said
        self._last = said

    async def show(self, verdict: Verdict) -> None:
        await self.look()
        verdict.figures["replicas that a template has forked, at least"] = self.total
        for why in sorted({pool["unforkable"] for pool in await _pools(self.platform)} - {""}):
            verdict.broken.append(f"an environment has no template: {why}")
        verdict.expect(self.total > 0, "no replica was forked")


async def _pools(platform: Platform) -> list[dict[str, Any]]:
    pools: list[dict[str, Any]] = (await platform.page("standby"))["pools"]
    return pools
