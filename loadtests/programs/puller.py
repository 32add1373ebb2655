"""Tells an agent to pull a URL when it reads a line, and prints the agent's answer.

At the line `digest` it prints the digest of what a replica reads there.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
from pathlib import Path
from typing import Any

from blake3 import blake3

from hotplate.cache.client import AgentClient
from hotplate.cache.errors import CacheError
from hotplate.cache.reader import open_url


async def main(flags: argparse.Namespace) -> None:
    token = flags.token_file.read_text().strip()
    client = AgentClient(f"http://{flags.agent}", token)
    try:
        await client.check()
        _write({})
        for line in sys.stdin:
            if line == "go\n":
                _write(await client.pull(flags.url))
            else:
                _write({"digest": _digest((await client.status())["socket"], flags.url, token)})
    except CacheError as error:
        sys.exit(str(error))
    finally:
        await client.close()


def _digest(socket_path: str, url: str, token: str) -> str:
    with open_url(socket_path, url, token) as file:
        file.wait_all()
        return blake3(file.view).hexdigest()


def _write(what: dict[str, Any]) -> None:
    print(json.dumps(what), flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("agent", help="HOST:PORT")
    parser.add_argument("url")
    parser.add_argument("--token-file", type=Path, required=True)
    asyncio.run(main(parser.parse_args()))
