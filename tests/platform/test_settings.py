from __future__ import annotations

import re
import stat
from dataclasses import fields
from pathlib import Path

import pytest

from hotplate.deploy.standbys import StandbySettings
from hotplate.platform import settings as module
from hotplate.platform.commands.flags import gateway_limits
from hotplate.platform.commands.roles.gateway import ACCOUNT
from hotplate.platform.errors import AlreadyRunning, BadSetting
from hotplate.platform.processes.data_dir import DataDir
from hotplate.platform.settings import Cpus, PlatformSettings, load
from hotplate.serving.gateway import compiled
from hotplate.serving.gateway.fleet import discovery
from hotplate.serving.gateway.limits import Limits


def loaded(tmp_path: Path, text: str = "", **others: object) -> PlatformSettings:
    file = tmp_path / "hotplate.toml"
    file.write_text(text)
    flags = others.get("flags", {})
    environ = others.get("environ", {})
    assert isinstance(flags, dict)
    assert isinstance(environ, dict)
    return load(PlatformSettings, "platform", flags=flags, environ=environ, file=file)


def test_a_flag_beats_the_environment_which_beats_the_file_which_beats_the_default(
    tmp_path: Path,
) -> None:
    text = "[platform]\nport = 1\nhost = '0.0.0.0'\ndrain_s = 5"
    environ = {"HOTPLATE_PLATFORM__PORT": "2", "HOTPLATE_PLATFORM__HOST": "::", "PATH": "x"}
    found = loaded(tmp_path, text, environ=environ, flags={"port": 3, "host": None})
    assert (found.port, found.host, found.drain_s, found.database_url) == (3, "::", 5.0, "")


@pytest.mark.parametrize(
    ("text", "environ", "message"),
    [
        ("[platform]\nprot = 1", {}, "did you mean 'port'?"),
        ("[platform]\ntls_key = 'k.pem'", {}, "platform.tls_key: 'k.pem' is not allowed"),
        ("[platform]\nprometheus_url = 'prom:9090'", {}, "must be a URL, e.g. http://"),
        ("[platform]\nmodel_endpoints = ['hub']", {}, "must be URLs, e.g. https://hub"),
        ("[platform]\nmodel_endpoints = [1]", {}, "is not a list of texts"),
        ("[plattform]\nport = 1", {}, "did you mean 'platform'?"),
        ("", {"HOTPLATE_PLATFORM__PROT": "1"}, "did you mean 'port'?"),
        ("[platform]\nport = 'x'", {}, "platform.port: 'x' is not a whole number"),
        ("[platform]\nport = true", {}, "platform.port: True is not a whole number"),
        ("[platform]\nport = 80.5", {}, "platform.port: 80.5 is not a whole number"),
        ("[platform]\nhost = 7", {}, "platform.host: 7 is not a text"),
        ("[platform]\nport = 70000", {}, "platform.port: 70000 is not allowed"),
        ("[platform]\ndeployment_ports = '9-1'", {}, "e.g. 7100-7999"),
        ("[platform", {}, "cannot be read"),
        ("[platform]\nhosts = [1]", {}, "platform.hosts: [1] is not a list of texts"),
        (
            "[platform]\nhosts = ['http://a.b']",
            {},
            "'http://a.b' is not allowed; it must be a name",
        ),
        ("", {"HOTPLATE_PLATFORM__HOSTS": "a.b,c/d"}, "platform.hosts: 'c/d' is not allowed"),
        ("platform = 1", {}, "must be a table"),
        (
            "[platform]\ndrain_s = inf",
            {},
            "drain_s: inf is not allowed; it must be 0 to 3000000000",
        ),
        ("[platform]\ntask_results_s = 1e12", {}, "must be more than 0, at most 3000000000"),
        (f"[platform]\nport = {'9' * 5000}", {}, "hotplate.toml cannot be read: "),
        ("[standbi]\nmode = 'off'", {}, "did you mean 'standby'?"),
    ],
)
def test_a_bad_setting_is_one_sentence(
    tmp_path: Path, text: str, environ: dict[str, str], message: str
) -> None:
    with pytest.raises(BadSetting, match=re.escape(message)) as raised:
        loaded(tmp_path, text, environ=environ)
    assert "\n" not in str(raised.value).strip()


