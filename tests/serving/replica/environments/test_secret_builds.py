"""Environments that are built with secrets."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from hotplate.deploy.sandbox.isolation import Isolation
from hotplate.serving.replica.environments.folder import organization_folder
from hotplate.serving.replica.environments.spec import read_spec
from hotplate.serving.replica.errors import EnvironmentFailed
from hotplate.serving.replica.memory_folders import MEMORY
from hotplate.serving.replica.secret_values import SecretSet, SecretValue, of_build
from tests.serving.replica.environments.test_builder import bento_with_wheel, image_of
from tests.support.replica.replicas import environments_in

TOKEN, KEY = "hf_0123456789-token", "-----BEGIN KEY-----\nMIIEvQIBADANBg\n-----END KEY-----\n"
LOOK = (
    'echo "token $TOKEN"; cat $BENTOML_HOME/keys/id; stat -L -c "mode %a" $BENTOML_HOME/keys/id; '
    'printf "half %s" "${TOKEN%token}"; sleep 0.05; echo "token"; test -z "$RUN"'
)


def secrets(version: str = "1", organization: str = "acme") -> SecretSet:
    values = [
        SecretValue("TOKEN", TOKEN, builds=True, runs=False, version=version),
        SecretValue("id", KEY, file="keys/id", builds=True, version=version),
        SecretValue("RUN", "only-at-run-time", version=version),
    ]
    return of_build(organization, values)


def in_memory() -> list[str]:
    return [name for name in sorted(os.listdir(MEMORY)) if name.startswith("hotplate-secrets")]


def found_in(folder: Path, texts: list[str]) -> list[Path]:
    """Files with one of the texts."""
    files = [path for path in folder.rglob("*") if path.is_file()]
    return [path for path in files if any(t.encode() in path.read_bytes() for t in texts)]


@pytest.mark.parametrize("walled", [True, False], ids=["walls", "none"])
async def test_its_commands_have_them_and_its_log_has_stars(tmp_path: Path, walled: bool) -> None:
    isolation = Isolation([tmp_path]) if walled else Isolation()
    if walled and isolation.refusal:
        pytest.skip(f"no walls here: {isolation.refusal}")
    bento = bento_with_wheel(tmp_path / "bento", image={"post_commands": [LOOK]})
    environments = environments_in(tmp_path, isolation)
    before = in_memory()
    made = await environments.ensure("acme", bento, image_of(bento), {}, secrets=secrets())
    log = environments.folder("acme", made.digest).log.read_text()
    assert "\ntoken ***\n***" in log
    assert "mode 400" in log
    assert "half ***\n" in log
    assert found_in(tmp_path, [TOKEN, *KEY.splitlines(), "only-at-run-time"]) == []
    assert in_memory() == before


async def test_a_failed_one_says_why_with_stars(tmp_path: Path) -> None:
    image = {"post_commands": ['echo "wrong $TOKEN" >&2; exit 3']}
    bento = bento_with_wheel(tmp_path / "bento", image=image)
    with pytest.raises(EnvironmentFailed) as failed:
        await environments_in(tmp_path).ensure(
            "acme", bento, image_of(bento), {}, secrets=secrets()
        )
    assert "wrong ***" in "\n".join(failed.value.log)
    assert TOKEN not in "\n".join([*failed.value.log, str(failed.value)])


async def test_an_environment_with_a_secret_is_its_organizations_own(tmp_path: Path) -> None:
    bento = bento_with_wheel(tmp_path / "bento")
    environments = environments_in(tmp_path, shared=True)
    owners = {}
    for organization in ("acme", "beta"):
        made = await environments.ensure(
            organization,
            bento,
            image_of(bento),
            {},
            secrets=secrets(organization=organization),
        )
        owners[made.owner] = made.root
    assert list(owners) == [organization_folder("acme"), organization_folder("beta")]
    again = await environments.ensure("acme", bento, image_of(bento), {}, secrets=secrets())
    assert (again.root, again.built) == (owners[organization_folder("acme")], False)


def test_a_digest_knows_whose_secrets_and_which_values_and_has_neither(tmp_path: Path) -> None:
    bento = bento_with_wheel(tmp_path / "bento")
    given = (None, secrets(), secrets("2"), secrets(organization="beta"))
    digests = [read_spec(bento, image_of(bento), {}, each).digest for each in given]
    assert len(set(digests)) == 4
    assert digests[0] == read_spec(bento, image_of(bento), {}, SecretSet()).digest
