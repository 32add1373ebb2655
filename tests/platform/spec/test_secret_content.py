from __future__ import annotations

from typing import Any

import pytest

from hotplate.platform.errors import Invalid
from hotplate.platform.spec.fields import Fields
from hotplate.platform.spec.secret_content import (
    HOME,
    SECRET_MAX_BYTES,
    VALUE_MAX_BYTES,
    SecretContent,
    SecretStage,
    SecretType,
    check_together,
    named,
    named_together,
    secret_content,
    secret_names,
)

SECRET = "value-that-nobody-sees"


def content(**given: Any) -> SecretContent:
    return secret_content(Fields({"items": [{"key": "TOKEN", "value": SECRET}], **given}))


def file(path: str | None = None, sub_path: str | None = None, key: str = "k") -> str:
    items = [{"key": key, "sub_path": sub_path, "value": SECRET}]
    made = content(type="mountfile", path=path, items=items)
    return made.file_of(made.items[0])


def test_a_variable_for_replicas_is_what_nobody_says_more_about() -> None:
    made = content()
    assert (made.type, made.stage, made.path) == (SecretType.ENV, SecretStage.RUNTIME, "")
    (item,) = made.items
    assert (item.key, item.value, item.size_bytes) == ("TOKEN", SECRET, len(SECRET))
    assert made.file_of(item) == ""
    assert SECRET not in repr(made)


@pytest.mark.parametrize(
    ("path", "sub_path", "key", "where"),
    [
        (None, None, "k", "k"),
        (HOME, "", "k", "k"),
        (f"{HOME}/", "a", "k.json", "a/k.json"),
        (f"{HOME}/keys/of", "a/b/", "k", "keys/of/a/b/k"),
        (f"{HOME}//keys", "a//b", "-k", "keys/a/b/-k"),
    ],
)
def test_a_file_lies_at_path_sub_path_key(
    path: str | None, sub_path: str | None, key: str, where: str
) -> None:
    assert file(path, sub_path, key) == where


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"type": "file"}, r"content.type: there is no 'file'.*known: env, mountfile"),
        ({"stage": "built"}, r"content.stage: there is no 'built'; did you mean 'build'"),
        ({"items": []}, r"content.items: a secret has 1 to 200 keys, and this one 0"),
        ({"items": SECRET}, r"content.items: what is there \(of type str\) is not a list"),
        ({"items": [SECRET]}, r"items\[0\]: what is there \(of type str\) is not an object"),
        (
            {"items": [{"key": "A", "value": [SECRET]}]},
            r"items\[0\].value: what is there \(of type list\) is not a string",
        ),
        ({"items": [{"value": SECRET}]}, r"items\[0\].key: null is not a string"),
        ({"items": [{"key": "1A", "value": SECRET}]}, r"'1A' is no name of a variable"),
        ({"items": [{"key": "A-B", "value": SECRET}]}, r"'A-B' is no name of a variable"),
        ({"items": [{"key": "A\0", "value": SECRET}]}, r"key: it has a NUL character"),
        ({"items": [{"key": "A" * 256, "value": SECRET}]}, r"is no name of a variable"),
        ({"items": [{"key": "A", "value": f"{SECRET}\0"}]}, r"value: it has a NUL character"),
        ({"items": [{"key": "BENTOML_HOME", "value": SECRET}]}, r"is the platform's own"),
        (
            {"items": [{"key": "A", "value": SECRET}, {"key": "A", "value": SECRET}]},
            r"items\[1\].key: 'A' is there twice",
        ),
        (
            {"items": [{"key": "A", "value": SECRET * 6000}]},
            r"items\[0\].value: it has 132000 bytes, and a secret variable 130815 at most; make it",
        ),
    ],
)
def test_what_is_wrong_is_said_without_any_value(given: dict[str, Any], said: str) -> None:
    with pytest.raises(Invalid, match=said) as refused:
        secret_content(Fields({"content": {"type": "env", **given}}).fields("content"))
    assert SECRET not in str(refused.value)


