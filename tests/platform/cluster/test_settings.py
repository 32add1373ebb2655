"""The table `[cluster]`: what may stand in it, and each kind of mistake."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from hotplate.deploy.workload import Resources
from hotplate.platform.cluster.settings import ENDLESS, ClusterTable, load_cluster
from hotplate.platform.errors import BadSetting
from hotplate.serving.replica.pods.runtimes import RuntimeImage

URL = 'url = "https://*.models.example.com"'
RUNTIMES = 'runtimes = [{python = "3.11", image = "hotplate-runtime:1"}]'
LEAST = f"{URL}\n{RUNTIMES}\n"


def read(folder: Path, table: str) -> ClusterTable:
    file = folder / "hotplate.toml"
    file.write_text(f"[cluster]\n{table}")
    return load_cluster(file, {})


def test_the_least_is_a_url_and_a_runtime(tmp_path: Path) -> None:
    table = read(tmp_path, LEAST)
    assert table.url == "https://*.models.example.com"
    assert table.runtimes == [RuntimeImage("3.11", "hotplate-runtime:1")]
    assert (table.release, table.pull_policy, table.bounds) == ("hotplate", "IfNotPresent", None)


def test_everything_that_the_chart_writes_is_read(tmp_path: Path) -> None:
    table = read(
        tmp_path,
        """
        url = "http://*.models.test:30080"
        release = "inhouse"
        runtimes = [{python = "3.11", image = "a:1"}, {python = "3.12.4", image = "r/b@sha256:0"}]
        pull_policy = "Never"
        pull_secrets = ["registry"]
        capacity_cpus = 64
        capacity_memory = "512GiB"
        capacity_gpus = 8
        tolerations = [{key = "gpu", operator = "Exists", tolerationSeconds = 3}]
        [cluster.node_selector]
        pool = "models"
        [cluster.instance_selectors."gpu.l4.1"]
        gpu = "l4"
        """,
    )
    assert table.bounds == Resources(64, 512 << 30, 8)
    assert table.node_selector == {"pool": "models"}
    assert table.instance_selectors == {"gpu.l4.1": {"gpu": "l4"}}
    assert [image.interpreter for image in table.runtimes] == ["python3.11", "python3.12"]
    assert (table.pull_secrets, table.tolerations[0]["key"]) == (["registry"], "gpu")


@pytest.mark.parametrize(
    ("said", "bounds"),
    [
        ("capacity_cpus = 2", Resources(2, ENDLESS.memory_bytes, ENDLESS.gpus)),
        ("capacity_memory = 2", Resources(ENDLESS.cpus, 2 << 30, ENDLESS.gpus)),
        ("capacity_gpus = 0", Resources(ENDLESS.cpus, ENDLESS.memory_bytes, 0)),
        ('capacity_cpus = "500m"', Resources(0.5, ENDLESS.memory_bytes, ENDLESS.gpus)),
    ],
)
def test_of_what_nothing_is_said_there_may_be_any_amount(
    tmp_path: Path, said: str, bounds: Resources
) -> None:
    assert read(tmp_path, LEAST + said).bounds == bounds


def test_a_variable_that_would_have_no_effect_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "hotplate.toml"
    file.write_text(f"[cluster]\n{LEAST}")
    with pytest.raises(BadSetting, match="HOTPLATE_CLUSTER__URL has no effect"):
        load_cluster(file, {"HOTPLATE_CLUSTER__URL": "https://*.example.com"})


@pytest.mark.parametrize(
    ("table", "said"),
    [
        (f"{LEAST}pul_policy = 1", "pul_policy: no such setting; did you mean 'pull_policy'?"),
        (f"{LEAST}zebra = 1", "zebra: no such setting; known: url, release, runtimes, pull_"),
        (RUNTIMES, "url: it is missing; it must be a URL whose host begins with '*.', e.g."),
        (URL, "runtimes: it is missing; it must be [{python"),
        (f"{URL}\nruntimes = []", "runtimes: it is missing"),
        (f"{LEAST}release = 7", "release: 7 is not allowed; it must be the name of a namespace"),
        (f'{LEAST}release = "A_b"', "release: 'A_b' is not allowed"),
        (f'{LEAST}pull_policy = "Sometimes"', "it must be one of Always, IfNotPresent, Never"),
        (f'{LEAST}pull_secrets = "one"', "pull_secrets: 'one' is not allowed; it must be a list"),
        (f"{LEAST}pull_secrets = [1]", "pull_secrets: [1] is not allowed"),
        (f"{LEAST}node_selector = {{a = 1}}", "node_selector: {'a': 1} is not allowed"),
        (f'{LEAST}node_selector = ["a"]', "must be a table of labels of nodes"),
        (f'{LEAST}tolerations = ["a"]', "tolerations: ['a'] is not allowed; it must be a list of"),
        (f'{LEAST}instance_selectors = {{a = "b"}}', "instance_selectors: {'a': 'b'} is not"),
        (f"{LEAST}instance_selectors = {{a = {{b = 1}}}}", "instance_selectors: "),
        (f"{LEAST}instance_selectors = {{a = []}}", "instance_selectors: "),
        (f'{LEAST}capacity_cpus = "many"', "capacity: CPU amount 'many' cannot be read: write"),
        (f"{LEAST}capacity_cpus = true", "capacity: CPU amount True cannot be read"),
        (f"{LEAST}capacity_memory = -1", "capacity: memory amount -1 cannot be read"),
        (f"{LEAST}capacity_gpus = 1.5", "capacity: GPU amount 1.5 cannot be read"),
        (f"{LEAST}capacity_gpus = nan", "capacity: GPU amount nan cannot be read"),
        (f"{LEAST}capacity_memory = [1]", "capacity: memory amount [1] cannot be read"),
    ],
)
def test_a_mistake_is_named_with_its_place(tmp_path: Path, table: str, said: str) -> None:
    with pytest.raises(BadSetting, match=re.escape(said)) as refused:
        read(tmp_path, table)
    assert str(refused.value).startswith(f"{tmp_path}/hotplate.toml: [cluster] ")
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    "url",
    [
        "https://models.example.com",
        "*.models.example.com",
        "ftp://*.models.example.com",
        "https://*models.example.com",
        "https://a.*.example.com",
        "https://*.*.example.com",
        "https://*.models.example.com/path",
        "https://*.models.example.com/",
        "https://*.models.example.com:0",
        "https://*.models.example.com:65536",
        "https://*.models.example.com:",
        "https://user@*.example.com",
        "https://*.",
        "https://*.a..b",
        "https://*.-a.b",
        f"https://*.{'a' * 64}.com",
        "https://*" + f".{'a' * 60}" * 4,
        "https://*.models.example.com\n",
    ],
)
def test_a_url_without_a_star_in_its_place_is_refused(tmp_path: Path, url: str) -> None:
    shown = url.replace("\n", "\\n")
    with pytest.raises(BadSetting, match=r"url: .* is not allowed; it must be a URL whose host"):
        read(tmp_path, f'{RUNTIMES}\nurl = "{shown}"')


@pytest.mark.parametrize("url", ["1", "true", '["https://*.a"]', "{a = 1}"])
def test_what_is_no_text_is_no_url(tmp_path: Path, url: str) -> None:
    with pytest.raises(BadSetting, match=r"url: .* is not allowed"):
        read(tmp_path, f"{RUNTIMES}\nurl = {url}")


@pytest.mark.parametrize(
    "runtime",
    [
        "3",
        '"3.11"',
        "{}",
        '{python = "3.11"}',
        '{image = "a:1"}',
        '{python = 3.11, image = "a:1"}',
        '{python = "three", image = "a:1"}',
        '{python = "2.7", image = "a:1"}',
        '{python = "3", image = "a:1"}',
        '{python = "3.11", image = ""}',
        '{python = "3.11", image = "a b"}',
        '{python = "3.11", image = "a:1", uv = "1"}',
        '{python = "3.11", image = 1}',
    ],
)
def test_a_runtime_is_a_python_and_an_image(tmp_path: Path, runtime: str) -> None:
    good: Any = '{python = "3.12", image = "b:1"}'
    with pytest.raises(BadSetting, match=r"runtimes: .* it must be \[\{python = \"3.11\", image"):
        read(tmp_path, f"{URL}\nruntimes = [{good}, {runtime}]")


def test_what_is_no_table_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "hotplate.toml"
    for content in ("cluster = 1", "[[cluster]]\na = 1"):
        file.write_text(content)
        with pytest.raises(BadSetting, match=r"'cluster' must be a table: \[cluster\]"):
            load_cluster(file, {})
    with pytest.raises(BadSetting, match="url: it is missing"):
        load_cluster(tmp_path / "nowhere.toml", {})
