"""Every command of the stock client that asks a server, each with all of its options.

`bentoml code`, which needs a terminal, is in test_code_spaces.py, and a login in a browser in
test_client_tokens.py.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.support.control_plane import postgresql
from tests.support.end_to_end.any_platform import AnyPlatform
from tests.support.end_to_end.client_commands import client_commands, typed_commands
from tests.support.end_to_end.laptop import Laptop
from tests.support.end_to_end.platform_process import Platform
from tests.support.services.bentos import IMAGE

pytestmark = pytest.mark.client

ON_THE_LAPTOP = {
    *("containerize", "delete", "env", "export", "get", "import", "list", "serve"),
    *("models delete", "models export", "models get", "models import", "models list"),
}
"""Commands that ask no server."""
NO_SERVERS = {
    "build": {"--bentofile", "--containerize", "--label", "--output", "--platform", "--arg-file"},
}
"""Options that change nothing of what a command asks the server."""

MODEL = """
import bentoml
with bentoml.models.create("tiny:1") as model:
    open(model.path_of("word.txt"), "w").write("a word")
"""
TALKS = (
    IMAGE
    + """

args = bentoml.use_arguments()


@bentoml.service(image=image)
class Talker:
    @bentoml.api
    def say(self) -> str:
        return "word"
"""
)


def test_each_has_a_scenario_and_so_has_each_of_its_options() -> None:
    commands = client_commands()
    typed = typed_commands(Path(__file__).parent, commands)
    asks = {name: options for name, options in commands.items() if name not in ON_THE_LAPTOP}
    print(f"{len(asks)} commands ask the server, with {sum(map(len, asks.values()))} options")
    missing = [
        f"bentoml {name} {'/'.join(sorted(option))}".rstrip()
        for name, options in asks.items()
        for option in ([*options] if name in typed else [frozenset[str]()])
        if not option or not option & (typed[name] | NO_SERVERS.get(name, set()))
    ]
    assert missing == []
    assert len(asks) == 28, "the number in platform/README.md"


@dataclass
class User:
    """Somebody with a laptop, files of their own, and a deployment's bento."""

    laptop: Laptop
    platform: AnyPlatform
    bento: str
    folder: Path

    async def types(self, line: str, *, fails: bool = False) -> str:
        return await self.laptop.types(line, folder=self.folder, fails=fails)

    def file(self, name: str, text: str) -> None:
        (self.folder / name).write_text(text)

    async def config(self, name: str) -> dict[str, Any]:
        """What the platform keeps of a deployment: its settings, and those of its entry service."""
        page = await self.platform.ask(name)
        assert page["bento"].startswith(self.bento.partition(":")[0] + ":")
        return {**page["config"]["services"]["Talker"], **page["config"]}


@pytest.fixture(scope="module")
def talks(laptop: Laptop) -> Path:
    return laptop.project("talks", TALKS)


@pytest.fixture
async def user(platform: AnyPlatform, laptop: Laptop, kitchen: str, talks: Path) -> User:
    """kitchen: the environment of what they deploy is there."""
    return User(laptop, platform, "talker:v1", talks)


async def test_logins_are_contexts(platform: AnyPlatform, tmp_path: Path) -> None:
    laptop = Laptop(tmp_path)
    login = f"cloud login --endpoint {platform.url} --api-token {platform.token}"
    assert f"Logged in as admin@localhost at {platform.organization}" in await laptop.types(login)
    await laptop.types(f"{login} --context second")
    assert await laptop.types("cloud list-context") == '[ "default", "second" ]'
    assert "switched to context: second" in await laptop.types(
        "cloud update-current-context second"
    )
    assert platform.url in await laptop.types("cloud current-context")
    assert "[]" in await laptop.types("secret list -o json --context default")


async def test_bentos_and_models_go_there_and_back(user: User, tmp_path: Path) -> None:
    await user.laptop.python(MODEL)
    push = "build --name talker --version v1 --arg word=hi --push --force --threads 2"
    assert "Successfully pushed" in await user.types(push)
    assert "Successfully pushed" in await user.types("push talker:v1 --force --threads 2")
    assert "Successfully pushed" in await user.types("models push tiny:1 --force --threads 2")
    other = Laptop(tmp_path)
    await other.login(user.platform)
    assert "Successfully pulled" in await other.types("pull talker:v1 --force --with-models")
    assert "Successfully pulled" in await other.types("models pull tiny:1 --force")
    (tmp_path / "models.yaml").write_text("service: 'x:y'\nmodels: ['tiny:1']\n")
    again = await other.types("models pull --force --bentofile models.yaml")
    assert "Successfully pulled" in again


