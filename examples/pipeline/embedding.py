"""Vectors of texts without a trained model: words and their parts are hashed to places.

Parts of words as in fastText (Bojanowski et al. 2017), signed feature hashing as by Weinberger et
al. 2009.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterator

import numpy as np

SIZE = 1024
PARTS = (3, 4, 5)


def embedding(text: str) -> np.ndarray:
    """A float32 vector of SIZE numbers and length 1; 0 for a text without words."""
    vector = np.zeros(SIZE, np.float32)
    for feature in _features(text.lower()):
        place = zlib.crc32(feature.encode())
        vector[place % SIZE] += 1 if place >> 31 else -1
    return vector / max(float(np.linalg.norm(vector)), 1e-9)


def _features(text: str) -> Iterator[str]:
    for word in re.findall(r"\w+", text):
        marked = f"<{word}>"
        yield marked
        for length in PARTS:
            yield from (marked[n : n + length] for n in range(len(marked) - length + 1))
