"""Services that use up what they can get: they end, with a sentence, and nobody else does."""

from __future__ import annotations

from typing import Any

import pytest

from hotplate.deploy.process.logfile import MAX_BYTES
from hotplate.deploy.sandbox.isolation import Isolation
from tests.support.deploy.running import outside, pid_of, runs
from tests.support.end_to_end.platform_process import Platform
from tests.support.end_to_end.rough_client import Bento, RoughClient
from tests.support.patience import until
from tests.support.services.calling import call
from tests.support.services.vandals import VANDAL

pytestmark = [
    pytest.mark.usefixtures("unharmed"),
    pytest.mark.one_machine("it looks at the platform's processes"),
]

HOSTILE = (
    VANDAL.replace("class Vandal", "class Kitchen")
    + """
    def shout_and_fork(self) -> None:
        for _ in range(80):
            print(("o" * 1023 + "\\n") * 1024, end="")
        for _ in range(20):
            if os.fork() == 0:
                os.setsid()
                os.execve(sys.executable, [sys.executable, "-I", "-S", "-c", DAEMON], {})

    @bentoml.api
    def peek(self, folder: str) -> list[str]:
        return sorted(os.listdir(folder))

    @bentoml.api
    def family(self) -> list[int]:
        found = []
        for entry in os.listdir("/proc"):
            if entry.isdigit():
                try:
                    with open(f"/proc/{entry}/cmdline", "rb") as file:
                        words = file.read()
                    with open(f"/proc/{entry}/stat") as file:
                        parent = int(file.read().rpartition(")")[2].split()[1])
                except OSError:
                    continue
                if b"SIG_IGN" in words and parent == os.getpid():
                    found.append(int(entry))
        return found
"""
)
SENTENCES = {
    "gobble": "killed: it used more than its 256 MiB of memory (resources.memory); ask for more or",
    "hang": "not ready within its cold_start_timeout of 6 s; check what its start waits for",
}


async def test_each_ends_with_its_sentence_and_leaves_nothing(
    platform: Platform, rough: RoughClient, bento: Bento
) -> None:
    tag = await rough.push(bento.changed("hostile", {"src/service.py": HOSTILE}))
    small = {"config_overrides": {"resources": {"memory": "256Mi"}}}
    cases: dict[str, dict[str, Any]] = {
        "shout_and_fork": {},
        "gobble": small,
        "hang": {"cold_start_timeout": 6},
    }
    for does, settings in cases.items():
        envs = [{"name": "DOES", "value": does}]
        await rough.deploy(does.replace("_", "-"), tag, Kitchen={"envs": envs, **settings})

    await rough.settled("shout-and-fork", "running")
    (noisy,) = await platform.replicas("shout-and-fork")
    log = platform.data / "engine" / "replicas" / noisy["id"] / "log"

    async def cut() -> bool:
        return b"\nhotplate: this log had grown to " in b"\n" + log.read_bytes()

    await until(cut)
    assert log.stat().st_size <= MAX_BYTES
    url = await platform.url_of("shout-and-fork")
    if not Isolation([platform.data]).refusal:
        theirs = await call(f"{url}/peek", folder=str(platform.data))
        assert set(theirs) <= {"agent", "engine", "environments", "parts"}, "no secret, no store"
        assert await call(f"{url}/peek", folder=str(platform.data / "agent")) == ["trees"]
        others = await call(f"{url}/peek", folder=str(platform.data / "engine" / "replicas"))
        assert others == [noisy["id"]]
    leader = pid_of(platform.data / "engine", noisy["id"])
    family = outside(await call(f"{url}/family"), leader)
    assert len(family) == 20
    await platform.delete("shout-and-fork")

    async def gone() -> bool:
        return not any(map(runs, family))

    await until(gone)

    for name, sentence in SENTENCES.items():
        page = await rough.settled(name, "failed")
        assert sentence in page["reason"]
        assert sentence in (await platform.status(name))
        assert sentence in (await platform.hotplate("events", name))
        assert f"hotplate: {sentence}" in (await platform.hotplate("logs", name))
        await platform.delete(name)
