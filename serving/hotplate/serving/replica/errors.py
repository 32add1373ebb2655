"""PrepareFailed (of `hotplate.deploy.errors`)
├── EnvironmentFailed   the Python environment of a bento could not be built
├── BentoUnusable       the bento, or what is configured for it, cannot be served as it is
└── FilesUnavailable    the files of a bento or model could not be had from the node's agent
"""

from __future__ import annotations

from hotplate.deploy.errors import PrepareFailed


class EnvironmentFailed(PrepareFailed):
    """The environment could not be built: an unknown package, no such Python, no network …"""

    code = "environment_failed"
    unbuilt = True


class BentoUnusable(PrepareFailed):
    """The bento cannot be served as it is: legacy format, a required variable without a value …"""

    code = "bento_unusable"


class FilesUnavailable(PrepareFailed):
    """Files could not be had from the node's agent; `retry` says whether they may come yet."""

    code = "files_unavailable"
