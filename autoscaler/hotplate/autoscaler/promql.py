"""Queries as operators write them in annotations, rewritten for Prometheus; pure."""

from __future__ import annotations

import re

_QUOTES = "\"'`"
_KNOWN_SHAPE = re.compile(
    r"""(?P<over>max_over_time\(\s*clamp_min\(\s*sum\(\s*[a-zA-Z_:][\w:]*(?:\{[^{}]*\})?)
        \[(?P<step>\w+)\]
        (?P<rest>\s*\)\s*,\s*[\d.]+\s*\))
        \[(?P<window>\w+)\]""",
    re.VERBOSE,
)


def split_queries(text: str) -> tuple[str, ...]:
    """The queries that `&` joins. PromQL has no such operator, but strings and label matchers may
    contain one: only an `&` outside of quotes and braces separates. Empty parts are dropped.
    """
    parts, quote, depth, escaped = [""], "", 0, False
    for letter in text:
        if quote:
            if letter == quote and not escaped:
                quote = ""
            escaped = letter == "\\" and quote != "`" and not escaped
        elif letter in _QUOTES:
            quote, escaped = letter, False
        elif letter == "&" and not depth:
            parts.append("")
            continue
        else:
            depth += (letter == "{") - (letter == "}")
        parts[-1] += letter
    return tuple(part.strip() for part in parts if part.strip())


def rewritten(query: str) -> str:
    """The query, with the one known mistake corrected.

    A range on a selector inside an aggregation, `max_over_time(clamp_min(sum(m[15s]), 0)[30m])`,
    was meant as a subquery of that resolution: `max_over_time(clamp_min(sum(m), 0)[30m:15s])`.
    """
    return _KNOWN_SHAPE.sub(r"\g<over>\g<rest>[\g<window>:\g<step>]", query)
