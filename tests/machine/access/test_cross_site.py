"""Which requests are another origin's page's, by what browsers say of them."""

from __future__ import annotations

from typing import Any

import pytest

from hotplate.machine.access.cross_site import RequestContext, is_foreign

HOST = "127.0.0.1:7100"
OWN = f"http://{HOST}"
NEIGHBOUR = "http://127.0.0.1:7101"
EVIL = "https://evil.example"
LINK = {"method": "GET", "mode": "navigate", "dest": "document"}


def foreign(**said: Any) -> bool:
    return is_foreign(RequestContext(**{"method": "POST", "host": HOST, **said}))


@pytest.mark.parametrize(
    "said",
    [
        {},  # a program
        {"method": "GET"},
        {"origin": OWN},
        {"origin": OWN, "site": "same-origin", "mode": "cors"},
        {"site": "same-origin"},
        {"site": "none", **LINK},
        {"site": "none", "origin": "chrome-extension://abc"},
        {"site": "cross-site", **LINK},
        {"site": "cross-site", **LINK, "method": "HEAD"},
        {"site": "same-site", **LINK},
        {"origin": "https://models.example.com", "host": "models.example.com"},
        {"origin": "http://models.example.com", "host": "models.example.com:80"},
        {"origin": "https://m.example:8443", "host": "M.example:8443", "secure": True},
        {"origin": "http://[::1]:7100", "host": "[::1]:7100"},
        # A proxy has changed Host, and the browser says itself that the page is the same site's.
        {"origin": "https://models.example.com", "site": "same-origin"},
    ],
)
def test_own_pages_programs_and_links_are_let_in(said: dict[str, Any]) -> None:
    assert not foreign(**said)


@pytest.mark.parametrize(
    "said",
    [
        {"origin": EVIL},
        {"origin": EVIL, "site": "cross-site"},
        {"origin": "null"},
        {"origin": "null", "site": "cross-site", **LINK, "method": "POST"},
        {"origin": NEIGHBOUR},
        {"origin": NEIGHBOUR, "site": "same-site"},
        {"origin": "http://localhost:7100", "site": "cross-site"},
        {"origin": "http://127.0.0.1"},
        {"origin": "http://127.0.0.1:71000"},
        {"origin": f"ftp://{HOST}"},
        {"origin": f"{OWN}, {EVIL}"},
        {"origin": HOST},
        {"origin": f"http://{HOST}@evil.example"},
        {"origin": OWN, "secure": True},
        {"origin": "https://models.example.com"},
        {"site": "cross-site", "method": "GET", "mode": "no-cors", "dest": "image"},
        {"site": "same-site", "method": "GET", "mode": "no-cors", "dest": "script"},
        {"site": "cross-site", **LINK, "dest": "iframe"},
        {"site": "cross-site", **LINK, "method": "POST"},
        {"site": "cross-site", "method": "GET", "mode": "websocket", "dest": "websocket"},
        {"site": "none, cross-site"},
        {"site": "Same-Origin, cross-site"},
        {"site": "anything-new"},
    ],
)
def test_pages_of_other_origins_are_refused(said: dict[str, Any]) -> None:
    assert foreign(**said)


def test_a_name_that_a_proxy_has_is_our_own_with_its_port() -> None:
    hosts = ("Models.example.com", "box.example:8443")
    for origin, own in (
        ("https://models.example.com", True),
        ("http://models.example.com", True),
        ("https://models.example.com:8443", False),
        ("https://box.example:8443", True),
        ("https://box.example", False),
        ("https://other.example.com", False),
    ):
        assert is_foreign(RequestContext("POST", HOST, origin), hosts) != own


def test_what_the_service_allows_is_let_in() -> None:
    page = "https://page.example"
    for allowed, origin, site, let_in in (
        ({page}, page, "cross-site", True),
        ({page}, EVIL, "cross-site", False),
        ({page}, "", "cross-site", False),  # it does not say which page
        ({"*"}, "", "cross-site", True),
    ):
        request = RequestContext("GET", HOST, origin, site, "no-cors", "image")
        assert is_foreign(request, (), allowed.__contains__) != let_in
