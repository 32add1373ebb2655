"""Which pickles a service reads; runs in the replica (Python >= 3.9).

A pickle runs its writer's code when it is read. BentoML reads them in both directions: requests of
services that call this one, whose secret the gateway has checked, and responses of services that it
calls. Here a response is read only if a service of the same revision has sent it.
"""

from __future__ import annotations

from contextlib import contextmanager, suppress
from contextvars import ContextVar
from typing import Any, Iterator  # noqa: UP035

from hotplate.serving.replica.inside.patches.siblings import Siblings

_trusted: ContextVar[bool] = ContextVar("trusted", default=False)
"""Whether the response that is being read comes from a service of the same revision."""


SENTENCE = (
    "The answer of {url} is a pickle, which is read from services of the same revision only, since "
    "it may run any code here; ask for JSON: RemoteProxy(url, media_type='application/json')."
)


def read_pickles_of(siblings: Siblings) -> None:
    """Have this process read requests and what comes from there, and refuse all other answers."""
    from _bentoml_impl import serde
    from bentoml.exceptions import BentoMLException

    kind: Any = serde.PickleSerde
    read, read_request = kind.deserialize_value, kind.parse_request

    def deserialize_value(self: Any, payload: Any) -> Any:
        if not _trusted.get():
            raise BentoMLException(SENTENCE.format(url="that service"))
        return read(self, payload)

    async def parse_request(self: Any, *args: Any) -> Any:
        with _trust(True):
            return await read_request(self, *args)

    kind.deserialize_value, kind.parse_request = deserialize_value, parse_request
    if siblings.any:  # it imports these clients anyway
        from _bentoml_impl.client import http

        _trust_answers(http.SyncHTTPClient, siblings)
        _trust_answers(http.AsyncHTTPClient, siblings)
        with suppress(ImportError):  # an older BentoML has one kind of client for all
            from _bentoml_impl.client import proxy2

            _trust_answers(proxy2.AsyncClient, siblings)


def _trust_answers(kind: Any, siblings: Siblings) -> None:
    """Trusts responses that clients of this kind get from siblings, unless they were redirected."""
    from bentoml.exceptions import BentoMLException

    read = kind._deserialize_output

    def deserialize_output(self: Any, payload: Any, endpoint: Any) -> Any:
        with _trust(siblings.include(self.url)):
            return read(self, payload, endpoint)

    def checked(parse: Any) -> Any:
        def parsed(self: Any, endpoint: Any, answer: Any) -> Any:
            url = str(answer.url)
            if siblings.include(self.url) and not siblings.include(url):
                raise BentoMLException(SENTENCE.format(url=url))
            return parse(self, endpoint, answer)

        return parsed

    kind._deserialize_output = deserialize_output
    kind._parse_response = checked(kind._parse_response)
    kind._parse_stream_response = checked(kind._parse_stream_response)


@contextmanager
def _trust(trusted: bool) -> Iterator[None]:
    before = _trusted.set(trusted)
    try:
        yield
    finally:
        _trusted.reset(before)
