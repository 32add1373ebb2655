from __future__ import annotations

import pytest

from hotplate.cache.errors import UnknownUrl
from hotplate.cache.origins.hub_url import HubUrl
from hotplate.cache.origins.hubs import Hubs, own_hub

HUBS = Hubs(("https://hub.example.com/", "http://10.0.0.5:8080/hf"), "https://mirror.lab")


@pytest.mark.parametrize(
    "endpoint",
    [
        *("", "https://huggingface.co", "https://huggingface.co/", "https://HuggingFace.co:443"),
        *("https://mirror.lab", "https://hub.example.com", "http://10.0.0.5:8080/hf/"),
    ],
)
def test_hubs_that_are_known_may_be_named(endpoint: str) -> None:
    HUBS.check(HubUrl("org/name", endpoint=endpoint))


@pytest.mark.parametrize(
    "endpoint",
    [
        *("http://127.0.0.1:9499", "http://169.254.169.254", "https://evil.example"),
        *(
            "http://huggingface.co",
            "https://huggingface.co.evil.example",
            "https://huggingface.co:1",
        ),
        *("https://huggingface.co@evil.example", "https://a:b@huggingface.co", "file:///etc"),
        *("https://huggingface.co/evil", "https://huggingface.co?x=", "https://huggingface.co#x"),
        *("http://10.0.0.5:8080", "http://10.0.0.5:8080/hf/../x", "https://huggingface.co:99999"),
        *(
            "https://huggingface.co\\@evil.example",
            "https://huggingface.co\r\nX: y",
            "https://[::1",
        ),
        *(
            "https:huggingface.co",
            "//huggingface.co",
            "huggingface.co",
            "https://hub.example.com x",
        ),
    ],
)
def test_any_other_hub_has_to_be_listed(endpoint: str) -> None:
    with pytest.raises(UnknownUrl, match=r"be listed in model_endpoints of \[platform\]"):
        HUBS.check(HubUrl("org/name", endpoint=endpoint))


def test_the_platforms_own_hub_is_its_environments() -> None:
    assert own_hub({}) == "https://huggingface.co"
    assert own_hub({"HF_ENDPOINT": "https://mirror.lab"}) == "https://mirror.lab"
