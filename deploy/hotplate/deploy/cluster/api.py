"""The requests that the engine makes of a cluster's API server.

`kubernetes.aio` knows where the server is, whom to trust and who we are, and renews tokens; objects
stay the JSON that they are, as typed models of them cost ten times as much.
"""

from __future__ import annotations

import asyncio
import json
import socket
import ssl
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from typing import Any

import aiohttp

from hotplate.deploy.cluster import names
from hotplate.deploy.cluster.kinds import KINDS, POD, ObjectKind, Ref, ref_of
from hotplate.deploy.cluster.objects import Manifest
from hotplate.deploy.errors import ClusterRefused, ClusterUnreachable
from hotplate.machine.dead_peers import keep_alive

REQUEST_S = 15.0
"""How long one request may take; an API server that is slow by 5 s is still of use."""
WATCH_S = 240
"""After so long the server ends a watch, and another one goes on where it was."""
WATCH_IDLE_S = 5
"""After so long the server is asked whether it is there: there are few watches, which much waits
for."""
SILENT_WATCH_S = WATCH_S + 30.0
FOLLOW_S = 24 * 3600.0
"""The longest that a pod may take to end, while its log is kept."""
PAGE = 500
APPLY = "application/apply-patch+yaml"
MERGE = "application/merge-patch+json"
CONNECTIONS = 1000
"""Each watch holds one."""
READ_BYTES = 2 << 20
"""An event of a watch may be as large."""

Query = Mapping[str, str | int]


