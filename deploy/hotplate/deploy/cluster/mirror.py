"""What a cluster has of some kind, kept up to date by a list and a watch.

`Known` holds it, and follows events without I/O; `Mirror` is the loop around it. A watch
goes on from the last version seen; when the server no longer knows that version (410), everything
is listed anew.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from hotplate.deploy.cluster.api import ClusterApi, Query
from hotplate.deploy.cluster.kinds import ObjectKind, Ref, ref_of
from hotplate.deploy.cluster.objects import Manifest
from hotplate.deploy.errors import ClusterRefused, DeployError

FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.2, 5.0
"""Between attempts to reach a server; a part of each by chance, as all watches lose it at once."""
TOO_OLD = 410

log = logging.getLogger(__name__)


class Known:
    """The objects of one kind, and the version that they are of."""

    def __init__(self, kind: str) -> None:
        self._kind = kind
        self.version = ""
        """Empty until all have been listed, and when they have to be again."""
        self.objects: dict[Ref, Manifest] = {}

    def replace(self, items: Iterable[Manifest], version: str) -> None:
        """These are all that there are."""
        self.objects = {ref_of(item, self._kind): item for item in items}
        self.version = version

    def follow(self, event: Mapping[str, Any]) -> bool:
        """Take over what has happened; whether an object has changed. Raises `ClusterRefused` for
        an event that says that the watch is over."""
        what, item = event["type"], event["object"]
        if what == "ERROR":
            raise ClusterRefused(str(item.get("message")), int(item.get("code") or 500))
        self.version = item["metadata"]["resourceVersion"]
        if what == "BOOKMARK":
            return False
        ref = ref_of(item, self._kind)
        if what == "DELETED":
            return self.objects.pop(ref, None) is not None
        known, self.objects[ref] = self.objects.get(ref), item
        return known is None or known["metadata"]["resourceVersion"] != self.version


class Mirror:
    """One kind in one namespace, or everywhere (`namespace` empty)."""

    def __init__(
        self,
        api: ClusterApi,
        kind: ObjectKind,
        namespace: str,
        query: Query,
        changed: Callable[[], None],
    ) -> None:
        self._api, self._kind, self._namespace, self._query = api, kind, namespace, query
        self._changed = changed
        self._known = Known(kind.name)
        self.listed = asyncio.Event()
        """Set once everything has been listed for the first time."""

    @property
    def objects(self) -> Mapping[Ref, Manifest]:
        return self._known.objects

    async def run(self) -> None:
        """Until cancelled."""
        pause_s = FIRST_PAUSE_S
        while True:
            try:
                await self._list()
                await self._watch()
                pause_s = FIRST_PAUSE_S
                continue
            except ClusterRefused as error:
                if error.status == TOO_OLD:
                    self._known.version = ""
                    continue
                log.warning("%s of %s cannot be watched: %s", self._kind.plural, self._where, error)
            except DeployError as error:
                log.debug("%s of %s: %s", self._kind.plural, self._where, error)
            await asyncio.sleep(pause_s * random.uniform(0.5, 1.0))
            pause_s = min(2 * pause_s, LONGEST_PAUSE_S)

    async def _list(self) -> None:
        if self._known.version:
            return
        items, version = await self._api.list_all(self._kind, self._namespace, self._query)
        self._known.replace(items, version)
        self.listed.set()
        self._changed()

    async def _watch(self) -> None:
        version = self._known.version
        watched = self._api.watch(self._kind, self._namespace, self._query, version)
        async with watched as events:
            async for event in events:
                if self._known.follow(event):
                    self._changed()

    @property
    def _where(self) -> str:
        return self._namespace or "the cluster"
