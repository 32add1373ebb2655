"""What a load test may ask: deployments of a platform, and addresses that stay what they are."""

from __future__ import annotations

import http.server
import json
import threading
from collections.abc import Mapping
from typing import Any

import pytest

from hotplate.platform.errors import BadSetting, Conflict, NotFound
from hotplate.platform.loadtest.asking.target import (
    LoadTarget,
    checked_route,
    method_of,
    of_name,
    of_url,
    route_of,
    schema_of,
    unknown_route,
    watched,
)
from hotplate.platform.schema.methods import ServiceMethod, service_methods

HEADER = [{"key": "hotplate/organization-header", "value": "X-Org"}]


def page(name: str = "chat", **changes: Any) -> dict[str, Any]:
    """The platform's page on a deployment."""
    return {
        "name": name,
        "status": "running",
        "reason": "1 replica ready",
        "wanted": "running",
        "url": "http://127.0.0.1:7100",
        "serving": 1,
        "labels": HEADER,
        "config": {"access_authorization": True},
        "live": {"services": [{"max_replicas": 3}], "replicas": []},
        **changes,
    }


class Pages:
    """A platform's API with these deployments."""

    def __init__(self, *pages: Mapping[str, Any]) -> None:
        self._pages = {page["name"]: page for page in pages}

    def __call__(self, path: str) -> Any:
        if path == "/deployments":
            return list(self._pages.values())
        name = path.removeprefix("/deployments/")
        if name not in self._pages:
            raise NotFound(f"no deployment {name}")
        return self._pages[name]


def test_a_name_is_the_deployment_with_its_url_header_and_whether_it_is_protected() -> None:
    found = of_name("chat", Pages(page()))
    assert found == LoadTarget("http://127.0.0.1:7100", "chat", "X-Org", protected=True)


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("chta", "there is no deployment chta; did you mean chat?"),
        ("zzz", "there is no deployment zzz; there are chat, embed"),
    ],
)
def test_an_unknown_name_is_refused_with_the_nearest(name: str, said: str) -> None:
    with pytest.raises(NotFound) as refused:
        of_name(name, Pages(page(), page("embed")))
    assert str(refused.value) == said


def test_where_there_is_no_deployment_that_is_said() -> None:
    with pytest.raises(NotFound, match="no deployment chat; there is none at all"):
        of_name("chat", Pages())


@pytest.mark.parametrize("name", ["localhost:7100", "a/b", "../x", "", "a b", "ä", "http:/x"])
def test_what_is_neither_name_nor_url_is_refused(name: str) -> None:
    with pytest.raises(BadSetting, match="neither a deployment's name nor a URL"):
        of_name(name, Pages(page()))


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"wanted": "terminated", "status": "terminated"}, "is terminated and answers nobody"),
        ({"wanted": "deleted", "status": "terminating"}, "is deleted and answers nobody"),
        ({"status": "failed", "reason": "no such wheel"}, r"chat has failed \(no such wheel\)"),
        (
            {"serving": None, "status": "deploying", "reason": "revision 1 is starting"},
            r"does not serve yet, it is deploying \(revision 1 is starting\)",
        ),
        ({"live": {"services": [{"max_replicas": 0}], "replicas": []}}, "may have no replica"),
    ],
)
def test_a_deployment_that_cannot_answer_is_refused_with_the_reason(
    changes: dict[str, Any], said: str
) -> None:
    with pytest.raises(Conflict, match=said):
        of_name("chat", Pages(page(**changes)))
    with pytest.raises(Conflict, match=said):
        watched(of_url("http://localhost:7100"), Pages(page(**changes)))


@pytest.mark.parametrize(
    ("url", "name"),
    [
        ("http://127.0.0.1:7100", "chat"),
        ("http://localhost:7100/", "chat"),
        ("http://[::1]:7100/v1", "chat"),
        ("http://127.0.0.1:7101", ""),
        ("http://127.0.0.1", ""),
        ("http://example.com:7100", ""),
    ],
)
def test_a_url_is_watched_if_it_is_a_deployments(url: str, name: str) -> None:
    found = watched(of_url(url), Pages(page()))
    assert (found.name, found.url) == (name, url.rstrip("/"))
    assert found.protected == bool(name)


