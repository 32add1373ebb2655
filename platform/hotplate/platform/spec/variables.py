"""Environment variables, as bentos declare them and deployments give them, checked; pure."""

from __future__ import annotations

from hotplate.platform.errors import Invalid
from hotplate.platform.spec.fields import Fields

VARIABLE_MAX_BYTES = 128 << 10
"""Of `NAME=value` and its NUL: Linux's MAX_ARG_STRLEN, `execve(2)`."""
VARIABLES_MAX_BYTES = 512 << 10
"""Of one list, with a pointer to each: a bento's, a deployment's and a service's are together, and
Linux gives all arguments and variables of a process a quarter of its stack, usually 2 MiB."""
POINTER_BYTES = 8


def variables(fields: Fields) -> list[dict[str, str]]:
    """The list `envs` of `{name, value}`. Raises Invalid for what no process can be started with,
    though one that runs already, as a standby does, could still set it."""
    pairs, all_bytes = fields.pairs("envs", "name"), 0
    for index, pair in enumerate(pairs):
        path, name = f"{fields.at('envs')}[{index}]", pair["name"]
        if not name or "=" in name:
            raise Invalid(
                f"{path}.name: {name!r:.80} is no name of a variable; it has to be without '='"
            )
        own_bytes = len(f"{name}={pair['value']}\0".encode())
        if own_bytes > VARIABLE_MAX_BYTES:
            raise Invalid(
                f"{path}: {name!r:.80} has {own_bytes} bytes with its value (limit "
                f"{VARIABLE_MAX_BYTES}); put what is longer in a file of the bento or in a model"
            )
        all_bytes += own_bytes + POINTER_BYTES
    if all_bytes > VARIABLES_MAX_BYTES:
        raise Invalid(
            f"{fields.at('envs')}: they have {all_bytes} bytes together (limit "
            f"{VARIABLES_MAX_BYTES}); put what is longer in a file of the bento or in a model"
        )
    return pairs
