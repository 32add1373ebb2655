"""The cluster's certificate authority, and the tokens of whoever may ask its API server."""

from __future__ import annotations

import datetime
import ipaddress
import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

_DAYS = 365
_Key = TypeVar("_Key", ec.EllipticCurvePrivateKey, rsa.RSAPrivateKey)


@dataclass(frozen=True, slots=True)
class Authority:
    """The files of one cluster's, made once.

    Whoever asks the API server is known by a token, which its authorizers take as well as a
    certificate; the API server is known to kubelets by a certificate, as they read no tokens.
    """

    folder: Path

    @property
    def certificate(self) -> Path:
        """The authority's own."""
        return self.folder / "ca.crt"

    @property
    def account_key(self) -> Path:
        """What the tokens of service accounts are signed with."""
        return self.folder / "accounts.key"

    @property
    def tokens(self) -> Path:
        """As `kube-apiserver --token-auth-file` reads them."""
        return self.folder / "tokens.csv"

    def issue(self, name: str, *, group: str = "", hosts: Sequence[str] = ()) -> tuple[Path, Path]:
        """A certificate for `name` of `group`, good for `hosts`, and its key; made once."""
        self._make()
        certificate, key = self.folder / f"{name}.crt", self.folder / f"{name}.key"
        if not certificate.exists():
            private = _write_key(key, ec.generate_private_key(ec.SECP256R1()))
            issuer = x509.load_pem_x509_certificate(self.certificate.read_bytes()).subject
            signer = serialization.load_pem_private_key(
                (self.folder / "ca.key").read_bytes(), password=None
            )
            assert isinstance(signer, ec.EllipticCurvePrivateKey)
            built = (
                _builder(_name(name, group), issuer, private.public_key())
                .add_extension(x509.SubjectAlternativeName(_names(hosts or [name])), critical=False)
                .add_extension(
                    x509.ExtendedKeyUsage(
                        [ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]
                    ),
                    critical=False,
                )
                .sign(signer, hashes.SHA256())
            )
            certificate.write_bytes(built.public_bytes(serialization.Encoding.PEM))
        return certificate, key

    def token(self, user: str, group: str) -> str:
        """The token of `user` of `group`, made if there is none."""
        self._make()
        lines = self.tokens.read_text().splitlines() if self.tokens.exists() else []
        for line in lines:
            token, name, _ = line.split(",", 2)
            if name == user:
                return token
        token = secrets.token_hex(16)
        self.tokens.touch(mode=0o600)
        self.tokens.write_text("\n".join([*lines, f"{token},{user},{user},{group}"]) + "\n")
        return token

    def _make(self) -> None:
        if self.certificate.exists():
            return
        self.folder.mkdir(parents=True, mode=0o700, exist_ok=True)
        _write_key(self.account_key, rsa.generate_private_key(public_exponent=65537, key_size=2048))
        private = _write_key(self.folder / "ca.key", ec.generate_private_key(ec.SECP256R1()))
        name = _name("hotplate-test-cluster", "")
        built = (
            _builder(name, name, private.public_key())
            .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
            .sign(private, hashes.SHA256())
        )
        self.certificate.write_bytes(built.public_bytes(serialization.Encoding.PEM))


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey
) -> x509.CertificateBuilder:
    now = datetime.datetime.now(datetime.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=_DAYS))
    )


def _name(name: str, group: str) -> x509.Name:
    said = [x509.NameAttribute(NameOID.COMMON_NAME, name)]
    if group:
        said.append(x509.NameAttribute(NameOID.ORGANIZATION_NAME, group))
    return x509.Name(said)


def _names(hosts: Sequence[str]) -> list[x509.GeneralName]:
    return [_general_name(host) for host in hosts]


def _general_name(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _write_key(place: Path, key: _Key) -> _Key:
    place.touch(mode=0o600)
    place.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.TraditionalOpenSSL,
            serialization.NoEncryption(),
        )
    )
    return key
