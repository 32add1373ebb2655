"""Options of all users of this folder, with the meaning that `hotplate loadtest` gives them."""

from __future__ import annotations

import json
import sys
from functools import cache
from pathlib import Path
from typing import Any

from locust import events
from locust.argument_parser import LocustArgumentParser
from locust.env import Environment


@events.init_command_line_parser.add_listener
def add_options(parser: LocustArgumentParser, **_: Any) -> None:
    parser.add_argument("--route", default="/", help="the path of the method, such as /embed")
    parser.add_argument(
        "--payload",
        default="{}",
        help="the JSON that is sent, or a file of JSON lines, which are taken in turn",
    )
    parser.add_argument(
        "--organizations",
        default="",
        help="who calls, and how often: acme=3,beta=1",
    )
    parser.add_argument(
        "--organization-header",
        default="X-Organization",
        help="the header field that names the organization to the deployment",
    )
    parser.add_argument(
        "--per-user",
        type=float,
        default=0.0,
        help="the most requests of a user per second; 0: it asks again as soon as it is answered",
    )


@events.init.add_listener
def check(environment: Environment, **_: Any) -> None:
    """Ends Locust with a sentence where an option cannot be used."""
    options: Any = environment.parsed_options
    try:
        payloads(options.payload)
        turns(options.organizations)
    except (OSError, ValueError) as error:
        sys.exit(f"locust: {error}")


@cache
def payloads(given: str) -> list[bytes]:
    """The bodies that are sent in turn. Raises OSError, ValueError."""
    text = given if given.lstrip()[:1] in ("{", "[") else Path(given).read_text()
    if _is_json(text):
        return [text.encode()]
    lines = [line for line in text.splitlines() if line.strip()]
    if not lines or not all(map(_is_json, lines)):
        raise ValueError(f"--payload {given}: give JSON, or a file with one document in each line")
    return [line.encode() for line in lines]


def _is_json(text: str) -> bool:
    try:
        json.loads(text)
    except ValueError:
        return False
    return True


@cache
def turns(given: str) -> list[str]:
    """The organizations in the order of their turns; `acme=3,beta=1` is acme, acme, beta, acme.
    Nobody if there are none. Raises ValueError."""
    weights: dict[str, int] = {}
    for part in filter(None, given.split(",")):
        name, _, weight = part.partition("=")
        if not name.strip() or not (weight or "1").strip().isdigit() or int(weight or 1) == 0:
            raise ValueError(f"--organizations: {part!r} is not a name and a number, as in acme=3")
        weights[name.strip()] = int(weight or 1)
    return _smooth(weights)


def _smooth(weights: dict[str, int]) -> list[str]:
    """Weighted round robin without bursts, as nginx does it: the one that is owed most is next."""
    owed = dict.fromkeys(weights, 0)
    order = []
    for _ in range(sum(weights.values())):
        for name, weight in weights.items():
            owed[name] += weight
        first = max(owed, key=lambda name: owed[name])
        owed[first] -= sum(weights.values())
        order.append(first)
    return order