async def test_secrets_and_tokens(user: User) -> None:
    user.file("more.env", "MORE=m\n")
    about = "--description mine --stage all --cluster default --from-file more.env"
    assert "created" in await user.types(f"secret create words WORD=w --type env {about}")
    files = "--type file --path $BENTOML_HOME/tls --stage runtime"
    assert "created" in await user.types(f"secret create files 'key.pem=@more.env' {files}")
    (shown,) = json.loads(await user.types("secret list --search word --output json"))
    assert shown["description"] == "mine"
    assert [item["key"] for item in shown["content"]["items"]] == ["WORD", "MORE"]
    about = "--description ours --stage runtime --cluster default --from-file more.env"
    assert "applied" in await user.types(f"secret apply words WORD=x --type env {about}")
    files = "--type file --path $BENTOML_HOME/keys"
    assert "applied" in await user.types(f"secret apply files key.pem=k {files}")
    shown = {each["name"]: each for each in json.loads(await user.types("secret list -o json"))}
    assert shown["words"]["description"] == "ours"
    for name in ("words", "files"):
        assert "deleted" in await user.types(f"secret delete {name} --cluster default")

    scopes = "--scope read_cluster --scope write_cluster"
    made = await user.types(f"api-token create ci --description d {scopes} --expires 30d -o json")
    token = json.loads(made[made.index("{") :])
    (listed,) = json.loads(await user.types("api-token list --search ci --output json"))
    assert listed["scopes"] == ["read_cluster", "write_cluster"]
    assert token["uid"] in await user.types(f"api-token get {token['uid']} --output yaml")
    assert "deleted" in await user.types(f"api-token delete {token['uid']}")
    gone = await user.types(f"api-token get {token['uid']}", fails=True)
    assert "not found" in gone


async def test_deployments_are_made_with_every_option(user: User) -> None:
    user.file("words.yaml", "word: hi\n")
    await user.types("secret create told WORD=w")
    listed = json.loads(await user.types("deployment list-instance-types -o json"))
    larger = max(one["name"] for one in listed if one["name"] in ("cpu.1", "cpu.2"))
    options = (
        "--cluster default --access-authorization true --scaling-min 0 --scaling-max 2 "
        "--instance-type cpu.1 --strategy Recreate --env A=1 --secret told --arg word=hi "
        "--arg-file words.yaml"
    )
    first = f"deploy . --name one {options} --label team=a --wait --timeout 100"
    assert "is ready" in await user.types(first)
    kept = await user.config("one")
    assert kept["scaling"] | {"policy": None} == {
        "min_replicas": 0,
        "max_replicas": 2,
        "policy": None,
    }
    assert (kept["access_authorization"], kept["secrets"]) == (True, ["told"])
    assert (kept["instance_type"], kept["deployment_strategy"]) == ("cpu.1", "Recreate")
    second = f"deployment create . --name two {options} --no-wait --timeout 100"
    assert "Created deployment" in await user.types(second)
    assert (await user.config("two"))["instance_type"] == "cpu.1"
    config = {"name": "three", "bento": ".", "services": {"Talker": {}}}
    assert "Created" in await user.types(f"deploy --no-wait --config-dict '{json.dumps(config)}'")
    user.file("four.yaml", json.dumps(config | {"name": "four"}))
    assert "Created" in await user.types("deploy --no-wait --config-file four.yaml")
    more = f"--no-wait --config-dict '{json.dumps(config | {'name': 'five'})}'"
    assert "Created" in await user.types(f"deployment create {more}")
    await user.types("deployment create --no-wait --config-file four.yaml", fails=True)

    update = options.replace("cpu.1", larger).replace("A=1", "B=2")
    bento = "--bento talker:v1 --label team=b"
    assert "updated" in await user.types(f"deployment update one {bento} {update}")
    kept = await user.config("one")
    assert (kept["instance_type"], kept["envs"]) == (larger, [{"name": "B", "value": "2"}])
    config = {"services": {"Talker": {"scaling": {"min_replicas": 0, "max_replicas": 3}}}}
    more = f"--config-dict '{json.dumps(config | {'name': 'one'})}'"
    assert "updated" in await user.types(f"deployment update {more}")
    user.file("update.yaml", json.dumps(config | {"name": "two"}))
    assert "updated" in await user.types("deployment update --config-file update.yaml")

    apply = options
    assert "applied" in await user.types(
        f"deployment apply talker:v1 --name six --label team=a {apply}"
    )
    whole = config | {"name": "six", "bento": "talker:v1", "cluster": "default"}
    more = f"--config-dict '{json.dumps(whole)}'"
    assert "applied" in await user.types(f"deployment apply {more}")
    user.file("apply.yaml", json.dumps(whole))
    assert "applied" in await user.types("deployment apply --config-file apply.yaml")


