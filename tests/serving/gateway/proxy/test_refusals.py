from __future__ import annotations

from hotplate.serving.gateway.errors import NoCapacity, ShareFull
from hotplate.serving.gateway.proxy.refusals import LOG_EVERY_S, RefusalLog


def test_the_log_says_the_first_refusal_at_once_and_sums_up_the_rest() -> None:
    refusals = RefusalLog()
    assert "a: 9 wait. Refused since the last such line: 1 share_full." in refusals.sentence(
        ShareFull("a: 9 wait."), 5.0
    )
    for _ in range(3):
        assert refusals.sentence(ShareFull("a: 9 wait."), 6.0) == ""
    said = refusals.sentence(NoCapacity("a: late."), 5.0 + LOG_EVERY_S)
    assert "a: late. Refused since the last such line: 3 share_full, 1 no_capacity." in said
    assert "scaling.max_replicas" in said
