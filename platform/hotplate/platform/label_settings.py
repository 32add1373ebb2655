"""Our own settings of a deployment, which the stock client carries as labels `hotplate/<setting>`;
pure. It drops fields that it does not know, and labels reach us as they are written."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields

from hotplate.platform.api.fields import suggestion
from hotplate.platform.errors import Invalid

PREFIX = "hotplate/"

_FLAGS = {"true": True, "false": False}


@dataclass(frozen=True)
class LabelSettings:
    """A setting is a field, all of them flags as yet: `may_run_twice` is the label
    `hotplate/may-run-twice`, with the value "true" or "false"."""

    may_run_twice: bool = False
    """Its requests and tasks do no harm when a replica that died has run some of one already."""

    @staticmethod
    def of(labels: Sequence[Mapping[str, str]]) -> LabelSettings:
        """What labels that were checked say. A label that another version of ours took is no
        reason to leave the deployment alone: it counts for nothing."""
        said = {label["key"]: _FLAGS.get(label["value"]) for label in labels}
        known = {name: said.get(key) for key, name in _NAMES.items()}
        return LabelSettings(**{name: flag for name, flag in known.items() if flag is not None})


_NAMES = {PREFIX + each.name.replace("_", "-"): each.name for each in fields(LabelSettings)}
"""The field that each label sets."""


def check_label_settings(labels: Sequence[Mapping[str, str]], path: str) -> None:
    """Labels of other prefixes are the user's own. Raises Invalid, which opens with the label's
    path: `path[index]`."""
    for index, label in enumerate(labels):
        key, value = label["key"], label["value"]
        if not key.startswith(PREFIX):
            continue
        if key not in _NAMES:
            raise Invalid(
                f"{path}[{index}].key: there is no setting {key!r}{suggestion(key, _NAMES)}"
            )
        if value not in _FLAGS:
            raise Invalid(f"{path}[{index}].value: {key} is 'true' or 'false', not {value!r:.80}")
