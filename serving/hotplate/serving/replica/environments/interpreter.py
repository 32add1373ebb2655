"""The Python interpreter that an environment is made from: found by `uv`, outside of any build.

The place of an interpreter decides what a replica may read, so nothing that a bento's code could
have changed takes part in the search.
"""

from __future__ import annotations

import asyncio
import os
import re
import subprocess
from collections.abc import Mapping
from pathlib import Path

from hotplate.serving.replica.errors import EnvironmentFailed
from hotplate.serving.replica.inside.building.diagnosis import diagnose

LINES = 20
"""How much of the output of `uv` stands in the error."""
_VERSION = re.compile(r"[<>=!~]{0,2} ?\d[\w.,<>=!~*+ -]{0,60}", re.ASCII)


def is_version(text: str) -> bool:
    """Whether `uv` accepts it as a version (`3.11`, `>=3.11,<3.13`): it would run a path."""
    return _VERSION.fullmatch(text) is not None


class Interpreters:
    """The interpreters of this machine."""

    def __init__(self, uv: str, cache: Path) -> None:
        """`cache` is a folder of ours for the interpreters that `uv` has found."""
        self._uv = uv
        self._cache = cache
        self._found: dict[str, Path] = {}

    async def find(self, version: str, environ: Mapping[str, str]) -> Path:
        """The interpreter that `uv venv` would choose, with links resolved. Raises
        `EnvironmentFailed`."""
        known = self._found.get(version)
        if known is None or not os.access(known, os.X_OK):
            known = self._found[version] = await self._search(version, environ)
        return known

    async def _search(self, version: str, environ: Mapping[str, str]) -> Path:
        await asyncio.to_thread(self._cache.mkdir, parents=True, exist_ok=True)
        process = await asyncio.create_subprocess_exec(
            self._uv,
            *("python", "find", "--no-project", "--system", version),
            cwd=self._cache.parent,
            env={
                **environ,
                "UV_CACHE_DIR": str(self._cache),
                "UV_PYTHON_DOWNLOADS": "never",  # an interpreter may take minutes, or be refused
                "NO_COLOR": "1",
            },
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        try:
            answer, errors = await process.communicate()
        except asyncio.CancelledError:
            process.kill()
            raise
        path = os.fsdecode(answer.strip())
        if process.returncode or not os.access(path, os.X_OK):
            diagnosis = diagnose(errors.decode(errors="replace"), version, "uv python find")
            lines = errors.decode(errors="replace").splitlines()
            raise EnvironmentFailed(
                diagnosis.sentence, retry=diagnosis.retry, log=tuple(lines[-20:])
            )
        return await asyncio.to_thread(Path(path).resolve)
