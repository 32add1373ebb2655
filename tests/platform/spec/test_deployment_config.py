from __future__ import annotations

from typing import Any

import pytest

from hotplate.platform.errors import Invalid
from hotplate.platform.spec.deployment_config import deployment_config
from hotplate.platform.spec.fields import Fields
from hotplate.platform.spec.reason_note import with_reason, without_reason
from hotplate.serving.replica.inside.reserved import RESERVED

MANIFEST = {"entry_service": "Echo", "services": [{"name": "Helper"}, {"name": "Echo"}]}


def config(**body: Any) -> dict[str, Any]:
    return deployment_config(Fields(body), MANIFEST, ["cpu.1", "cpu.2"])


def test_what_is_left_out_is_filled_in_for_every_service() -> None:
    filled = config()
    assert list(filled["services"]) == ["Echo", "Helper"]
    assert filled["services"]["Helper"] == {
        "instance_type": None,
        "scaling": {"min_replicas": 1, "max_replicas": 1, "policy": None},
        "envs": [],
        "deployment_strategy": None,
        "cold_start_timeout": None,
        "config_overrides": {},
        "extras": None,
    }


def test_a_types_name_need_not_end_in_a_number() -> None:
    """`gpu.large` beside `gpu.2`: only numbers say which is the largest."""
    types = ["gpu.large", "gpu.2"]
    for asked, said in (("gpu.9", "the largest is 'gpu.2'"), ("gpu.larg", "did you mean")):
        body = Fields({"services": {"Echo": {"instance_type": asked}}})
        with pytest.raises(Invalid, match=said):
            deployment_config(body, MANIFEST, types)


def test_services_that_are_not_named_scale_like_the_entry_service() -> None:
    filled = config(services={"Echo": {"scaling": {"min_replicas": 0, "max_replicas": 3}}})
    assert filled["services"]["Helper"]["scaling"] == filled["services"]["Echo"]["scaling"]


def test_a_config_that_is_sent_back_stays_the_same() -> None:
    scaling = {"min_replicas": 0, "max_replicas": 3, "policy": {"scale_up_behavior": "fast"}}
    first = config(
        services={"Echo": {"scaling": scaling, "instance_type": "cpu.2"}},
        envs=[{"name": "A", "value": "1"}],
        access_authorization=True,
    )
    assert config(**first) == first


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ({"services": {"Ecko": {}}}, "services.Ecko: .*did you mean 'Echo'"),
        ({"services": []}, "services: .* is not an object"),
        (
            {"services": {"Echo": {"scaling": {"min_replicas": 4, "max_replicas": 3}}}},
            "services.Echo.scaling.max_replicas: 3 is below min_replicas 4",
        ),
        (
            {"services": {"Echo": {"scaling": {"max_replicas": "many"}}}},
            "services.Echo.scaling.max_replicas: 'many' is not a whole number",
        ),
        (
            {"services": {"Echo": {"instance_type": "gpu.9"}}},
            r"services.Echo.instance_type: there is no 'gpu.9'.*cpu.1, cpu.2",
        ),
        ({"services": {"Echo": {"cold_start_timeout": 0}}}, "cold_start_timeout: 0 is below 1"),
        (
            {"services": {"Echo": {"cold_start_timeout": 10**9}}},
            "cold_start_timeout: 1000000000 is above 31536000",
        ),
        ({"services": {"Echo": {"deployment_strategy": "Slow"}}}, "deployment_strategy"),
        ({"envs": [{"value": "x"}]}, r"envs\[0\].name: null is not a string"),
        ({"envs": [{"name": "A"}, {"name": "A"}]}, r"envs\[1\].name: 'A' is there twice"),
        ({"envs": {"A": 1}}, "envs: .* is not a list"),
        (
            {"envs": [{"name": "A"}, {"name": "BENTOCLOUD_DEPLOYMENT_URL", "value": "http://x"}]},
            r"envs\[1\].name: 'BENTOCLOUD_DEPLOYMENT_URL' is the platform's own .*; remove it",
        ),
        (
            {"services": {"Helper": {"envs": [{"name": "HOTPLATE_AGENT_SOCKET", "value": "x"}]}}},
            r"services.Helper.envs\[0\].name: 'HOTPLATE_AGENT_SOCKET' is the platform's own",
        ),
        ({"secrets": ["../hf"]}, r"secrets\[0\]: '../hf' is not a name"),
        ({"access_authorization": "yes"}, "access_authorization: 'yes' is not true or false"),
    ],
)
def test_a_wrong_field_is_named_with_its_path(body: dict[str, Any], message: str) -> None:
    with pytest.raises(Invalid, match=message):
        config(**body)


