"""The release on the test cluster as a user sees it: an organization of its own, and names."""

from __future__ import annotations

import asyncio
import json
from base64 import b64encode
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import aiohttp

from tests.cluster.helm import RELEASE
from tests.cluster.kubectl import Kubectl
from tests.cluster.layout import node_address
from tests.cluster.release import API_PORT, PARTS, Release
from tests.support.end_to_end.any_platform import AnyPlatform
from tests.support.end_to_end.own_hosts import OwnHosts
from tests.support.patience import until

_OURS = "app.kubernetes.io/name"


class ClusterPlatform(AnyPlatform):
    """One organization of the release, whose admin is an operator, too."""

    def __init__(self, release: Release, organization: str, folder: Path) -> None:
        """`folder` is empty, for files of ours."""
        self.url = f"http://{node_address(1)}:{API_PORT}"
        self.organization = organization
        self.shared = Path("/scratch")
        self.token = ""
        self._operators_token = release.token("admin")
        self._kubectl: Kubectl = release.kubectl
        self._namespace = f"{RELEASE}-t-{organization}"
        self._token_file = folder / "token"
        self._callers_token = ""
        self._hosts = OwnHosts(folder / "hosts")

    drained_s = 90.0
    """The time limit of a request, and what Kubernetes grants besides."""

    async def start(self) -> None:
        """Makes the organization."""
        self._hosts.enter()
        await until(self.healthy)
        own = {"name": self.organization}
        await self._as_operator("POST", "/api/v1/hotplate/organizations", own)
        member = f"/api/v1/hotplate/organizations/{self.organization}/members/admin"
        await self._as_operator("PUT", member, {"email": "admin@localhost", "role": "admin"})
        self.token = await self._made_token("scenarios", "api")
        self.signed_in = {"X-YATAI-API-TOKEN": self.token}
        self._callers_token = await self._made_token("callers", "endpoint")
        callers = self._token_file.with_name("callers-token")
        self.caller_flags = ("--endpoint-token-file", str(callers))
        for file, token in ((self._token_file, self.token), (callers, self._callers_token)):
            file.touch(0o600)
            file.write_text(token)

    async def stop(self) -> None:
        """Deletes the organization; nothing of it may be left on the cluster."""
        ours = f"/api/v1/hotplate/organizations/{self.organization}?force=true"
        await self._as_operator("DELETE", ours)

        async def gone() -> bool:
            flags = ("--ignore-not-found", "--output=name")
            return not await self.kubectl("get", "namespace", self._namespace, *flags)

        await until(gone)

    @property
    def callers_token(self) -> str:
        return self._callers_token

    async def url_of(self, name: str) -> str:
        url = await super().url_of(name)
        self._hosts.add(urlsplit(url).hostname or "", node_address(1))
        return url

    @asynccontextmanager
    async def unharmed(self) -> AsyncIterator[None]:
        before, began = await self._roles(), datetime.now(UTC)
        yield
        assert await self._roles() == before
        assert await self.healthy()
        since = (began - timedelta(seconds=1)).strftime("%Y-%m-%dT%H:%M:%SZ")
        for namespace, part in PARTS:
            which = f"--selector={_OURS}={part.partition('/')[2]}"
            flags = (f"--namespace={namespace}", which, f"--since-time={since}", "--tail=-1")
            assert "Traceback" not in await self.kubectl("logs", *flags)

    async def replicas_are_gone(self, name: str) -> bool:
        which = f"--selector=hotplate.dev/deployment={name}"
        return not await self.kubectl(
            "get", "pods", f"--namespace={self._namespace}", which, "--output=name"
        )

    async def delete_pod(self, name: str) -> None:
        """Of one of its replicas."""
        await self.kubectl("delete", "pod", name, f"--namespace={self._namespace}", "--wait=false")

    async def objects_with(self, values: Sequence[str]) -> list[str]:
        """The objects on the cluster that have one of the values, plain or encoded, but for
        Secrets."""
        kinds = await self.kubectl("api-resources", "--verbs=list", "--output=name")
        asked = ",".join(kind for kind in kinds.split() if kind != "secrets")
        said = await self.kubectl("get", asked, "--all-namespaces", "--output=json")
        wanted = [*values, *(b64encode(value.encode()).decode() for value in values)]
        return [
            f"{each['kind']} {each['metadata']['name']}"
            for each in json.loads(said)["items"]
            if any(value in json.dumps(each) for value in wanted)
        ]

    async def kubectl(self, *arguments: str) -> str:
        """What the command prints."""
        return (await asyncio.to_thread(self._kubectl, *arguments)).strip()

    def command_flags(self) -> tuple[str, ...]:
        return ("--endpoint", self.url, "--token-file", str(self._token_file))

    async def _roles(self) -> list[tuple[str, int]]:
        """Each pod of the release, and how often it was restarted."""
        roles = (await self.page("platform"))["roles"]
        return sorted((role["name"], role["restarts"]) for role in roles)

    async def _made_token(self, name: str, scope: str) -> str:
        draft = {"name": name, "description": "", "scopes": [scope], "expired_at": None}
        made = await self._as_operator("POST", "/api/v1/api_tokens", draft)
        return str(made["token"])

    async def _as_operator(self, method: str, path: str, body: Any = None) -> Any:
        headers = {"X-YATAI-API-TOKEN": self._operators_token}
        if not path.startswith("/api/v1/hotplate"):
            headers["X-Hotplate-Organization"] = self.organization
        async with (
            aiohttp.ClientSession(headers=headers) as http,
            http.request(method, f"{self.url}{path}", json=body) as answer,
        ):
            assert answer.status == 200, await answer.text()
            return await answer.json()
