"""A malicious agent as a process: it lies or stalls until its standard input is closed."""

from __future__ import annotations

import argparse
import sys

from tests.support.cache.bad_peers import BadPeer

if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("kind", choices=["lies", "stalls"])
    parser.add_argument("size_bytes", type=int)
    parser.add_argument("host")
    parser.add_argument("port", type=int)
    flags = parser.parse_args()
    with BadPeer(flags.kind, flags.size_bytes, flags.host, flags.port) as peer:
        print("{}", flush=True)
        sys.stdin.read()
        print(len(peer.asked), flush=True)