class ClusterApi:
    """One API server. Its methods raise `ClusterRefused` and `ClusterUnreachable`."""

    def __init__(self, connection: Any) -> None:
        """`connection` is an `ApiClient` of `kubernetes.aio`."""
        self._client = connection

    @classmethod
    async def connect(cls, kubeconfig: str | None = None) -> ClusterApi:
        """As a pod of the cluster, or as `kubeconfig` (by default $KUBECONFIG or the user's) says.
        Raises `ClusterUnreachable` where neither is there, nor what it takes to read them."""
        try:
            from kubernetes.aio import client, config
        except ModuleNotFoundError as error:
            raise ClusterUnreachable(
                "The Python package 'kubernetes' is not installed: run pip install "
                "'hotplate[kubernetes]'."
            ) from error
        settings = client.Configuration()
        try:
            if kubeconfig is not None:
                await config.load_kube_config(kubeconfig, client_configuration=settings)
            elif not _as_a_pod(config, settings):
                await config.load_kube_config(client_configuration=settings)
        except (config.ConfigException, OSError, ValueError) as error:
            raise ClusterUnreachable(f"There is no cluster to connect to: {error}") from error
        connection = client.ApiClient(settings)
        connection.rest_client.pool_manager = _session(connection.rest_client.ssl_context)
        return cls(connection)

    async def close(self) -> None:
        await self._client.close()

    async def list_all(
        self, kind: ObjectKind, namespace: str, query: Query
    ) -> tuple[list[Manifest], str]:
        """All objects, page by page, and the version that they are of."""
        items: list[Manifest] = []
        token = ""
        while True:
            page = {**query, "limit": PAGE, **({"continue": token} if token else {})}
            answer = await self._ask("GET", kind.path(namespace), page)
            items += answer.get("items") or []
            token = answer["metadata"].get("continue", "")
            if not token:
                return items, answer["metadata"]["resourceVersion"]

    @asynccontextmanager
    async def watch(
        self, kind: ObjectKind, namespace: str, query: Query, version: str
    ) -> AsyncIterator[AsyncIterator[Mapping[str, Any]]]:
        """What happens from that version on: events with `type` and `object`, bookmarks among
        them. It ends by itself."""
        asked = {
            **query,
            "watch": "true",
            "allowWatchBookmarks": "true",
            "resourceVersion": version,
            "timeoutSeconds": WATCH_S,
        }
        async with self._answer(
            "GET", kind.path(namespace), asked, timeout_s=SILENT_WATCH_S
        ) as answer:
            yield (json.loads(line) async for line in _lines(answer))

    async def apply(self, manifest: Manifest, manager: str = names.DEPLOYER) -> Manifest:
        """Have these fields say this, whoever said otherwise; other fields stay as they are."""
        query = {"fieldManager": manager, "force": "true"}
        path = ref_of(manifest).path
        answer: Manifest = await self._ask("PATCH", path, query, manifest, APPLY)
        return answer

    async def create(self, manifest: Manifest, manager: str = names.DEPLOYER) -> Manifest:
        """Refused with 409 if there is one of that name."""
        ref = ref_of(manifest)
        path = KINDS[ref.kind].path(ref.namespace)
        answer: Manifest = await self._ask("POST", path, {"fieldManager": manager}, manifest)
        return answer

    async def scale(self, deployment: Ref, count: int, version: str) -> None:
        """Refused with 409 if the Deployment is no longer of that version."""
        body = {
            "apiVersion": "autoscaling/v1",
            "kind": "Scale",
            "metadata": {
                "name": deployment.name,
                "namespace": deployment.namespace,
                "resourceVersion": version,
            },
            "spec": {"replicas": count},
        }
        query = {"fieldManager": names.SCALER}
        await self._ask("PUT", f"{deployment.path}/scale", query, body)

    async def annotate(self, ref: Ref, annotations: Mapping[str, str]) -> None:
        """As the scaler."""
        body = {"metadata": {"annotations": dict(annotations)}}
        await self._ask("PATCH", ref.path, {"fieldManager": names.SCALER}, body, MERGE)

    async def release(self, anchor: Manifest) -> None:
        """Take our finalizer from an anchor that is being deleted; others stay."""
        meta = anchor["metadata"]
        kept = [each for each in meta.get("finalizers", ()) if each != names.DRAIN]
        body = {"metadata": {"finalizers": kept, "resourceVersion": meta["resourceVersion"]}}
        query = {"fieldManager": names.DEPLOYER}
        await self._ask("PATCH", ref_of(anchor, "ConfigMap").path, query, body, MERGE)

    async def delete(self, ref: Ref, uid: str) -> None:
        """That very object; it is no error if it has gone."""
        body = {"preconditions": {"uid": uid}, "propagationPolicy": "Background"}
        with suppress(_Gone):
            await self._ask("DELETE", ref.path, {}, body)

    async def read(self, ref: Ref) -> Manifest | None:
        """None where there is none."""
        with suppress(_Gone):
            answer: Manifest = await self._ask("GET", ref.path, {})
            return answer
        return None

    async def logs(self, pod: Ref, lines: int, *, previous: bool = False) -> list[str]:
        """The last lines that its container has printed, or the one before it."""
        query: Query = {"tailLines": lines, "container": "replica"}
        if previous:
            query = {**query, "previous": "true"}
        async with self._answer("GET", f"{POD.path(pod.namespace, pod.name)}/log", query) as answer:
            return (await answer.read()).decode(errors="replace").splitlines()

    async def follow(self, pod: Ref, lines: int | None) -> AsyncGenerator[str, None]:
        """As many of the last lines, None = all, and what comes until its container ends."""
        tail: Query = {} if lines is None else {"tailLines": lines}
        query: Query = {**tail, "container": "replica", "follow": "true"}
        path = f"{POD.path(pod.namespace, pod.name)}/log"
        async with self._answer("GET", path, query, timeout_s=FOLLOW_S) as answer:
            async for line in _lines(answer):
                yield line.decode(errors="replace")

    async def printed(
        self, pod: Ref, container: str, since: str = ""
    ) -> AsyncGenerator[tuple[str, str], None]:
        """All that the container prints until it ends: lines, each with the time that the node gave
        it, by which they are ordered. `since` such a time = only later ones."""
        query: Query = {"container": container, "follow": "true", "timestamps": "true"}
        if since:
            query = {**query, "sinceTime": since}
        path = f"{POD.path(pod.namespace, pod.name)}/log"
        async with self._answer("GET", path, query, timeout_s=FOLLOW_S) as answer:
            async for line in _lines(answer):
                at, _, text = line.decode(errors="replace").partition(" ")
                if at > since:
                    yield at, text

    async def _ask(
        self, method: str, path: str, query: Query, body: object = None, written: str = ""
    ) -> Any:
        async with self._answer(method, path, query, body, written) as answer:
            return json.loads(await answer.read())

    @asynccontextmanager
    async def _answer(
        self,
        method: str,
        path: str,
        query: Query,
        body: object = None,
        written: str = "",
        timeout_s: float = REQUEST_S,
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        headers = {"Accept": "application/json", "Content-Type": written or "application/json"}
        request = await self._client.param_serialize(
            method,
            path,
            query_params=list(query.items()),
            header_params=headers,
            body=body,
            auth_settings=["BearerToken"],
        )
        what = f"{method} {path}"
        try:
            sent = await self._client.call_api(*request, _request_timeout=timeout_s)
            async with sent.response as answer:
                if answer.status >= 400:
                    raise _refusal(answer.status, await answer.read())
                yield answer
        except (aiohttp.ClientError, TimeoutError, asyncio.IncompleteReadError) as error:
            said = str(error) or type(error).__name__
            raise ClusterUnreachable(f"The API server does not answer {what}: {said}") from error


def _session(trust: ssl.SSLContext) -> aiohttp.ClientSession:
    """As the client would make it, but that it notices after 20 s when the API server has vanished
    without a word: nobody sends anything while a watch has nothing to tell."""
    connector = aiohttp.TCPConnector(limit=CONNECTIONS, ssl=trust, socket_factory=lively_socket)
    return aiohttp.ClientSession(connector=connector, trust_env=True, read_bufsize=READ_BYTES)


def lively_socket(address: tuple[Any, ...]) -> socket.socket:
    """A new socket for one of the addresses that `getaddrinfo` gives, with keep-alive."""
    family, kind, protocol, *_ = address
    made = socket.socket(family, kind, protocol)
    keep_alive(made, WATCH_IDLE_S)
    return made


def _as_a_pod(config: Any, settings: Any) -> bool:
    """Whether this is a pod of a cluster, whose account the settings have then."""
    try:
        config.load_incluster_config(client_configuration=settings)
    except config.ConfigException:
        return False
    return True


class _Gone(ClusterRefused):
    """There is no such object, or another one of that name."""


def _refusal(status: int, body: bytes) -> ClusterRefused:
    try:
        message = json.loads(body)["message"]
    except (ValueError, KeyError, TypeError):
        message = body.decode(errors="replace")
    gone = status == 404 or (status == 409 and "Precondition failed" in message)
    return (_Gone if gone else ClusterRefused)(message, status)


async def _lines(answer: aiohttp.ClientResponse) -> AsyncIterator[bytes]:
    buffered = b""
    async for piece in answer.content.iter_any():
        *lines, buffered = (buffered + piece).split(b"\n")
        for line in lines:
            if line.strip():
                yield line
    if buffered.strip():
        yield buffered
