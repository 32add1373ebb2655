"""Every route that changes something leaves a line in the audit, in the change's transaction."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

import pytest

from hotplate.platform.store.audit import AuditFilter
from hotplate.platform.store.parts import Store
from tests.support.control_plane.cloud import MANIFEST, MODEL_MANIFEST, Cloud, tar_of
from tests.support.control_plane.controller_fake import FakeController

OURS = "/api/v1/hotplate"
ORGANIZATION = f"{OURS}/organizations/{{organization}}"
MEMBER = f"{ORGANIZATION}/members/{{name}}"
DEPLOYMENT = "/api/v2/deployments/{name}"
SECRET = {"type": "env", "stage": "runtime", "items": [{"key": "TOKEN", "value": "s3cret"}]}


@dataclass(frozen=True)
class Change:
    """A good call of a route, and the line that it leaves."""

    action: str
    object_name: str
    body: object = None
    data: bytes | None = None
    path: dict[str, str] | None = None
    """What stands in the braces of the route; None = the `name` is `echo`."""
    query: str = ""


CHANGES = {
    ("POST", "/api/v2/deployments"): Change(
        "deployment.create", "new", {"name": "new", "bento": "echo:v1"}
    ),
    ("PUT", DEPLOYMENT): Change("deployment.update", "echo", {"bento": "echo:v2"}),
    ("DELETE", DEPLOYMENT): Change("deployment.delete", "echo"),
    ("POST", f"{DEPLOYMENT}/terminate"): Change("deployment.terminate", "echo"),
    ("PUT", f"{DEPLOYMENT}/void_update"): Change("deployment.update", "echo"),
    ("POST", f"{DEPLOYMENT}/files"): Change(
        "deployment.files",
        "space",
        {"files": [{"path": "service.py", "b64_encoded_content": ""}]},
        path={"name": "space"},
    ),
    ("DELETE", f"{DEPLOYMENT}/files"): Change(
        "deployment.files", "space", {"paths": ["service.py"]}, path={"name": "space"}
    ),
    ("POST", f"{OURS}/deployments/{{name}}/rollout"): Change(
        "rollout.restart", "echo", {"action": "restart"}
    ),
    ("POST", "/api/v1/api_tokens"): Change(
        "token.create", "new", {"name": "new", "scopes": ["endpoint"]}
    ),
    ("DELETE", "/api/v1/api_tokens/{uid}"): Change("token.revoke", "old", path={"uid": "old"}),
    ("POST", "/api/v1/org_secrets"): Change(
        "secret.create", "new", {"name": "new", "content": SECRET}
    ),
    ("PATCH", "/api/v1/org_secrets/{name}"): Change(
        "secret.update", "hf", {"content": SECRET}, path={"name": "hf"}
    ),
    ("DELETE", "/api/v1/org_secrets/{name}"): Change("secret.delete", "hf", path={"name": "hf"}),
    ("POST", f"{OURS}/organizations"): Change("organization.create", "new", {"name": "new"}),
    ("PATCH", ORGANIZATION): Change(
        "organization.update", "rival", {"description": "x"}, path={"organization": "rival"}
    ),
    ("DELETE", ORGANIZATION): Change(
        "organization.delete", "rival", path={"organization": "rival"}, query="?force=true"
    ),
    ("PUT", MEMBER): Change(
        "member.add",
        "eve",
        {"email": "eve@x.com", "role": "developer"},
        path={"organization": "default", "name": "eve"},
    ),
    ("DELETE", MEMBER): Change(
        "member.remove", "bob", path={"organization": "default", "name": "bob"}
    ),
    ("POST", f"{OURS}/users/{{name}}/link"): Change("link.create", "bob", {}, path={"name": "bob"}),
    ("PUT", f"{OURS}/users/{{name}}/operator"): Change(
        "operator.on", "bob", {"operator": True}, path={"name": "bob"}
    ),
    ("PUT", f"{OURS}/quotas/{{organization}}"): Change(
        "quota.update", "rival", {"limit": {"gpus": 1}}, path={"organization": "rival"}
    ),
    ("POST", f"{OURS}/keys/rotate"): Change("key.rotate", ""),
}
for kind, manifest in (("bento", MANIFEST), ("model", MODEL_MANIFEST)):
    versions = f"/api/v1/{kind}_repositories/{{name}}/{kind}s"
    one, v1 = f"{versions}/{{version}}", {"name": "echo", "version": "v1"}
    draft = {"version": "new", "manifest": manifest, "labels": []}
    tar = tar_of({f"{kind}.yaml": "name: echo\nversion: 'v1'\n"})
    unused = "v2" if kind == "bento" else "v1"
    CHANGES |= {
        ("POST", f"/api/v1/{kind}_repositories"): Change(
            f"{kind}_repository.create", "new", {"name": "new"}
        ),
        ("POST", versions): Change(f"{kind}.create", "echo:new", draft),
        ("PATCH", one): Change(f"{kind}.update", "echo:v1", {"description": "x"}, path=v1),
        ("DELETE", one): Change(f"{kind}.delete", f"echo:{unused}", path=v1 | {"version": unused}),
        ("PUT", f"{one}/upload"): Change(f"{kind}.upload", "echo:v1", data=tar, path=v1),
    }

NEEDS_NONE = {
    # Parts of an upload; what they make is told as `bento.upload` (below).
    "start_upload",
    "presign_upload_url",
    "simulate",
    "start_multipart_upload",
    "presign_multipart_upload_url",
    "complete_multipart_upload",
    "finish_upload",
    # A read, though it is a PATCH.
    "presign_download_url",
    # As little as a call at the gateway.
    "call",
}
"""Ends of the paths that leave no line themselves."""


@pytest.fixture
async def operator(cloud: Cloud, controller: FakeController) -> AsyncIterator[Cloud]:
    """With one of everything."""
    made = Cloud(cloud.server, cloud.store, "default", name="admin", operator=True)
    cloud.store.identities.ensure_user("default", "bob", "bob@x.com")
    cloud.store.identities.ensure_user("rival", "rob", "rob@x.com")
    async with made as operator:
        await operator.push_bento()
        await operator.push_bento(version="v2")
        await operator.register("model", "echo", "v1")
        await operator.deploy()
        await operator.make_code_space("space")
        await controller.settled()
        await operator.call("POST", "/api/v1/org_secrets", {"name": "hf", "content": SECRET})
        yield operator


async def test_no_route_that_changes_something_was_forgotten(cloud: Cloud) -> None:
    app: Any = cloud.server.app  # type: ignore[attr-defined]
    changing = {
        (route.method, route.resource.canonical)
        for route in app.router.routes()
        if route.method not in ("GET", "HEAD", "*")
        and route.resource is not None
        and route.resource.canonical.startswith("/api/")
    }
    told = {(m, path) for m, path in changing if path.rpartition("/")[2] not in NEEDS_NONE}
    assert told == CHANGES.keys()


@pytest.mark.parametrize(("method", "route"), CHANGES)
async def test_a_good_call_leaves_its_line(
    operator: Cloud, store: Store, method: str, route: str
) -> None:
    change = CHANGES[method, route]
    inside = change.path or {"name": "echo"}
    if inside.get("uid"):
        body = {"name": "old", "scopes": ["endpoint"]}
        inside = {"uid": (await operator.call("POST", "/api/v1/api_tokens", body))["uid"]}
    (newest,), before = store.audit.page(AuditFilter(), 1)
    path = route.format(**inside) + change.query
    await operator.call(method, path, change.body, change.data)
    found, total = store.audit.page(AuditFilter(), 10)
    assert total == before + 1
    line = found[0]
    assert line.id > newest.id
    assert (line.actor, line.token, line.action) == ("admin", "laptop", change.action)
    assert line.object == change.object_name or (change.object_name == "" and line.object)
    assert (line.outcome, line.address, line.count) == ("done", "127.0.0.1", 1)
    assert "s3cret" not in str(line.changes)


async def test_an_upload_in_parts_is_told_when_it_is_complete(cloud: Cloud, store: Store) -> None:
    await cloud.register("model", "bert", "1")
    await cloud.push_parts("bert", "1", [tar_of({"model.yaml": "name: bert\nversion: '1'\n"})])
    (line,), _ = store.audit.page(AuditFilter(action="model.upload"), 10)
    assert (line.actor, line.object, set(line.changes)) == (
        "ada",
        "bert:1",
        {"files", "size_bytes"},
    )
