"""Certificates for the server: one's own, or one made for this run."""

from __future__ import annotations

import datetime as dt
import ipaddress
from dataclasses import dataclass
from pathlib import Path

import grpc


@dataclass(frozen=True, slots=True, kw_only=True)
class Tls:
    """PEM files. Without `certificate` and `key` the server signs its own; `client_ca` demands client certificates."""

    certificate: Path | None = None
    key: Path | None = None
    client_ca: Path | None = None

    def credentials(self, host: str) -> grpc.ServerCredentials:
        """What gRPC needs to serve. Raises `OSError` if a file can't be read."""
        if self.certificate is not None and self.key is not None:
            pair = (self.key.read_bytes(), self.certificate.read_bytes())
        else:
            pair = self_signed(host)
        client_ca = self.client_ca.read_bytes() if self.client_ca is not None else None
        return grpc.ssl_server_credentials([pair], client_ca, client_ca is not None)


def self_signed(host: str) -> tuple[bytes, bytes]:
    """A new private key and a certificate for `host` and localhost, both PEM, valid for a day from yesterday on."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.x509.oid import NameOID

    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "reference-epp")])
    names: list[x509.GeneralName] = [x509.DNSName("localhost")]
    try:
        names.append(x509.IPAddress(ipaddress.ip_address(host)))
    except ValueError:
        names.append(x509.DNSName(host))
    now = dt.datetime.now(dt.UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - dt.timedelta(days=1))
        .not_valid_after(now + dt.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName(names), critical=False)
        .sign(key, hashes.SHA256())
    )
    return (
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()),
        certificate.public_bytes(serialization.Encoding.PEM),
    )
