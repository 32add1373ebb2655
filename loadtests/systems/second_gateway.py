"""Another gateway of a platform, beside that of `hotplate up`; both listen for all deployments."""

from __future__ import annotations

import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from tests.support.end_to_end.platform_process import Platform
from tests.support.gateway.gateway_processes import GatewayProcess


@asynccontextmanager
async def second_gateway(
    platform: Platform, folder: Path, control_plane: str = ""
) -> AsyncIterator[GatewayProcess]:
    """It serves. It reaches the control plane at this URL, where it is not the platform's."""
    flags = (
        f"--control-plane={control_plane or platform.url}",
        f"--token-file={_token(platform, folder)}",
        f"--state={folder / 'state'}",
    )
    async with GatewayProcess.start(folder, *flags) as gateway:
        await gateway.ready()
        yield gateway


def _token(platform: Platform, folder: Path) -> Path:
    """A copy: a process whose command line names the data directory is the platform's own."""
    folder.mkdir(exist_ok=True)
    return Path(shutil.copy2(platform.data / "cluster-token", folder))
