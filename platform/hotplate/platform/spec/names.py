"""Which names things may have."""

from __future__ import annotations

import re
import secrets

from hotplate.platform.errors import Invalid

DEPLOYMENT_NAME_MAX = 63
ORGANIZATION_NAME_MAX = 40
PERSON_NAME_MAX = 80
_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")
_TAG_PART = re.compile(r"[A-Za-z0-9]([-._A-Za-z0-9]*[A-Za-z0-9])?")
_TAG_PART_MAX = 128
_PERSON = re.compile(r"[A-Za-z0-9]([-._@+_A-Za-z0-9]*[A-Za-z0-9])?")
_ALPHABET = "abcdefghjkmnpqrstuvwxyz23456789"


def check_name(path: str, name: str) -> str:
    """A bento's or model's name or version, as BentoML allows them. Raises Invalid."""
    if len(name) > _TAG_PART_MAX or not _TAG_PART.fullmatch(name):
        raise Invalid(
            f"{path}: {name[:_TAG_PART_MAX]!r} is not a name; a name has up to {_TAG_PART_MAX} "
            "letters, digits, '-', '_' and '.', and begins and ends with a letter or digit"
        )
    return name


def check_deployment_name(path: str, name: str) -> str:
    """A DNS label, since the name becomes part of a host name. Raises Invalid."""
    return _label(path, name, "a deployment name", DEPLOYMENT_NAME_MAX)


def check_organization_name(path: str, name: str) -> str:
    """A DNS label too, which a cluster makes part of a longer one. Raises Invalid."""
    return _label(path, name, "an organization's name", ORGANIZATION_NAME_MAX)


def _label(path: str, name: str, what: str, most: int) -> str:
    if len(name) > most or not _LABEL.fullmatch(name):
        raise Invalid(
            f"{path}: {name[:80]!r} is not {what}; a name has up to {most} lower-case letters, "
            "digits and '-', and begins and ends with a letter or digit"
        )
    return name


def check_person_name(path: str, name: str) -> str:
    """A member's. Raises Invalid."""
    if len(name) > PERSON_NAME_MAX or not _PERSON.fullmatch(name):
        raise Invalid(
            f"{path}: {name[:PERSON_NAME_MAX]!r} is not a user's name; a name has up to "
            f"{PERSON_NAME_MAX} letters, digits, '-', '_', '.', '@' and '+', and begins and ends "
            "with a letter or digit"
        )
    return name


def invent_deployment_name(bento: str) -> str:
    """`<bento>-<4 characters>`, where the user gave no name."""
    stem = re.sub(r"[^a-z0-9]+", "-", bento.lower()).strip("-") or "deployment"
    ending = "".join(secrets.choice(_ALPHABET) for _ in range(4))
    return f"{stem[: DEPLOYMENT_NAME_MAX - 5].rstrip('-')}-{ending}"
