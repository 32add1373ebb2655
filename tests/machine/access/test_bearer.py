"""Who may call a server of the platform's own."""

from __future__ import annotations

import pytest
from aiohttp.test_utils import make_mocked_request

from hotplate.machine.access.bearer import TokenCheck


@pytest.mark.parametrize(
    ("check", "path", "given", "admitted"),
    [
        (TokenCheck("t"), "/v1/status", "t", True),
        (TokenCheck("t"), "/v1/status", "", False),
        (TokenCheck("t"), "/v1/status", "other", False),
        (TokenCheck("t"), "/metrics", "t", True),
        (TokenCheck("t"), "/metrics", "", False),
        (TokenCheck(""), "/v1/status", "", True),
    ],
)
def test_the_token_is_asked_for_everywhere(
    check: TokenCheck, path: str, given: str, admitted: bool
) -> None:
    headers = {"Authorization": f"Bearer {given}"} if given else {}
    assert check.admits(make_mocked_request("GET", path, headers=headers)) is admitted
