"""Children of the launcher, for what it has to stay out of itself."""

from __future__ import annotations

import os
from _collections_abc import Callable  # loaded by os; collections would take as long as we


class WaitingChild:
    """Does its work at once, and is there until `end`, for others to enter what it has made."""

    def __init__(self, work: Callable[[], None], what: str) -> None:
        """`what` it does, for the message. Raises the OSError that it has met."""
        (at_work, done), (to_end, self._end) = os.pipe(), os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            os.close(self._end)
            _report(work, done)
            os.read(to_end, 1)
            os._exit(0)
        os.close(done)
        os.close(to_end)
        number = int.from_bytes(os.read(at_work, 4) or b"\1", "big")
        os.close(at_work)
        if number:
            self.end()
            raise OSError(number, os.strerror(number), what)

    def end(self) -> None:
        os.close(self._end)
        os.waitpid(self.pid, 0)


def in_child(work: Callable[[], None], what: str) -> None:
    """Have it done by a child of ours. Raises the OSError that it has met."""
    WaitingChild(work, what).end()


def _report(work: Callable[[], None], to: int) -> None:
    number = 0
    try:
        work()
    except OSError as error:
        number = error.errno or 1
    except BaseException:  # it is no part of the launcher and must not go on as if it were
        number = 1
    os.write(to, number.to_bytes(4, "big"))