async def test_deployments_are_shown_ended_and_deleted(user: User) -> None:
    types = json.loads(await user.types("deployment list-instance-types --cluster default -o json"))
    assert "cpu.1" in [one["name"] for one in types]
    listed = json.loads(await user.types("deployment list --label team=b --output json"))
    assert [one["name"] for one in listed] == ["one"]
    listed = json.loads(await user.types("deployment list --cluster default --search fiv -o json"))
    assert [one["name"] for one in listed] == ["five"]
    shown = json.loads(await user.types("deployment get one --cluster default --output json"))
    assert shown["config"]["secrets"] == ["told"]
    ended = await user.types("deployment terminate one --cluster default --wait")
    assert "terminated successfully" in ended
    for name in ("one", "two", "three", "four", "five", "six"):
        assert "deleted" in await user.types(f"deployment delete {name} --cluster default")
        await user.platform.delete(name)
    await user.types("secret delete told")


async def test_what_the_client_gets_wrong_has_a_way_around(user: User) -> None:
    """As platform/README.md says."""
    await user.types("deploy talker:v1 -n wrong --label team=w --arg word=hi")
    listed = json.loads(await user.types("deployment list --label team=none -o json"))
    assert listed == []
    unfiltered = await user.types("deployment list --cluster default --label team=none -o json")
    assert "wrong" in [one["name"] for one in json.loads(unfiltered)]

    apply = "deployment apply talker:v1 -n wrong --scaling-max 2"
    assert "cluster cannot be changed" in await user.types(apply, fails=True)
    assert "applied" in await user.types(f"{apply} --cluster default")

    url = await user.platform.url_of("wrong")
    await user.types("deployment terminate wrong --wait")
    said = await user.types("deployment start wrong --cluster default", fails=True)
    assert "verify() must be called first" in said
    assert "updated" in await user.types("deployment update wrong")
    assert url == await user.platform.url_of("wrong")
    await user.platform.delete("wrong")


async def test_a_code_space_with_locked_packages_is_beyond_the_client(laptop: Laptop) -> None:
    folder = laptop.project("locked", TALKS.replace("lock_python_packages=False", ""))
    printed = await laptop.python(f"""
from bentoml._internal.cloud.deployment import ensure_bento
try:
    ensure_bento({str(folder)!r}, bare=True, push=False)
except FileNotFoundError as error:
    print(error)
""")
    assert "No such file or directory" in printed
    assert "/src" in printed


@pytest.mark.one_machine("it starts platforms of its own")
async def test_a_users_day_on_postgresql(
    platform: Platform, kitchen: str, talks: Path, postgresql_server: str, tmp_path: Path
) -> None:
    """A part of these commands, for the suite; `make test-postgres` runs all of them there."""
    own = Platform(
        tmp_path / "data", environments_of=platform, database=postgresql.database(postgresql_server)
    )
    try:
        await own.start()
        laptop = await Laptop.at(tmp_path / "laptop", own)
        user = User(laptop, own, "talker:v2", talks)
        assert "Successfully pushed" in await user.types("build --name talker --version v2 --push")
        await user.types("secret create told WORD=w")
        assert "told" in await user.types("secret list")
        assert "Never" in await user.types("api-token create ci --scope endpoint")
        deploy = "deploy talker:v2 --name day --scaling-min 0 --secret told --label team=a"
        assert "is ready" in await user.types(deploy)
        listed = json.loads(await user.types("deployment list --label team=a -o json"))
        assert [one["name"] for one in listed] == ["day"]
        assert "updated" in await user.types("deployment update day --scaling-max 3")
        assert (await user.config("day"))["scaling"]["max_replicas"] == 3
        assert "terminated" in await user.types("deployment terminate day --wait")
        assert "deleted" in await user.types("deployment delete day")
        assert "deleted" in await user.types("secret delete told")
        assert await own.stop() == 0
    finally:
        own.destroy()
