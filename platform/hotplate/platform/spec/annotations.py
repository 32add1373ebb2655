"""Binary scaling as operators write it, in labels of a deployment; pure.

    autoscaling/enabled: "true"
    autoscaling/max_replicas: "1"
    autoscaling/queries: "QUERY&QUERY"

`hotplate/binary-window-s` and `hotplate/binary-target` are ours beside them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from hotplate.autoscaler.binary import BinaryPolicy
from hotplate.autoscaler.promql import rewritten, split_queries
from hotplate.platform.errors import Invalid
from hotplate.platform.spec.fields import suggestion
from hotplate.platform.spec.label_settings import LabelSettings

PREFIX = "autoscaling/"
ENABLED, MAX_REPLICAS, QUERIES = (PREFIX + name for name in ("enabled", "max_replicas", "queries"))


@dataclass(frozen=True)
class BinarySpec:
    """The annotations of a deployment, read."""

    policy: BinaryPolicy
    queries: tuple[str, ...]
    """As they were written."""
    target: str
    """Selects the `up` of what is scraped for them, inside braces; empty = of everything."""

    @property
    def asked(self) -> tuple[str, ...]:
        """The queries as Prometheus is asked."""
        return tuple(map(rewritten, self.queries))

    @property
    def up(self) -> str:
        """The query that says whether the target is up."""
        return f"up{{{self.target}}}" if self.target else "up"


def binary_of(labels: Sequence[Mapping[str, str]]) -> BinarySpec | None:
    """None where it is not enabled. Labels were checked."""
    values = {label["key"]: label["value"] for label in labels}
    if values.get(ENABLED) != "true":
        return None
    settings = LabelSettings.of(labels)
    replicas = int(values.get(MAX_REPLICAS, "1"))
    policy = BinaryPolicy(replicas, float(settings.binary_window_s))
    return BinarySpec(policy, split_queries(values.get(QUERIES, "")), settings.binary_target)


def check_annotations(labels: Sequence[Mapping[str, str]], path: str) -> None:
    """Raises Invalid, which opens with the label's path: `path[index]`."""
    values: dict[str, str] = {}
    for index, label in enumerate(labels):
        key, value = label["key"], label["value"]
        if not key.startswith(PREFIX):
            continue
        values[key] = value
        if key not in (ENABLED, MAX_REPLICAS, QUERIES):
            known = (ENABLED, MAX_REPLICAS, QUERIES)
            raise Invalid(f"{path}[{index}].key: there is no {key!r}{suggestion(key, known)}")
        if key == ENABLED and value not in ("true", "false"):
            raise Invalid(f"{path}[{index}].value: {key} is 'true' or 'false', not {value!r:.80}")
        if key == MAX_REPLICAS and not (value.isascii() and value.isdecimal() and len(value) < 4):
            raise Invalid(f"{path}[{index}].value: {key} is 0 to 999, not {value!r:.80}")
    if values.get(ENABLED) == "true" and not split_queries(values.get(QUERIES, "")):
        raise Invalid(f"{path}: {ENABLED} is true and {QUERIES} has no query: nothing would decide")
