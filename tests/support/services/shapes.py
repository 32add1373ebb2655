"""Services of every shape that BentoML knows, and how they are built and deployed together."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from typing import Any

from tests.support.end_to_end.any_platform import AnyPlatform
from tests.support.end_to_end.laptop import Laptop
from tests.support.services.bentos import IMAGE, SLEEPY
from tests.support.services.hall import CORS, HALL

TASKS = (
    IMAGE
    + """
from pathlib import Path


@bentoml.service(image=image)
class Tasks:
    @bentoml.task
    def toil(self, seconds: float, fails: bool = False) -> dict:
        began = time.time()
        time.sleep(seconds)
        if fails:
            raise ValueError("toil and trouble")
        return {"pid": me(), "began": began, "ended": time.time()}

    @bentoml.task
    def draw(self, seed: str, times: int, ctx: bentoml.Context) -> Path:
        drawn = Path(ctx.temp_dir) / "drawn.bin"
        drawn.write_bytes(bytes.fromhex(seed) * times)
        return drawn
"""
)

PREFIXED = (
    IMAGE
    + CORS
    + """

@bentoml.service(image=image, path_prefix="/v1", http={"cors": CORS})
class Prefixed:
    hall = bentoml.depends(url=os.environ.get("HALL", "http://localhost:1"))

    async def __is_ready__(self) -> bool:
        return not os.path.exists(os.environ["UNREADY"])

    @bentoml.api(route="/say/hello")
    def hello(self, name: str) -> str:
        return f"hello {name}"

    @bentoml.api
    async def shout(self, text: str) -> dict:
        return await self.hall.to_async.chain(text=text)
"""
)

COMMAND = (
    IMAGE
    + '''
PORT = int(os.environ.get("COMMAND_PORT", 8000))
PROGRAM = """
import http.server, os, signal, sys, time

class Answers(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        if self.path == "/crash":
            os._exit(9)
        began = time.time()
        time.sleep(float(self.path.partition("?")[2] or 0))
        with open("/proc/self/stat") as file:
            started = int(file.read().rpartition(")")[2].split()[19])
        me = (started << 32 | os.stat("/proc/self/ns/pid").st_ino) << 22 | os.getpid()
        body = f"{me} {began} {time.time()}".encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

def ended(*_):
    with open(os.environ["NOTES"], "a") as file:
        print("ended", file=file)
    os._exit(0)

signal.signal(signal.SIGTERM, ended)
print("the command listens", flush=True)
http.server.ThreadingHTTPServer(("127.0.0.1", int(sys.argv[2])), Answers).serve_forever()
"""


@bentoml.service(image=image, workers=1, cmd=["python", "-c", PROGRAM, "--port", str(PORT)],
                 http={"proxy_port": PORT})
class Command:
    pass
'''
)

SOURCES = {"Hall": HALL, "Tasks": TASKS, "Prefixed": PREFIXED, "Command": COMMAND}


def building(folder: str) -> str:
    """A program that builds a bento of each source; `hall:v1` is that of the service `Hall`."""
    return f"""
import bentoml
for service in {list(SOURCES)!r}:
    name = service.lower()
    bentoml.build(f"{{name}}:{{service}}", name=name, version="v1", build_ctx={folder!r})
"""


@dataclass(frozen=True)
class Shapes:
    """Bentos named `hall`, `tasks`, `command` and `prefixed`, and what their deployments share."""

    platform: AnyPlatform
    laptop: Laptop
    folder: Path
    command_port: int
    """For which the command of `command` is written."""
    page_port: int
    """Where a page comes from that may call the hall and `prefixed`."""

    @property
    def page(self) -> str:
        """Its origin."""
        return f"http://127.0.0.1:{self.page_port}"

    @property
    def notes(self) -> Path:
        """What the hooks of the hall's back note."""
        return self.platform.shared / "notes"

    @property
    def unready(self) -> Path:
        """`prefixed` is not ready while this exists."""
        return self.platform.shared / "unready"

    async def deploy(self, name: str, envs: Mapping[str, object] | None = None, **more: Any) -> str:
        """The URL of a deployment of the bento of that name; `more` is its configuration's."""
        items = [{"name": key, "value": str(value)} for key, value in (envs or {}).items()]
        config = {"name": name, "bento": f"{name}:v1", "envs": items, **more}
        await self.laptop.bentoml("deploy", "--config-dict", json.dumps(config))
        return await self.platform.url_of(name)

    async def deploy_all(self) -> dict[str, str]:
        """The URLs of a deployment of each, by its name."""
        again = {"key": "hotplate/may-run-twice", "value": "true"}
        command = {"NOTES": self.notes, "COMMAND_PORT": self.command_port}
        hall, tasks, command_url = await asyncio.gather(
            self.deploy("hall", {"NOTES": self.notes}),
            self.deploy("tasks", labels=[again]),
            self.deploy("command", command),
        )
        prefixed = await self.deploy(
            "prefixed",
            {"HALL": hall, "UNREADY": self.unready},
            services={"Prefixed": {"scaling": SLEEPY}},
            access_authorization=True,
        )
        return {"hall": hall, "tasks": tasks, "command": command_url, "prefixed": prefixed}

    async def slots(self, name: str, service: str) -> int:
        """As `hotplate status NAME` shows them."""
        said = await self.platform.status(name)
        found = re.search(rf" {service} \(revision \d+\): .*? queued (\d+) slots?, ", said)
        assert found, said
        return int(found[1])


def most_at_once(spans: Iterable[dict[str, Any]]) -> int:
    """How many handlers ran at once, by when each says that it began and ended."""
    steps = [(span["began"], 1) for span in spans] + [(span["ended"], -1) for span in spans]
    return max(accumulate(change for _, change in sorted(steps)))
