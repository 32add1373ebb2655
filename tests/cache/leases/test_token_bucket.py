from __future__ import annotations

from hotplate.cache.leases.token_bucket import TokenBucket


def test_a_burst_is_free_and_then_a_rate_holds() -> None:
    allowance = TokenBucket(per_s=10, burst=5)
    assert [allowance.wait_s(1, now=100) for _ in range(5)] == [0] * 5
    assert round(allowance.wait_s(1, now=100), 6) == 0.1
    assert round(allowance.wait_s(10, now=100), 6) == 1.1


def test_what_was_not_used_is_kept_up_to_a_burst() -> None:
    allowance = TokenBucket(per_s=10, burst=5)
    allowance.wait_s(5, now=0)
    assert allowance.wait_s(5, now=1000) == 0
    assert allowance.wait_s(5, now=1000) == 0.5
