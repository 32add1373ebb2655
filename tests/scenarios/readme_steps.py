"""What a README tells its reader to type, and what it says is printed then."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from tests.support.end_to_end.any_platform import AnyPlatform
from tests.support.end_to_end.laptop import Laptop
from tests.support.end_to_end.platform_process import BIN, Platform, output_of

_STEP = re.compile(r"```sh\n(.*?)```(?:\s+```\n(.*?)```)?", re.DOTALL)


@dataclass(frozen=True)
class Step:
    """A block of commands, and the block of output that follows it at once, if there is one."""

    command: str
    output: str

    def check(self, printed: str) -> None:
        """Fails where it is not as the README says; "…" stands for whatever changes."""
        expected = ".*".join(map(re.escape, self.output.strip().split("…")))
        assert re.search(expected, printed, re.DOTALL), (
            f"{self.output}\n--- printed: ---\n{printed}"
        )


def steps_of(readme: Path) -> list[Step]:
    return [Step(command, output) for command, output in _STEP.findall(readme.read_text())]


async def type_in(command: str, folder: Path, laptop: Laptop, platform: AnyPlatform) -> str:
    """What a shell in the folder prints whose home has the platform's data where it is usually,
    if it is on this machine."""
    home = laptop.home / "user"
    home.mkdir(exist_ok=True)
    if isinstance(platform, Platform):
        if not (home / "hotplate").exists():
            (home / "hotplate").symlink_to(platform.data)
    else:
        flags = " ".join(platform.command_flags())
        command = f'hotplate() {{ command hotplate "$@" {flags}; }}\n{command}'
    environ = laptop.environ | {"HOME": str(home), "PATH": f"{BIN}:{laptop.environ['PATH']}"}
    return await output_of(["bash", "-ec", command], environ, folder)
