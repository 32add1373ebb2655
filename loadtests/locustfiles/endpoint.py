"""Users of a method: JSON, or a form with files.

locust -f endpoint.py --host URL --route /summarize --payload texts.jsonl
locust -f endpoint.py --host URL --route /classify --file image=cat.png --payload '{"most": 3}'
"""

from __future__ import annotations

import json
import secrets
import sys
from functools import cache
from pathlib import Path
from typing import Any

from locust import events, task
from locust.argument_parser import LocustArgumentParser
from locust.env import Environment

import flags
from deployment_user import JSON, DeploymentUser


@events.init_command_line_parser.add_listener
def add_file_option(parser: LocustArgumentParser, **_: Any) -> None:
    parser.add_argument(
        "--file",
        action="append",
        default=[],
        metavar="FIELD=PATH",
        help="a file of the form that is sent; the payload's fields are its other fields",
    )


@events.init.add_listener
def check_files(environment: Environment, **_: Any) -> None:
    """Ends Locust with a sentence where the form cannot be made."""
    options: Any = environment.parsed_options
    try:
        for payload in flags.payloads(options.payload) if options.file else ():
            form(payload, tuple(options.file))
    except (OSError, ValueError) as error:
        sys.exit(f"locust: --file: {error}")


class EndpointUser(DeploymentUser):
    @task
    def call(self) -> None:
        body, content_type = self.payload(), JSON
        if files := self.environment.parsed_options.file:
            body, content_type = form(body, tuple(files))
        with self.ask(self.route, body, content_type):
            pass


@cache
def form(payload: bytes, files: tuple[str, ...]) -> tuple[bytes, str]:
    """The fields of a JSON object and these files (`FIELD=PATH`) as multipart/form-data (RFC 7578),
    and the content type. Raises OSError, ValueError."""
    boundary = secrets.token_hex(16)
    fields = json.loads(payload)
    if not isinstance(fields, dict):
        raise ValueError("the payload's fields go into the form, so it must be a JSON object")
    parts = {
        f'name="{name}"': text.encode() if isinstance(text, str) else json.dumps(text).encode()
        for name, text in fields.items()
    }
    for given in files:
        field, _, path = given.partition("=")
        parts[f'name="{field}"; filename="{Path(path).name}"'] = Path(path).read_bytes()
    lines = [
        b"--%b\r\nContent-Disposition: form-data; %b\r\n\r\n%b\r\n"
        % (boundary.encode(), name.encode(), content)
        for name, content in parts.items()
    ]
    body = b"".join(lines) + b"--%b--\r\n" % boundary.encode()
    return body, f"multipart/form-data; boundary={boundary}"
