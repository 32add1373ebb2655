"""What `config_overrides` may say."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping
from typing import Any

import pytest

from hotplate.platform.errors import Invalid
from hotplate.platform.spec.fields import Fields
from hotplate.platform.spec.service_config import check_overrides
from hotplate.platform.spec.service_settings import SERVICE_SETTINGS
from tests.platform.spec.test_deployment_config import config

PATH = "services.Echo.config_overrides"
ASK = """
import json
from collections.abc import Mapping
from typing import get_type_hints
from typing_extensions import is_typeddict
from _bentoml_sdk.service.config import ServiceConfig
from bentoml._internal.configuration.helpers import get_default_config
from bentoml._internal.configuration.v2 import _SERVICE_CONFIG

def tree(known):
    if is_typeddict(known):
        return {key: tree(kind) for key, kind in get_type_hints(known).items()}
    known = next((one for one in getattr(known, "args", ()) if isinstance(one, Mapping)), known)
    if isinstance(known, Mapping):
        return {getattr(key, "schema", key): tree(kind) for key, kind in known.items()}

known = [tree(ServiceConfig), tree(_SERVICE_CONFIG)]
print(json.dumps({"known": known, "defaults": get_default_config(2)["services"]}))
"""
"""Asked of a process of its own: to import BentoML warns."""


def override(overrides: Mapping[str, Any], written: Mapping[str, Any] | None = None) -> None:
    check_overrides(overrides, PATH, written or {})


def paths(tree: Mapping[str, Any], above: str = "") -> set[str]:
    """Of the settings that have nothing inside that is known."""
    found: set[str] = set()
    for key, inside in tree.items():
        path = f"{above}.{key}"
        found |= paths(inside, path) if isinstance(inside, Mapping) and inside else {path}
    return found


@pytest.fixture(scope="module")
def theirs() -> dict[str, Any]:
    """`known` to BentoML, as trees, and the `defaults`."""
    said = subprocess.run([sys.executable, "-c", ASK], check=True, capture_output=True)
    asked: dict[str, Any] = json.loads(said.stdout)
    return asked


def test_every_setting_that_bentoml_knows_is_known_and_no_other(theirs: dict[str, Any]) -> None:
    assert paths(SERVICE_SETTINGS) == set().union(*map(paths, theirs["known"]))


def test_what_bentoml_has_by_default_is_taken(theirs: dict[str, Any]) -> None:
    override(theirs["defaults"])


@pytest.mark.parametrize(
    "overrides",
    [
        {"extra_ports": [8001], "workers": "cpu_count", "replicate_process": True},
        {"monitoring": {"options": {"any": {"thing": [1, None]}}}},
        {"tracing": {"otlp": {"http": {"headers": {"x-any": "thing"}}}, "sample_rate": 1}},
        {"tracing": {"otlp": {"grpc": {"headers": [["a", "b"]]}}, "excluded_urls": "/x"}},
        {"http": {"cors": {"access_control_allow_origins": "*", "access_control_max_age": 1}}},
        {"http": {"cors": {"access_control_allow_origins": ["http://a", "http://b"]}}},
        {"metrics": {"namespace": "mine", "duration": {"buckets": [0.1, 1], "min": 1}}},
        {"logging": {"access": {"format": {"trace_id": "032x"}, "skip_paths": ["/x"]}}},
        {"ssl": {"enabled": True, "certfile": "/x", "version": 17}, "runner_probe": None},
        {"traffic": {"concurrency": None}, "resources": {"gpu_type": "nvidia-of-next-year"}},
        {"endpoints": {"livez": "/ok"}, "batching": {"enabled": True, "max_batch_size": 4}},
    ],
)
def test_what_bentoml_takes_is_taken(overrides: dict[str, Any]) -> None:
    override(overrides)


@pytest.mark.parametrize(
    ("overrides", "said"),
    [
        ({"trafic": {}}, "trafic: BentoML has no such setting; did you mean 'traffic'?"),
        ({"concurrency": 4}, "concurrency: BentoML has .*; did you mean 'traffic.concurrency'?"),
        ({"port": 4}, "port: BentoML has no such setting; did you mean 'http.port'?"),
        ({"traffic": {"concurency": 4}}, "traffic.concurency: .*; did you mean 'concurrency'?"),
        ({"resources": {"gpus": 1}}, "resources.gpus: .*; did you mean 'gpu'?"),
        ({"http": {"cors": {"enable": 1}}}, "http.cors.enable: .*; did you mean 'enabled'?"),
        ({"Traffic": {}}, "Traffic: .*; did you mean 'traffic'?"),
        ({"traffic ": {}}, "traffic : .*; did you mean 'traffic'?"),
        ({"": 1}, r": BentoML has no such setting \(known: backlog, "),
        ({"流量": {}}, "流量: BentoML has no such setting"),
        ({"scaling": {"min_replicas": 1}}, "scaling: BentoML has no such setting"),
        ({"http": []}, r"http: \[\] is not an object"),
        ({"http": {"port": "80"}}, "http.port: '80' is not a whole number"),
        ({"http": {"port": True}}, "http.port: True is not a whole number"),
        ({"metrics": {"enabled": "yes"}}, "metrics.enabled: 'yes' is not true or false"),
        ({"extra_ports": 8001}, "extra_ports: 8001 is not a list"),
        ({"ssl": {"certfile": {"a": 1}}}, "ssl.certfile: {'a': 1} is not a string"),
        ({"runner_connection": {"max_age": -1}}, ".*max_age: -1 is not a number above 0"),
        ({"tracing": {"excluded_urls": ["/x", 1]}}, r".*excluded_urls\[1\]: 1 is not a string"),
        ({"monitoring": {"options": [1]}}, r"monitoring.options: \[1\] is not an object"),
    ],
)
def test_what_bentoml_would_drop_or_not_start_with_is_refused(
    overrides: dict[str, Any], said: str
) -> None:
    with pytest.raises(Invalid, match=f"^{PATH}.{said}"):
        override(overrides)


def test_a_deployment_is_refused_for_it() -> None:
    with pytest.raises(Invalid, match=rf"{PATH}\.trafic: .*; did you mean 'traffic'\?"):
        config(services={"Echo": {"config_overrides": {"trafic": {"concurrency": 4}}}})


def test_what_a_newer_bentoml_let_the_author_write_may_be_overridden() -> None:
    written = {"novelty": {"a": 1}, "traffic": {"new": 1}, "http": "odd"}
    override({"novelty": {"b": 2}, "traffic": {"new": 2}, "http": {"port": 1}}, written)
    with pytest.raises(Invalid, match=r"traffic\.newer"):
        override({"traffic": {"newer": 2}}, written)


def test_a_complaint_about_a_huge_key_or_value_is_short_and_soon_made() -> None:
    huge = "x" * 10_000_000
    for overrides in ({huge: 1}, {"http": {huge: 1}}, {"http": {"host": [huge]}}, {"http": huge}):
        with pytest.raises(Invalid) as refused:
            override(overrides)
        assert len(str(refused.value)) < 1000
    with pytest.raises(Invalid) as refused:
        Fields({"kind": huge}).choice("kind", ["a", "b"])
    assert len(str(refused.value)) < 1000
