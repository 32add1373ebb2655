"""Which environment variables are the platform's in every replica; Python >= 3.9, standard library
only.
"""

from __future__ import annotations

DEPLOYMENT_URL = "BENTOCLOUD_DEPLOYMENT_URL"
DEPLOYMENT_PREFIXES = ("BENTOCLOUD_DEPLOYMENT_", "YATAI_BENTO_DEPLOYMENT_")
"""With `NAME` and `NAMESPACE` after them: BentoCloud's prefix, and the one that BentoML reads."""
RESERVED = frozenset(
    [
        DEPLOYMENT_URL,
        *(f"{prefix}{word}" for prefix in DEPLOYMENT_PREFIXES for word in ("NAME", "NAMESPACE")),
        "BENTOML_HOME",
        "BENTOML_CONTAINERIZED",
        "BENTOML_CONFIG_OVERRIDES",
        "BENTOML_RUNNER_MAP",
        "BENTOML_PORT",
        "BENTOML_HOST",
        "BENTOML_SERVE_DEPENDS",
        "BENTOML_SERVE_RUNNER_MAP",
        "BENTOML_SERVE_SERVICE_NAME",
        "PROMETHEUS_MULTIPROC_DIR",
        "CUDA_VISIBLE_DEVICES",
        "CUDA_DEVICE_ORDER",
        "VIRTUAL_ENV",
        "PYTHONHOME",
    ]
)
"""A user's value for these would take a replica out of the platform's control."""
REPLICA_UID = "HOTPLATE_REPLICA_UID"
"""Which replica this is, as gateways name it in each request."""
OURS = "HOTPLATE_"
"""All names that begin with this are reserved too."""


def is_reserved(name: str) -> bool:
    """Whether the platform sets this variable, or keeps it unset, whatever a user says."""
    return name in RESERVED or name.startswith(OURS)


def not_used(name: str) -> str:
    """The sentence about a value that is ignored."""
    return f"{name} is the platform's: your value is not used."