def test_what_is_true_or_false_is_so_in_the_environment_too(tmp_path: Path) -> None:
    name = "HOTPLATE_PLATFORM__TRUST_ORGANIZATIONS"
    for text, meant in {"false": False, "0": False, "TRUE": True, "1": True}.items():
        assert loaded(tmp_path, environ={name: text}).trust_organizations is meant
    with pytest.raises(BadSetting, match="'perhaps' is not true or false"):
        loaded(tmp_path, environ={name: "perhaps"})


def test_hosts_are_a_list_in_the_file_and_joined_by_commas_elsewhere(tmp_path: Path) -> None:
    file = loaded(tmp_path, "[platform]\nhosts = ['a.example', 'b.example:8443']")
    assert file.hosts == ("a.example", "b.example:8443")
    environ = {"HOTPLATE_PLATFORM__HOSTS": "a.example, b.example,"}
    found = loaded(tmp_path, "[platform]\nadvertise_host = 'c.example'", environ=environ)
    assert found.own_hosts == ("c.example", "a.example", "b.example")


@pytest.mark.parametrize(
    ("environ", "message"),
    [
        ({"CPUS": "shared"}, "platform.cpus: 'shared' is none of share, reserve"),
        ({"CPU_OVERCOMMIT": "0.5"}, "platform.cpu_overcommit: 0.5 is not allowed; it must be 1 to"),
        ({"CPU_OVERCOMMIT": "nan"}, "platform.cpu_overcommit: nan is not allowed; it must be 1 to"),
        ({"CPU_OVERCOMMIT": "inf"}, "platform.cpu_overcommit: inf is not allowed; it must be 1 to"),
        ({"CPU_OVERCOMIT": "2"}, "did you mean 'cpu_overcommit'"),
    ],
)
def test_how_cpus_are_shared_is_checked(
    tmp_path: Path, environ: dict[str, str], message: str
) -> None:
    named = {f"HOTPLATE_PLATFORM__{name}": value for name, value in environ.items()}
    with pytest.raises(BadSetting, match=message):
        loaded(tmp_path, environ=named)


def test_cpus_are_shared_unless_the_file_reserves_them(tmp_path: Path) -> None:
    assert PlatformSettings().cpus == "share"
    read = loaded(tmp_path, '[platform]\ncpus = "reserve"\ncpu_overcommit = 2\n')
    assert (read.cpus, read.cpu_overcommit) == (Cpus.RESERVE, 2.0)


def test_every_setting_has_a_sentence() -> None:
    source = Path(module.__file__).read_text()
    body = source.split("class PlatformSettings:")[1].split("def __post_init__")[0]
    fields = [line for line in body.splitlines() if ": " in line and line.startswith("    ")]
    messages = [line for line in body.splitlines() if line.strip().startswith('"""')]
    assert len([f for f in fields if " = " in f and '"""' not in f]) == len(messages)


def test_every_setting_stands_in_the_readme_with_its_default() -> None:
    readme = (Path(__file__).parents[2] / "platform" / "README.md").read_text()
    for field in fields(PlatformSettings):
        assert f"| `{field.name}` |" in readme


def test_a_secret_is_kept_and_only_its_owner_reads_it(tmp_path: Path) -> None:
    data = DataDir.at(tmp_path / "data")
    made = data.secret("admin-token")
    assert DataDir.at(tmp_path / "data").secret("admin-token") == made
    assert data.secret("admin-token", "given") == "given"
    assert data.secret("admin-token") == "given"
    # A command takes what begins with a hyphen for a flag.
    assert all(data.secret(f"secret-{number}").isalnum() for number in range(50))
    assert stat.S_IMODE((data.root / "admin-token").stat().st_mode) == 0o600
    assert stat.S_IMODE(data.root.stat().st_mode) == 0o700