@pytest.mark.parametrize(
    ("path", "sub_path", "key", "said"),
    [
        ("/etc", None, "k", r"path: '/etc' is not below \$BENTOML_HOME"),
        ("keys", None, "k", r"is not below \$BENTOML_HOME"),
        (f"{HOME}keys", None, "k", r"is not below \$BENTOML_HOME"),
        (f"{HOME}/../up", None, "k", r"is not below \$BENTOML_HOME"),
        (f"{HOME}/a", "../b", "k", r"sub_path: '../b' is not below"),
        (f"{HOME}/a", "/etc", "k", r"sub_path: '/etc' is not below"),
        (f"{HOME}/./a", None, "k", r"'.' is no name of a file"),
        (f"{HOME}/a\0b", None, "k", r"path: it has a NUL character"),
        (HOME, None, "..", r"key: '..' is not below"),
        (HOME, None, "a/b", r"key: 'a/b' is no name of a file; put its folder into sub_path"),
        (HOME, None, "k" * 256, r"is no name of a file; it has up to 255 bytes"),
        (f"{HOME}/{'/'.join(['a' * 200] * 6)}", None, "k", r"its path has 1207 bytes"),
    ],
)
def test_no_file_lies_outside_of_the_home(
    path: str, sub_path: str | None, key: str, said: str
) -> None:
    with pytest.raises(Invalid, match=said):
        file(path, sub_path, key)


def test_a_file_has_up_to_one_mib_and_a_secret_four() -> None:
    most = [{"key": str(n), "value": "x" * VALUE_MAX_BYTES} for n in range(4)]
    assert sum(i.size_bytes for i in content(type="mountfile", items=most).items) == (
        SECRET_MAX_BYTES
    )
    with pytest.raises(Invalid, match=r"values have 4194305 bytes together"):
        content(type="mountfile", items=[*most, {"key": "k", "value": "x"}])
    with pytest.raises(Invalid, match=r"it has 1048577 bytes, and a secret file 1048576 at most"):
        content(type="mountfile", items=[{"key": "k", "value": "x" * (VALUE_MAX_BYTES + 1)}])


def test_two_secrets_of_one_replica_share_no_key_and_no_place() -> None:
    one = content()
    check_together({"one": one})
    with pytest.raises(Invalid, match=r"secrets: 'one' and 'two' both have the key 'TOKEN'"):
        check_together({"one": one, "two": content(stage="build")})
    above = content(type="mountfile", items=[{"key": "a", "value": "1"}])
    below = content(type="mountfile", items=[{"key": "b", "sub_path": "a", "value": "1"}])
    with pytest.raises(Invalid, match=r"the file 'a' of 'one' is where 'two' has 'a/b'"):
        check_together({"one": above, "two": below})
    long = [{"key": f"K{n}", "value": "x" * 120_000} for n in range(3)]
    with pytest.raises(Invalid, match=r"variables have 360012 bytes together \(limit 262144\)"):
        check_together({"one": content(items=long)})


def test_names_in_a_config_are_those_of_the_deployment_and_of_its_canary() -> None:
    config = {"secrets": ["a"], "canary": {"versions": {"v": {"secrets": ["b"]}, "w": {}}}}
    assert named_together(config) == [["a"], ["b"], []]
    assert named(config) == {"a", "b"}
    assert named({}) == set()
    assert secret_names(Fields({"secrets": ["a", "b", "a"]})) == ["a", "b"]
    assert secret_names(Fields({"secrets": None})) == []
    with pytest.raises(Invalid, match=r"secrets: 101 are too many for one deployment"):
        secret_names(Fields({"secrets": ["a"] * 101}))
    with pytest.raises(Invalid, match=r"secrets\[1\]: '../a' is not a name"):
        secret_names(Fields({"secrets": ["b", "../a"]}))