@pytest.mark.parametrize(
    "url",
    [
        "ftp://example.com",
        "file:///etc/passwd",
        "http://",
        "http://:80",
        "http://host:0",
        "http://host:99999",
        "http://host:port",
        "http://[::1",
        "http://user:secret@host",
        "http://host/?a=1",
        "http://host/#a",
        "http://ho st",
        "http://host\\@other",
        "http://host\r\nX: 1",
        "http://höst",
    ],
)
def test_an_address_that_is_no_plain_one_is_refused(url: str) -> None:
    with pytest.raises(BadSetting, match=r"^TARGET "):
        of_url(url)


@pytest.mark.parametrize("route", ["/", "/a", "/v1/chat/completions", "/a?x=1&y=http://z", "/a:b"])
def test_a_route_is_a_path(route: str) -> None:
    assert checked_route(route) == route


@pytest.mark.parametrize(
    "route",
    [
        *("", "a", "http://other/a", "//other/a", "/\\other", "/a b", "/a\r\nHost: other", "/a#b"),
        *("/../a", "/a/..", "/a/./b", "/a/%2e%2E/b", "/ä"),
    ],
)
def test_a_route_that_leads_elsewhere_is_refused(route: str) -> None:
    with pytest.raises(BadSetting, match=r"^--route "):
        checked_route(route)


def methods(*routes: str) -> list[ServiceMethod]:
    return [ServiceMethod("m", route, "", False, False, {}) for route in routes]


def test_the_only_method_is_meant_and_of_several_one_has_to_be_named() -> None:
    (only,) = methods("/a")
    assert method_of([only], None) is only
    with pytest.raises(BadSetting, match=r"has 2 methods: choose one by --route \(/a, /b\)"):
        method_of(methods("/a", "/b"), None)
    with pytest.raises(BadSetting, match=r"lists no method at /schema\.json"):
        method_of([], None)
    assert method_of(methods("/a", "/b"), "/b?x=1") == methods("/b")[0]
    assert method_of(methods("/a"), "/v1/other") is None


def test_a_route_that_is_not_listed_is_answered_with_the_nearest() -> None:
    assert "no method /encoed; did you mean /encode?" in str(
        unknown_route(methods("/encode", "/x"), "/encoed")
    )
    assert "no method /q (/encode)" in str(unknown_route(methods("/encode"), "/q"))


def test_the_prefix_of_a_service_is_in_the_url_or_in_the_route_but_not_in_both() -> None:
    below = of_url("http://host/v1/")
    assert below.base("/v1/ask") == "http://host"
    assert below.base("/ask") == "http://host/v1"
    assert below.base("/v1x") == "http://host/v1"
    assert of_url("http://host").base("/v1/ask") == "http://host"


def test_a_route_may_leave_out_the_prefix_of_the_service() -> None:
    listed = methods("/v1/say/hello", "/v1/ask")
    assert method_of(listed, "/ask?x=1") == listed[1]
    assert route_of(listed[1], "/ask?x=1") == "/v1/ask?x=1"
    assert method_of(listed, "/say/hello") == listed[0]
    assert method_of(listed, "/sk") is None
    assert method_of(listed, "/ask", ["/ask"]) is None, "a mounted application answers it"
    assert method_of(listed, "/ask", ["/{name}"]) is None
    assert method_of(listed, "/ask", ["/v1/hall/{name}", "/v1/asks"]) == listed[1]
    assert method_of(methods("/v1/ask", "/v2/ask"), "/ask") is None, "either could be meant"
    assert route_of(None, "/other") == "/other"
    assert route_of(listed[1], None) == "/v1/ask"


class SchemaServer:
    """An HTTP server whose only page is `/schema.json`."""

    def __init__(self, *routes: str) -> None:
        schema = json.dumps({"routes": [{"name": "m", "route": route} for route in routes]})

        class Pages(http.server.BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self.send_response(200 if self.path == "/schema.json" else 404)
                self.end_headers()
                self.wfile.write(schema.encode())

            def log_message(self, *_: Any) -> None:
                pass

        self._server = http.server.HTTPServer(("127.0.0.1", 0), Pages)
        self.url = f"http://127.0.0.1:{self._server.server_port}"

    def __enter__(self) -> SchemaServer:
        threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()


def test_the_schema_of_a_service_with_a_prefix_is_above_it() -> None:
    with SchemaServer("/v1/ask") as server:
        found = schema_of(of_url(f"{server.url}/v1"), "")
        assert [each.route for each in service_methods(found)] == ["/v1/ask"]
        assert found == schema_of(of_url(server.url), "")
        assert schema_of(of_url(f"{server.url}/v2"), "") is None, "it is another service's"
