"""A platform whose deployments are served by https, as the stock client finds them."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.certificates import issue
from tests.support.end_to_end.forks import run
from tests.support.end_to_end.laptop import Laptop
from tests.support.end_to_end.platform_process import Platform, running
from tests.support.end_to_end.rough_client import Bento, RoughClient

pytestmark = [pytest.mark.client, pytest.mark.one_machine("it starts platforms of its own")]

CALLING = """
import sys
import bentoml
with bentoml.SyncHTTPClient(sys.argv[1], server_ready_timeout=20) as client:
    print(client.echo(text="by https"))
"""


async def test_deployments_have_the_platforms_certificate_and_the_stock_client_calls_them(
    platform: Platform, laptop: Laptop, bento: Bento, tmp_path: Path
) -> None:
    certificate, key = issue(tmp_path, "here")
    settings = f'tls_certificate = "{certificate}"\ntls_key = "{key}"\n'
    async with running(tmp_path / "data", platform, settings) as secure:
        async with RoughClient(secure) as rough:
            await rough.deploy("secret", await rough.push(bento))
            await rough.settled("secret", "running")
        url = await secure.url_of("secret")
        assert url.startswith("https://127.0.0.1:")
        trusting = laptop.environ | {"SSL_CERT_FILE": str(certificate)}
        assert await run(["-c", url], trusting, laptop.home, CALLING) == (0, "by https\n")
