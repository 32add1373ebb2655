"""What the stock client prints where BentoCloud has something that Hotplate does not offer yet."""

from __future__ import annotations

import pytest

from hotplate.platform.spec import not_offered
from tests.support.end_to_end.laptop import Laptop
from tests.support.services.bentos import KITCHEN

pytestmark = [pytest.mark.client, pytest.mark.usefixtures("unharmed")]

CODE = """
from bentoml_cli.deployment import create_deployment
try:
    create_deployment(bento=".", name="space", dev=True, wait=False)
except Exception as error:
    print(error)
"""
"""What `bentoml code` does once its menu, which needs a terminal, was answered."""


async def test_a_command_prints_what_to_do_instead(laptop: Laptop, sleeper: str) -> None:
    """The client asks for code spaces only where there are deployments at all."""
    printed = await laptop.bentoml("code", ".", fails=True)
    assert not_offered.CODE in printed
    assert "Traceback" not in printed


async def test_a_code_space_prints_what_to_do_instead(laptop: Laptop) -> None:
    folder = laptop.project("space", KITCHEN)
    assert not_offered.CODE in await laptop.python(f"import os; os.chdir({str(folder)!r})\n{CODE}")
