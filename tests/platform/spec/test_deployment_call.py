"""What a call through the API may say of the request that is made for it."""

from __future__ import annotations

import pytest

from hotplate.platform.errors import Invalid
from hotplate.platform.spec.deployment_call import body_of, checked_path, deployment_call
from hotplate.platform.spec.fields import Fields


@pytest.mark.parametrize(
    "path", ["/", "/say", "/a/b?c=d%20e&f=/../", "/a..b/...", "/~x/[1]", "/a%2Fb", "/%C3%A4"]
)
def test_paths_of_the_deployment(path: str) -> None:
    assert checked_path(path) == path


@pytest.mark.parametrize(
    ("path", "said"),
    [
        ("say", "begin it with one '/'"),
        ("", "begin it with one '/'"),
        ("http://elsewhere/", "without a scheme and a host"),
        ("//elsewhere/say", "begin it with one '/'"),
        ("/a/../b", "has a '.' or '..'"),
        ("/./b", "has a '.' or '..'"),
        ("/a/%2e%2E/b", "has a '.' or '..'"),
        ("/a/%252e%252e/b", "has a '.' or '..'"),
        ("/a%2f..%2fb", "has a '.' or '..'"),
        ("/a%5c..%5cb", "has a '.' or '..'"),
        ("/a\\b", "a backslash"),
        ("/a b", "has a space"),
        ("/a\r\nHost: x", "has a space"),
        ("/a%0d%0aHost:x", "control character"),
        ("/ä", "not ASCII"),
        ("/a#b", "a '#'"),
        ("/" + "a" * 8000, "limit 8000"),
    ],
)
def test_paths_that_are_refused(path: str, said: str) -> None:
    with pytest.raises(Invalid, match=r"^path: ") as refusal:
        checked_path(path)
    assert said in str(refusal.value)


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("Host", "elsewhere", "the platform sets this itself"),
        ("Content-Length", "3", "the platform sets this itself"),
        ("X-Forwarded-For", "10.0.0.1", "the platform sets this itself"),
        ("Hotplate-Secret", "x", "the platform sets this itself"),
        ("Sec-Fetch-Site", "none", "the platform sets this itself"),
        ("Transfer-Encoding", "chunked", "for one connection"),
        ("CONNECTION", "upgrade", "for one connection"),
        ("Upgrade", "websocket", "for one connection"),
        ("X-YATAI-API-TOKEN", "x", "never see what opens the platform"),
        ("Cookie", "a=b; hotplate_sign_in=c", "never see what opens the platform"),
        ("X-Token", "Bearer abc123 ", "your token of the platform"),
        ("A\r\nHost", "x", "no name of a header"),
        ("A b", "x", "no name of a header"),
        ("", "x", "no name of a header"),
        ("A", "x\r\nHost: y", "not one line"),
        ("A", "x\ny", "not one line"),
        ("A", "x\x00", "not one line"),
        ("A", "\u2028", "not one line"),
        ("A", 5, "not one line"),
        ("A", "x" * 8001, "not one line"),
    ],
)
def test_headers_that_are_refused(name: str, value: object, said: str) -> None:
    with pytest.raises(Invalid, match=r"^headers") as refusal:
        deployment_call(Fields({"headers": {name: value}}), ("abc123", ""))
    assert said in str(refusal.value)
    assert "abc123" not in str(refusal.value)


def test_headers_have_a_limit_together() -> None:
    with pytest.raises(Invalid, match="limit 64"):
        deployment_call(Fields({"headers": {f"A{n}": "" for n in range(65)}}))
    with pytest.raises(Invalid, match="limit 16384"):
        deployment_call(Fields({"headers": {f"A{n}": "x" * 4000 for n in range(5)}}))


def test_what_is_left_out_is_a_post_to_the_root() -> None:
    call = deployment_call(Fields({}))
    assert (call.method, call.path, call.headers, call.version) == ("POST", "/", (), "")
    called = deployment_call(Fields({"method": "get", "version": "v2", "headers": {"A": "b"}}))
    assert (called.method, called.version, called.header("a")) == ("GET", "v2", "b")


@pytest.mark.parametrize(
    "fields", [{"method": "CONNECT"}, {"method": "TRACE"}, {"method": "G\r\n"}, {"version": "a b"}]
)
def test_other_methods_and_versions_are_refused(fields: dict[str, str]) -> None:
    with pytest.raises(Invalid):
        deployment_call(Fields(fields))


def test_bodies() -> None:
    assert body_of(None) == (None, "")
    assert body_of("ä") == ("ä".encode(), "")
    assert body_of({"a": "ä"}) == ('{"a": "ä"}'.encode(), "application/json")
    assert body_of(False) == (b"false", "application/json")