def test_a_data_directory_that_cannot_be_made_is_a_bad_setting(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(BadSetting, match=r"File exists.*choose another --data"):
        DataDir.at(tmp_path / "file")


def test_who_only_looks_makes_no_data_directory(tmp_path: Path) -> None:
    assert DataDir.named(tmp_path / "data").noted("endpoint") is None
    assert not (tmp_path / "data").exists()


def test_a_data_directory_has_one_platform(tmp_path: Path) -> None:
    data = DataDir.at(tmp_path)
    held = data.lock()
    assert held > 0
    with pytest.raises(AlreadyRunning, match="in use by another 'hotplate up'"):
        DataDir.at(tmp_path).lock()


def test_replicas_work_in_a_folder_that_bentoml_does_not_call_hidden(tmp_path: Path) -> None:
    seen = DataDir.at(tmp_path / "data").visible_folder("engine")
    assert seen == tmp_path / "data" / "engine"
    moved = DataDir.at(tmp_path / ".hidden").visible_folder("engine")
    assert not any(part.startswith(".") for part in moved.parts)
    assert moved == DataDir.at(tmp_path / ".hidden").visible_folder("engine")


def test_a_note_that_is_damaged_is_as_none(tmp_path: Path) -> None:
    data = DataDir.at(tmp_path)
    assert data.noted("ports") is None
    data.note("ports", {"agent": 1})
    assert data.noted("ports") == {"agent": 1}
    (tmp_path / "run" / "ports.json").write_text("{")
    assert data.noted("ports") is None


def test_the_standbys_have_a_table_of_their_own(tmp_path: Path) -> None:
    file = tmp_path / "hotplate.toml"
    file.write_text("[platform]\nport = 1\n[standby]\nmode = 'fixed'\ncount = 2")
    environ = {"HOTPLATE_STANDBY__MEMORY_SHARE": "0.5"}
    found = load(StandbySettings, "standby", flags={}, environ=environ, file=file)
    assert (found.mode, found.count, found.memory_share) == ("fixed", 2, 0.5)
    assert load(PlatformSettings, "platform", flags={}, environ={}, file=file).port == 1
    for name, value, said in (
        ("MODE", "often", "standby.mode: 'often' is none of off, automatic, fixed"),
        ("COUNT", "-1", "standby: count -1 is below 0"),
    ):
        with pytest.raises(BadSetting, match=re.escape(said)):
            load(
                StandbySettings,
                "standby",
                flags={},
                environ={f"HOTPLATE_STANDBY__{name}": value},
                file=file,
            )


def test_the_gateways_limits_have_a_table_of_their_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "hotplate.toml"
    file.write_text("[gateway]\nidle_s = 120\nconnections = 10")
    monkeypatch.setenv("HOTPLATE_GATEWAY__CONNECTIONS", "20")
    found = gateway_limits(file, "a.example")
    assert (found.idle_s, found.connections, found.hosts) == (120.0, 20, ("a.example",))
    for text, said in (
        ("idle_s = 0", "gateway.idle_s: 0.0 is not a finite number above 0"),
        ("idel_s = 1", "no such setting; did you mean 'idle_s'?"),
    ):
        file.write_text(f"[gateway]\n{text}")
        with pytest.raises(BadSetting, match=re.escape(said)):
            gateway_limits(file)


def test_what_a_gateway_reads_by_itself_is_no_unknown_setting(tmp_path: Path) -> None:
    environ = {discovery.SETTING: str(tmp_path), compiled.SETTING: "false", ACCOUNT: str(tmp_path)}
    assert environ.keys() == module.READ_ELSEWHERE
    limits = load(Limits, "gateway", flags={}, environ=environ, file=tmp_path / "none.toml")
    assert limits == Limits()
