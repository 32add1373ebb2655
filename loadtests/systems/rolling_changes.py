"""Changes of a deployment, good ones and ones that cannot start, and what each must come to."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tests.support.end_to_end.laptop import Laptop
from tests.support.end_to_end.platform_process import Platform
from tests.support.end_to_end.rough_client import Bento, RoughClient
from tests.support.patience import until

ROLLED_S = 120.0
"""How long a change may take."""
COOKING = b'{"seconds": 0.02}'
"""A short request to the kitchen."""
KEPT_UP = 0.98
"""The least share of the rate that must have been asked."""
FAILED = ("failed", "image-build-failed")
REASONS = {"bad bento": "this one never starts", "bad environment": "uv pip install"}
"""What the platform must say of a revision that cannot start."""


@dataclass(frozen=True)
class Change:
    """One update of a deployment, and its expected result."""

    what: str
    body: dict[str, Any]
    fails_with: str = ""
    """A part of the reason; empty = the revision must serve."""
    same: bool = False
    """No replica may start or end."""


async def pushed(laptop: Laptop, rough: RoughClient, name: str, source: str) -> dict[str, str]:
    """The tags of two good bentos, one whose service raises, one that cannot be installed."""
    await laptop.build(name, source)
    first = Bento.read(laptop.home / "bentos" / name / "v1")
    raising = source + "\n\nraise RuntimeError('this one never starts')\n"
    bentos = {
        "v1": first,
        "v2": first.changed(f"{name}-2", {"src/service.py": source.replace('"v1"', '"v2"')}),
        "bad bento": first.changed(f"{name}-raising", {"src/service.py": raising}),
        "bad environment": first.changed(
            f"{name}-nowhere",
            {"env/python/requirements.txt": "./wheels/nowhere-1.0-py3-none-any.whl\n"},
        ),
    }
    return {what: await rough.push(bento) for what, bento in bentos.items()}


async def ended(platform: Platform, name: str, number: int) -> dict[str, Any]:
    """The deployment when the roll-out of revision `number` has ended and old replicas are gone."""
    page: dict[str, Any] = {}

    async def over() -> bool:
        page.update(await platform.ask(name))
        serving = {replica["revision"] for replica in page["live"]["replicas"]}
        steady = page["status"] in ("running", *FAILED) and len(serving) == 1
        return steady and page["revision"] == number

    try:
        await until(over, ROLLED_S)
    except TimeoutError:
        page["status"] = f"{page['status']} for {ROLLED_S:g} s"
    return page


def problem_of(change: Change, before: dict[str, Any], page: dict[str, Any], number: int) -> str:
    """What is not as expected; empty if all is."""
    ids = [[replica["id"] for replica in each["live"]["replicas"]] for each in (before, page)]
    if change.fails_with:
        if page["status"] not in FAILED or change.fails_with not in page["reason"]:
            return f"it is {page['status']}: {page['reason']}"
        if "keeps serving" not in page["reason"]:
            return f"the reason does not say that the old revision serves: {page['reason']}"
    elif page["status"] != "running":
        return f"revision {number} is {page['status']}: {page['reason']}"
    if change.same and ids[0] != ids[1]:
        return f"replicas were {ids[0]} and are {ids[1]}"
    return ""
