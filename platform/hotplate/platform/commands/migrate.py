"""`hotplate migrate`: the database's schema, looked at, brought up to date or taken back."""

from __future__ import annotations

import argparse
import json
import re

from hotplate.platform.commands import flags
from hotplate.platform.errors import BadSetting
from hotplate.platform.processes.data_dir import DataDir
from hotplate.platform.store import schema
from hotplate.platform.store.database import opening
from hotplate.platform.store.schema import Schema

NOTHING = Schema("", "")


def add_flags(parser: argparse.ArgumentParser) -> None:
    what = parser.add_mutually_exclusive_group()
    what.add_argument(
        "--check",
        action="store_true",
        help="only say whether the schema is the one of this hotplate; exit status 1 if not",
    )
    what.add_argument(
        "--to",
        metavar="REVISION",
        help="take it up or down to this revision, such as 0009 (default: this hotplate's)",
    )
    parser.add_argument("--json", action="store_true", help="print one line of JSON")
    flags.add_data(parser)


def run(arguments: argparse.Namespace) -> int:
    """Look at the schema or change it, while a platform runs or not. Raises BadSetting,
    `StoreFailed`."""
    to = schema.head() if arguments.to is None else _revision(arguments.to)
    data = DataDir.named(arguments.data)
    file = flags.settings_file(data, arguments.settings)
    url = flags.platform_settings(file).database_url or data.database_url
    if arguments.check:
        found = _found(url)
        _print(arguments.json, found.revision, found.revision)
        return 0 if found.is_current else 1
    DataDir.at(arguments.data)
    with opening(url) as engine:
        before = schema.migrate(engine, to)
    engine.dispose()
    _print(arguments.json, before.revision, to)
    return 0


def _found(url: str) -> Schema:
    """The schema that is there; to look at a database of SQLite does not make it."""
    with opening(url) as engine:
        if not schema.is_there(engine):
            return NOTHING
        with engine.begin() as connection:
            found = schema.read(connection)
    engine.dispose()
    return found


def _print(as_json: bool, before: str, after: str) -> None:
    code = schema.head()
    if as_json:
        shown = {"revision": after, "was": before, "code": code, "current": after == code}
        print(json.dumps(shown))
        return
    came = "" if after == before else f", and was of {before or 'none'}"
    place = f"is of revision {after}" if after else "is not there yet"
    wants = "as this hotplate's" if after == code else f"and this hotplate's is {code}"
    print(f"the database's schema {place}{came}, {wants}")


def _revision(text: str) -> str:
    known = schema.revisions()
    number = re.fullmatch("[0-9]{1,4}", text)
    if number is None or text.zfill(4) not in known:
        raise BadSetting(
            f"--to {text} is no revision that this hotplate knows: write {known[0]} to {known[-1]}"
        )
    return text.zfill(4)
