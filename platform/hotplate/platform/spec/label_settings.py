"""Our own settings of a deployment, which the stock client carries as labels `hotplate/<setting>`;
pure. It drops fields that it does not know, and labels reach us as they are written."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC
from typing import Any, NamedTuple
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from hotplate.autoscaler.errors import ScalingInvalid
from hotplate.autoscaler.policy import Policy
from hotplate.autoscaler.rules.schedule import Schedule
from hotplate.autoscaler.sharing.allocation import USUAL_PRIORITY
from hotplate.platform.errors import Invalid
from hotplate.platform.spec.fields import suggestion
from hotplate.serving.replica.slots import AUTO

PREFIX = "hotplate/"
FIELD_NAME = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]{1,100}")
LONGEST_S = 86400
"""A handler may take no longer."""


@dataclass(frozen=True)
class LabelSettings:
    """A setting is a field: `may_run_twice` is the label `hotplate/may-run-twice`."""

    may_run_twice: bool = False
    """Its requests and tasks do no harm when a replica that died has run some of one already."""
    organization_header: str = ""
    """The header field in which callers, trusted to, say which organization asks; empty = all are
    one."""
    priority_header: bool = False
    """Its callers, trusted to, say with `Priority: u=0..7` whose request goes first."""
    binary_window_s: int = 1800
    """How long all queries of a binary policy have to be 0 until it goes off."""
    binary_target: str = ""
    """Label matchers of the `up` of what they ask about; empty = everything has to be up."""
    schedule: str = ""
    """How many replicas there are at least from which times on; empty = min_replicas always."""
    time_zone: str = "UTC"
    """The time zone of the schedule."""
    priority: int = USUAL_PRIORITY
    """The rank of its replicas where there are not enough for all: 0 first, 7 last."""
    price: float = Policy.price_gpu_s
    """GPU-seconds that one avoided cold start is worth: more keeps idle replicas longer."""
    concurrency: str = ""
    """How many requests one of its replicas has at a time, whatever the bento says; `auto` = as if
    the bento said nothing; empty = as the bento says."""
    task_drain_s: int = 3600
    """How long a replica of a replaced revision may go on with its tasks."""
    ramp_s: int = 30
    """How long each step of a ramped roll-out lasts."""
    auto_rollback: bool = True
    """Whether a roll-out is stopped whose new revision answers worse than the old one."""

    @staticmethod
    def of(labels: Sequence[Mapping[str, str]]) -> LabelSettings:
        """The settings of labels that were checked. A label that another version of ours took is no
        reason to leave the deployment alone: it counts for nothing."""
        values: dict[str, Any] = {}
        for label in labels:
            setting = _SETTINGS.get(label["key"])
            value = None if setting is None else setting.read(label["value"])
            if setting is not None and value is not None:
                values[setting.field] = value
        return LabelSettings(**values)


def _flag(text: str) -> bool | None:
    return {"true": True, "false": False}.get(text)


def _field_name(text: str) -> str | None:
    return text if FIELD_NAME.fullmatch(text) else None


def _seconds(text: str) -> int | None:
    known = text.isascii() and text.isdecimal() and len(text) < 10
    return int(text) if known and int(text) <= LONGEST_S else None


def _schedule(text: str) -> str | None:
    return None if _fault_of_schedule(text) else text


def _fault_of_schedule(text: str) -> str:
    try:
        Schedule(text, UTC)
    except ScalingInvalid as error:
        return error.problem
    return ""


def _time_zone(text: str) -> str | None:
    try:
        ZoneInfo(text)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        return None
    return text


def _matchers(text: str) -> str | None:
    return text if re.fullmatch(r'(\w+(=|!=|=~|!~)"[^"]*",?)*', text) else None


def _priority(text: str) -> int | None:
    return int(text) if re.fullmatch("[0-7]", text) else None


def _price(text: str) -> float | None:
    return float(text) if re.fullmatch(r"[0-9]{1,9}(\.[0-9]{1,3})?", text) else None


def _concurrency(text: str) -> str | None:
    return text if text == AUTO or re.fullmatch("[1-9][0-9]{0,4}", text) else None


class _Setting(NamedTuple):
    field: str
    read: Callable[[str], Any]
    """None = it is nothing of the kind."""
    kind: str
    fault: Callable[[str], str] | None = None
    """Says what is wrong with a value, where the kind alone would not."""


_SETTINGS = {
    PREFIX + setting.field.replace("_", "-"): setting
    for setting in (
        _Setting("may_run_twice", _flag, "'true' or 'false'"),
        _Setting("organization_header", _field_name, "the name of a header field"),
        _Setting("priority_header", _flag, "'true' or 'false'"),
        _Setting("binary_window_s", _seconds, f"a number of seconds from 0 to {LONGEST_S}"),
        _Setting("binary_target", _matchers, 'label matchers, as in job="rabbitmq"'),
        _Setting(
            "schedule",
            _schedule,
            "e.g. '0 8 * * mon-fri=2; 0 18 * * mon-fri=0'",
            _fault_of_schedule,
        ),
        _Setting("time_zone", _time_zone, "a time zone, e.g. 'Europe/Berlin'"),
        _Setting("priority", _priority, "a number from 0 (first) to 7 (last)"),
        _Setting("price", _price, "a number of GPU-seconds from 0 on"),
        _Setting("concurrency", _concurrency, "a number from 1 to 99999, or 'auto'"),
        _Setting("task_drain_s", _seconds, f"a number of seconds from 0 to {LONGEST_S}"),
        _Setting("ramp_s", _seconds, f"a number of seconds from 0 to {LONGEST_S}"),
        _Setting("auto_rollback", _flag, "'true' or 'false'"),
    )
}
"""By label."""


def check_label_settings(labels: Sequence[Mapping[str, str]], path: str) -> None:
    """Labels of other prefixes are the user's own. Raises Invalid, which opens with the label's
    path: `path[index]`."""
    for index, label in enumerate(labels):
        key, value = label["key"], label["value"]
        if not key.startswith(PREFIX):
            continue
        setting = _SETTINGS.get(key)
        if setting is None:
            raise Invalid(
                f"{path}[{index}].key: there is no setting {key!r}{suggestion(key, _SETTINGS)}"
            )
        if setting.read(value) is None:
            fault = f"; {setting.fault(value)}" if setting.fault else ""
            raise Invalid(
                f"{path}[{index}].value: {key} is {setting.kind}, not {value!r:.80}{fault}"
            )
