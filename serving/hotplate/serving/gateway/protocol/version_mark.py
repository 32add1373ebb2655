"""What stands between a deployment and a version, in names of routes and in the store."""

from __future__ import annotations

from typing import Final

VERSION: Final = "#"
"""Stands between a deployment and a version in the name of a version's route: `acme/echo#next`."""
