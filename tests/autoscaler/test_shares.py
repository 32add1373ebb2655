"""Grants over time are what `share` says at each moment, and whoever is touched is told of."""

from __future__ import annotations

from random import Random

from hotplate.autoscaler.amounts import UNLIMITED, Amounts
from hotplate.autoscaler.grants import Ask, Quota, share
from hotplate.autoscaler.shares import Shares

ONE_GPU = Amounts(gpus=1, replicas=1)


def test_a_random_life_agrees_with_share_and_names_whoever_gets_another_number() -> None:
    rng, quotas = Random(7), {"a": Quota(UNLIMITED._replace(replicas=5)), "b": Quota(weight=2)}
    shares = Shares[int](quotas, UNLIMITED._replace(gpus=9))
    asks: dict[int, Ask[int]] = {}
    got: dict[int, int] = {}
    short = 0
    for _ in range(600):
        key = rng.randrange(8)
        if rng.random() < 0.2:
            shares.withdraw(key)
            asks.pop(key, None)
            got.pop(key, None)
        else:
            each = rng.choice((ONE_GPU, Amounts(cpus=1, replicas=1)))
            ask = Ask(key, "abc"[key % 3], each, rng.randrange(5), held=rng.randrange(3))
            shares.state(ask)
            asks[key] = ask
        affected = shares.affected()
        expected = share(list(asks.values()), quotas, UNLIMITED._replace(gpus=9))
        for name in asks:
            grant = shares.grant(name)
            assert grant == expected[name]
            assert name in affected | {key} or grant.replicas == got[name]
            got[name] = grant.replicas
            short += bool(grant.cause)
        assert shares.affected() == set()
    assert short > 100


def test_what_is_stated_again_changes_nothing_and_a_larger_quota_gives_more() -> None:
    shares = Shares[str]({"a": Quota(UNLIMITED._replace(gpus=1))})
    shares.state(Ask("a", "a", ONE_GPU, 3))
    assert shares.grant("a").replicas == 1
    assert shares.affected() == {"a"}
    shares.state(Ask("a", "a", ONE_GPU, 3))
    assert shares.affected() == set()
    shares.limit({"a": Quota(UNLIMITED._replace(gpus=2))}, UNLIMITED)
    assert shares.affected() == {"a"}
    assert shares.grant("a").replicas == 2
    shares.limit({}, UNLIMITED)
    assert shares.grant("a").replicas == 3