@pytest.mark.parametrize(
    ("written", "message"),
    [
        ({"resources": {"cpu": "lots"}}, "config.resources: CPU amount 'lots' cannot be read"),
        ({"resources": {"memory": -1}}, "config.resources: memory amount -1 cannot be read"),
        ({"resources": "all"}, "config.resources: resources amount 'all' cannot be read"),
        ({"workers": "many"}, "config.workers: 'many' is not a whole number"),
        ({"workers": 0}, "config.workers: 0 is below 1"),
        ({"threads": 1.5}, "config.threads: 1.5 is not a whole number"),
        ({"traffic": 3}, "config.traffic: 3 is not an object"),
        ({"traffic": {"concurrency": "x"}}, "config.traffic.concurrency: 'x' is not"),
        ({"traffic": {"timeout": 0}}, "config.traffic.timeout: 0 is not a number above 0"),
        ({"traffic": {"timeout": 10**400}}, "config.traffic.timeout: 10{79} is above 9007"),
        ({"workers": 10**400}, "config.workers: 10{79} is above 9007199254740992"),
    ],
)
def test_a_service_that_could_not_be_sized_is_refused(
    written: dict[str, Any], message: str
) -> None:
    """As its author wrote it, and as the deployment overrides it."""
    manifest = {"entry_service": "Echo", "services": [{"name": "Echo", "config": written}]}
    with pytest.raises(Invalid, match=f"services.Echo.{message}"):
        deployment_config(Fields({}), manifest, [])
    with pytest.raises(Invalid, match=f"services.Echo.{message}"):
        config(services={"Echo": {"config_overrides": written}})


@pytest.mark.parametrize("name", sorted(RESERVED))
def test_no_bento_may_declare_a_variable_of_the_platform_for_its_replicas(name: str) -> None:
    """The client copies what it declares into the deployment's envs; the bento is to blame."""
    declared = {"name": name, "value": "mine"}
    with pytest.raises(Invalid, match=f"bento: its service declares '{name}' in envs.*build"):
        deployment_config(Fields({"envs": [declared]}), MANIFEST | {"envs": [declared]}, [])
    for_build = MANIFEST | {"envs": [declared | {"stage": "build"}]}
    assert deployment_config(Fields({}), for_build, [])["envs"] == []


def test_a_worker_per_core_and_a_timeout_below_a_second_are_fine() -> None:
    config(services={"Echo": {"config_overrides": {"workers": "cpu_count"}}})
    config(services={"Echo": {"config_overrides": {"traffic": {"timeout": 0.5}}}})


def test_the_reason_that_the_client_was_shown_is_no_part_of_what_it_sends_back() -> None:
    theirs = {"bento_function_overrides": {"annotations": {"team": "a"}}, "other": {"x": 1}}
    for extras in (None, theirs):
        sent = with_reason({"Echo": {"extras": extras}}, "it waits: for 2 GPUs")
        annotations = sent["Echo"]["extras"]["bento_function_overrides"]["annotations"]
        assert annotations["hotplate/reason"] == "it waits: for 2 GPUs"
        assert without_reason(Fields(sent["Echo"])) == (extras or {})
    assert theirs["bento_function_overrides"] == {"annotations": {"team": "a"}}


def test_extras_that_are_none_of_our_notes_are_kept_or_refused() -> None:
    assert without_reason(Fields({"extras": {"bento_request_overrides": {}}})) == {
        "bento_request_overrides": {}
    }
    with pytest.raises(Invalid, match=r"extras\.bento_function_overrides: 3 is not an object"):
        without_reason(Fields({"extras": {"bento_function_overrides": 3}}))
