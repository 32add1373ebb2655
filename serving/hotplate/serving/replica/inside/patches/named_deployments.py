"""Deployments that a service calls by name, `depends(deployment=…)`; runs in the replica
(Python >= 3.9).

BentoML looks them up as the service starts, which fails where one is missing, and never again,
though one that is deployed anew may have another address. Here the service starts without what is
missing, and looks it up while it serves: until it is there, and then from time to time. A call of
one that cannot be called fails with the reason, which the log then has.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Any

RETRY_S = 2.0
"""Pause between two looks for one that cannot be called."""
REFRESH_S = 30.0
"""The same for one that was found."""

logger = logging.getLogger("bentoml")


def look_up_while_serving() -> None:
    """Have every service of this process do so."""
    from _bentoml_impl.server.app import ServiceAppFactory
    from _bentoml_sdk.service.dependency import Dependency
    from bentoml.exceptions import ServiceUnavailable

    create, get = ServiceAppFactory.create_instance, Dependency.get
    lookups: dict[int, Lookup] = {}

    async def create_instance(self: Any, app: Any) -> None:
        every = self.service.dependencies
        named = {n: d for n, d in every.items() if d.deployment and not d.url}
        lookups.update({id(each): Lookup(each) for each in named.values()})
        mine = [lookups[id(each)] for each in named.values()]
        await asyncio.gather(*(lookup.look() for lookup in mine))
        # What is left in it is looked up now, and has to be there.
        self.service.dependencies = {n: d for n, d in every.items() if n not in named}
        try:
            await create(self, app)
        finally:
            self.service.dependencies = every
        self._following = [asyncio.ensure_future(lookup.follow()) for lookup in mine]

    def get_found(self: Any, **given: Any) -> Any:
        lookup = lookups.get(id(self))
        if lookup is None:
            return get(self, **given)
        raise ServiceUnavailable(
            f"The deployment {self.deployment!r} cannot be called now: {lookup.why_not}"
        )

    ServiceAppFactory.create_instance, Dependency.get = create_instance, get_found


class Lookup:
    """Where one of them is."""

    def __init__(self, dependency: Any) -> None:
        """Of this dependency, which nobody has looked up before."""
        self._dependency = dependency
        self.why_not = "it was not looked up yet"
        """Why it cannot be called; empty = it can."""

    async def look(self) -> None:
        """Looks it up once. What is wrong is kept, and logged when it is news."""
        from bentoml._internal.configuration.containers import BentoMLContainer
        from bentoml.exceptions import NotFound

        of = self._dependency
        try:
            api = BentoMLContainer.rest_api_client.get().v2
            found = await asyncio.to_thread(api.get_deployment, of.deployment, of.cluster)
            if not found.urls:
                raise NotFound("it has no URL")
            if of._resolved is None or of.url != found.urls[0]:
                await self._turn_to(found.urls[0])
            self.why_not = ""
        except NotFound as error:
            self._fail(error)
            of._resolved = None  # its address may be another one's by now
        except Exception as error:  # whatever the client's HTTP library raises
            # Where it was found, it is taken to be there still.
            if of._resolved is None:
                self._fail(error)

    async def follow(self) -> None:
        """Looks it up again and again, until cancelled."""
        while True:
            await asyncio.sleep(RETRY_S if self.why_not else REFRESH_S)
            await self.look()

    async def _turn_to(self, url: str) -> None:
        """Have calls go there."""
        from _bentoml_impl.client import RemoteProxy
        from _bentoml_sdk.service import dependency

        of = self._dependency
        proxy: Any = RemoteProxy(url, service=of.on, media_type="application/json")
        await proxy.__aenter__()
        of.url, of._resolved = url, proxy
        if of not in dependency._dependencies:
            dependency._dependencies.append(of)  # closed at the end

    def _fail(self, error: Exception) -> None:
        why_not = str(error) or type(error).__name__
        if why_not != self.why_not:
            logger.warning(
                "Deployment %s cannot be called: %s", self._dependency.deployment, why_not
            )
        self.why_not = why_not
