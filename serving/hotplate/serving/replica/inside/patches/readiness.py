"""What a replica responds to `GET /readyz`; runs in the replica (Python >= 3.9).

BentoML's response is for the whole chain: it asks each service that this one calls, waits 5 s for
it, and that one asks the next. Here the gateway holds a service's requests until everything that it
calls is ready, so a replica answers for itself and takes its own bento's services for granted. The
gateway knows nothing about services that it calls by URL alone (`depends(url=…)`,
`depends(deployment=…)`), so the replica asks those; but not for the platform's own checks,
`GET /readyz?of=itself`: they would keep other deployments awake, and end a replica because another
one is down.
"""

from __future__ import annotations

import asyncio
from typing import Any

from hotplate.serving.replica.inside.patches.siblings import Siblings

ITSELF = "of=itself"
"""The query of the platform's checks."""
HOLD_S = 20.0
"""How long a service that is called by URL may take to wake: BentoML's clients ask for 30 s."""


def answer_for_itself(siblings: Siblings) -> None:
    """Have every service of this process do so; `siblings` are services of its own revision.

    BentoML's own checks of others are off here (`variables.py`), so its answer is for itself, with
    an author's `__is_ready__`; `runner_probe.enabled` of the service's configuration counts.
    """
    from _bentoml_impl.server.app import ServiceAppFactory

    itself = ServiceAppFactory.readyz

    async def readyz(self: Any, request: Any) -> Any:
        answer = await itself(self, request)
        probe = self.service.config.get("runner_probe") or {}
        if request.url.query != ITSELF and probe.get("enabled", True):
            called = self.service.dependencies.items()
            await asyncio.gather(*(_reach(self, name, of, siblings) for name, of in called))
        return answer

    ServiceAppFactory.readyz = readyz


async def _reach(factory: Any, name: str, dependency: Any, siblings: Siblings) -> None:
    """Raises HTTPException (503) if what a service calls by URL alone is not ready."""
    from _bentoml_impl.client import RemoteProxy
    from starlette.exceptions import HTTPException

    try:
        proxy = getattr(factory._service_instance, name)
        if not isinstance(proxy, RemoteProxy) or siblings.include(dependency.url):
            return
        ready = await asyncio.wait_for(proxy.is_ready(HOLD_S), HOLD_S)
        why_not = "it is not ready"
    except Exception as error:  # whatever its client's HTTP library raises
        ready, why_not = False, str(error) or f"no answer in {HOLD_S:g} s"
    if not ready:
        raise HTTPException(503, f"{name}, which this service calls at {dependency.url}: {why_not}")
