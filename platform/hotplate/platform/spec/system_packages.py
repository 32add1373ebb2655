"""System packages that a bento's image asks for; replicas on a machine do not get them. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

SHOWN_CHARS = 100
"""So much of a command stands in a sentence,"""
PACKAGES_CHARS = 1000
"""and so much of all packages' names."""
SHOWN_COMMANDS = 5

_BENTOMLS_OWN = """
apt-get update && apt-get install -q -y --no-install-recommends --allow-remove-essential
ca-certificates gnupg2 bash build-essential git
yum update && yum install -y amazon-linux-extras ca-certificates gcc gcc-c++ make bash shadow-utils
git && amazon-linux-extras enable && yum groupinstall -y "Development Tools"
apk add --update bash gcc libc-dev shadow musl-dev build-base linux-headers g++ git
"""
"""What BentoML 1.4 writes before the author's commands, whatever she writes; one per distribution
(`bentoml/_internal/container/frontend/dockerfile`, `default_install_command`)."""
_OWN_WORDS = frozenset(_BENTOMLS_OWN.split())
_INSTALL = re.compile(r"(?:sudo\s+)?(?:apt-get|apt|yum|dnf|apk)\s(?:.*\s)?(?:install|add)\s+(.+)")
_UPKEEP = re.compile(r"(?:sudo\s+)?(?:(?:apt-get|apt|yum|dnf|apk)\s|rm -rf /var/|$)")
_NO_PACKAGE = ("-", "Dpkg::")


def skipped(manifest: Mapping[str, Any]) -> str:
    """One sentence on what the author's image asks for and nobody does; "" for nothing."""
    if not (asked := _asked(manifest)):
        return ""
    return (
        f"its image asks for {asked}, which are skipped: replicas use the system of "
        "the machine that they run on, so install there what the service needs"
    )


def refused(manifest: Mapping[str, Any]) -> str:
    """Why a bento is not deployed where what its image asks for is not to be skipped; "" = it asks
    for nothing."""
    if not (asked := _asked(manifest)):
        return ""
    return (
        f"its image asks for {asked}, and this installation runs no commands of images "
        '(image_commands = "refuse"): install on the machine what the service needs, and leave '
        "the commands out of the bento"
    )


def _asked(manifest: Mapping[str, Any]) -> str:
    """What stands beside BentoML's own line; "" = nothing."""
    packages: dict[str, None] = {}
    commands = []
    for command in _authors_commands(manifest):
        parts = [part.strip() for part in re.split(r"&&|[;\n]", command.replace("\\\n", " "))]
        if all(_UPKEEP.match(part) for part in parts):
            packages.update(dict.fromkeys(name for part in parts for name in _packages(part)))
        else:
            commands.append(f"'{_short(' '.join(command.split()))}'")
    asked = []
    if packages:
        asked.append(f"the system packages {_short(', '.join(packages), PACKAGES_CHARS)}")
    if commands:
        more = len(commands) - SHOWN_COMMANDS
        shown = ", ".join(commands[:SHOWN_COMMANDS]) + (f" and {more} more" if more > 0 else "")
        asked.append(f"the commands {shown}" if len(commands) > 1 else f"the command {shown}")
    return " and ".join(asked)


def _authors_commands(manifest: Mapping[str, Any]) -> Iterator[str]:
    image = manifest.get("image")
    commands = image.get("commands") if isinstance(image, Mapping) else None
    for command in commands if isinstance(commands, list) else ():
        if isinstance(command, str) and not set(command.split()) <= _OWN_WORDS:
            yield command


def _packages(part: str) -> list[str]:
    found = _INSTALL.match(part)
    words = found[1].split() if found else []
    return [word.strip("'\"") for word in words if not word.startswith(_NO_PACKAGE)]


def _short(text: str, most: int = SHOWN_CHARS) -> str:
    return text if len(text) <= most else f"{text[:most]} …"
