"""Certificates that sign themselves, made by openssl."""

from __future__ import annotations

import subprocess
from pathlib import Path


def issue(folder: Path, name: str) -> tuple[Path, Path]:
    """A certificate of its own issuer, and its key."""
    certificate, key = folder / f"{name}.pem", folder / f"{name}.key"
    command = "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 1"
    subject = ["-subj", f"/CN={name}", "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1"]
    files = ["-out", str(certificate), "-keyout", str(key)]
    subprocess.run([*command.split(), *subject, *files], check=True, capture_output=True)
    return certificate, key
