"""What is not offered yet answers with what to do instead, in a status whose body clients print."""

from __future__ import annotations

import pytest

from hotplate.platform.api.bentocloud import not_implemented
from hotplate.platform.spec import not_offered
from tests.support.control_plane.cloud import MANIFEST, Cloud, Refused


@pytest.mark.parametrize("method", ["GET", "POST", "PATCH", "PUT", "DELETE"])
@pytest.mark.parametrize(("path", "said"), not_implemented.ROUTES.items())
async def test_every_method_says_what_to_do_instead(
    cloud: Cloud, method: str, path: str, said: str
) -> None:
    with pytest.raises(Refused) as refused:
        await cloud.call(method, path.format(name="hf", uid="1"), data=b"\xff no JSON")
    assert (refused.value.status, refused.value.message) == (501, said)
    assert "not found" not in refused.value.message


async def test_who_is_not_logged_in_learns_that_first(cloud: Cloud) -> None:
    cloud.http.headers.clear()
    with pytest.raises(Refused, match="401"):
        await cloud.call("GET", "/api/v1/org_secrets")


async def test_a_bento_of_a_code_space_is_refused_before_anything_is_kept(cloud: Cloud) -> None:
    with pytest.raises(Refused) as refused:
        await cloud.register("bento", "echo", "v1", MANIFEST | {"dev": True})
    assert (refused.value.status, refused.value.message) == (501, not_offered.CODE)
