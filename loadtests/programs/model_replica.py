"""A replica that uses a model: it loads all tensors when it reads a line, and keeps them.

It then reads every page of them, prints how long the loading took, and ends at the next line.
"""

from __future__ import annotations

import json
import sys
import time

import torch

from hotplate.serving import weights

PAGE_BYTES = 4096


def main(url: str) -> None:
    # What is imported at the first use is no part of the weights.
    __import__("hotplate.cache.reader")
    torch.zeros(1)
    print("{}", flush=True)
    sys.stdin.readline()
    began = time.perf_counter()
    tensors = dict(weights.stream(url))
    seconds = time.perf_counter() - began
    read = sum(
        int(tensor.reshape(-1).view(torch.uint8)[::PAGE_BYTES].sum()) for tensor in tensors.values()
    )
    print(json.dumps({"seconds": seconds, "tensors": len(tensors), "read": read}), flush=True)
    sys.stdin.readline()


if __name__ == "__main__":
    main(sys.argv[1])
