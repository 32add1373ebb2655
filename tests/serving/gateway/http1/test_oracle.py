"""What `python loadtests/storm.py fuzz` judges by, on what is known and a few thousand inputs."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence

import h11
import pytest

from hotplate.serving.gateway.compiled import is_used
from hotplate.serving.gateway.http1.request_head import RequestHead
from tests.support.gateway.answer_oracle import judge_answer
from tests.support.gateway.http_oracle import Differs, judge
from tests.support.gateway.wire import ANSWERS, OTHER_STATUS, READ, REFUSED

KNOWN = [
    *(data for data, _ in READ.values()),
    *REFUSED.values(),
    *(data[:2000] for _, data in OTHER_STATUS.values()),
]


@pytest.mark.parametrize("seed", range(2))
def test_another_parser_reads_what_is_passed_on_as_we_did(seed: int) -> None:
    chance = random.Random(seed)
    read = sum(judge(data, seed) for data in KNOWN)
    for _ in range(1000):
        read += judge(_mixed(chance, KNOWN), chance.randrange(256))
    assert read > 500, "requests do get through"


@pytest.mark.parametrize("seed", range(2))
def test_another_parser_reads_one_answer_in_what_is_passed_back(seed: int) -> None:
    chance = random.Random(seed)
    whole = Counter(judge_answer(data, seed) for data in ANSWERS.values())
    for _ in range(300):
        data = _mixed(chance, list(ANSWERS.values()))
        whole[judge_answer(data, chance.randrange(256))] += 1
    assert min(whole[True], whole[False]) > 50, "both happen"


def test_a_second_answer_behind_the_first_leaves_nothing_in_it() -> None:
    for seed in range(8):
        assert judge_answer(ANSWERS["two in chunks"], seed)
        assert judge_answer(ANSWERS["two"], seed)


@pytest.mark.skipif(is_used(), reason="nobody takes the place of a compiled method")
def test_a_smuggled_request_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    honest = RequestHead.to_replica

    def lenient(head: RequestHead, host: bytes, id: bytes, *, with_authorization: bool) -> bytes:
        sent = honest(head, host, id, with_authorization=with_authorization)
        return sent.replace(b"Transfer-Encoding: chunked", b"Content-Length: 0")

    monkeypatch.setattr(RequestHead, "to_replica", lenient)
    with pytest.raises((Differs, h11.RemoteProtocolError)):
        judge(READ["chunks"][0], 0)


def _mixed(chance: random.Random, known: Sequence[bytes]) -> bytes:
    """Two known inputs in one, with a few bytes changed, doubled or left out."""
    data = bytearray(chance.choice(known) + chance.choice(known))
    for _ in range(chance.randrange(4)):
        at = chance.randrange(len(data))
        much = chance.randrange(1, 9)
        match chance.randrange(3):
            case 0:
                data[at] = chance.choice(b"\r\n\0 \t:;,09afx")
            case 1:
                data[at:at] = data[at : at + much]
            case _:
                del data[at : at + much]
    return bytes(data)
