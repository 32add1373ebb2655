"""Services that use up, block or outlive what they can; `DOES` says what one does at its start."""

from __future__ import annotations

from tests.support.services.bentos import IMAGE
from tests.support.services.shapes import COMMAND

VANDAL = (
    IMAGE
    + """
import signal
import sys

DAEMON = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(3600)"


@bentoml.service(image=image)
class Vandal:
    def __init__(self) -> None:
        getattr(self, os.environ["DOES"])()

    def nothing(self) -> None:
        pass

    def gobble(self) -> None:
        self.eaten = [b"x" * (1 << 20) for _ in range(4000)]

    def hang(self) -> None:
        time.sleep(3600)

    def shout(self) -> None:
        for _ in range(1000):
            print(("o" * 1023 + "\\n") * 1024, end="")

    @bentoml.api
    def eat(self) -> str:
        self.gobble()
        return "full"

    @bentoml.api
    async def block(self) -> str:
        while True:
            time.sleep(1)

    @bentoml.api
    async def deafen(self) -> int:
        # In the main thread, where signals are set.
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        return me()

    @bentoml.api
    def pid(self) -> int:
        return me()

    @bentoml.api
    def fork(self, count: int) -> list[int]:
        found = []
        for number in range(count):
            reader, writer = os.pipe()
            if os.fork() == 0:
                os.setsid()
                if number % 2 and os.fork():
                    os._exit(0)
                os.write(writer, str(me()).encode())
                os.execve(sys.executable, [sys.executable, "-I", "-S", "-c", DAEMON], {})
            os.close(writer)
            found.append(int(os.read(reader, 60)))
            os.close(reader)
        return found
"""
)
"""Half of its daemons are orphans."""

STUBBORN = COMMAND.replace(
    "signal.signal(signal.SIGTERM, ended)", "signal.signal(signal.SIGTERM, signal.SIG_IGN)"
)
