from __future__ import annotations

from dataclasses import replace

from hotplate.platform.spec.replica_keys import ReplicaKeys, replica_of
from tests.support.replica.replicas import workload

KEYS = ReplicaKeys("the installation's", "http://127.0.0.1:3000")
CALLER = workload(calls=("other",))


def test_a_replica_that_calls_by_name_gets_its_key_and_where_to_ask() -> None:
    given = KEYS.variables(CALLER, "chat-1-echo-abcde")
    assert given.pop("BENTO_CLOUD_API_ENDPOINT") == "http://127.0.0.1:3000"
    (key,) = given.values()
    assert replica_of(key) == "chat-1-echo-abcde"
    assert KEYS.is_key(key, CALLER.key, "chat-1-echo-abcde")


def test_a_key_is_one_replica_s_of_one_workload_of_one_installation() -> None:
    key = KEYS.key(CALLER.key, "a")
    assert not KEYS.is_key(key, CALLER.key, "b")
    assert not KEYS.is_key(key, replace(CALLER.key, organization="rival"), "a")
    assert not KEYS.is_key(key, replace(CALLER.key, revision=2), "a")
    assert not ReplicaKeys("another").is_key(key, CALLER.key, "a")
    assert not KEYS.is_key(key + "é", CALLER.key, "a")
    assert not ReplicaKeys().is_key(ReplicaKeys().key(CALLER.key, "a"), CALLER.key, "a")
    assert replica_of("made up") == replica_of("") == ""


def test_one_that_calls_nobody_by_name_gets_none() -> None:
    assert KEYS.variables(workload(), "a") == {}
    assert ReplicaKeys().variables(CALLER, "a") == {}
