"""TLS as endpoint pickers use it: verified, unverified (many serve a self-signed, nameless certificate), mutual."""

from __future__ import annotations

import datetime as dt
import ssl
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, kw_only=True)
class ClientTls:
    """How we speak TLS to a server.

    `verify` off accepts any certificate; `ca` is a PEM file of trusted roots (default: the system's); `certificate`
    and `key` are PEM files of our own identity; `server_name` is the SNI and the name to verify (default: the host).
    """

    verify: bool = True
    ca: Path | None = None
    certificate: Path | None = None
    key: Path | None = None
    server_name: str | None = None

    def context(self) -> ssl.SSLContext:
        """An `SSLContext` that offers HTTP/2. Raises `OSError` or `ssl.SSLError` for files that can't be used."""
        _readable(self.ca, self.certificate, self.key)
        context = ssl.create_default_context(cafile=self.ca)
        # Python 3.13 began to insist on extensions that Envoy does not ask for; a verdict must not depend on Python.
        context.verify_flags &= ~ssl.VERIFY_X509_STRICT
        if not self.verify:
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        if self.certificate is not None:
            context.load_cert_chain(self.certificate, self.key)
        context.set_alpn_protocols(["h2"])
        return context


@dataclass(frozen=True, kw_only=True)
class ServerTls:
    """How we serve TLS: PEM files of our identity and, for mutual TLS, of the roots that clients must chain to."""

    certificate: Path
    key: Path
    client_ca: Path | None = None

    def context(self) -> ssl.SSLContext:
        """An `SSLContext` that offers HTTP/2. Raises `OSError` or `ssl.SSLError` for files that can't be used."""
        _readable(self.certificate, self.key, self.client_ca)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(self.certificate, self.key)
        if self.client_ca is not None:
            context.load_verify_locations(self.client_ca)
            context.verify_mode = ssl.CERT_REQUIRED
        context.set_alpn_protocols(["h2"])
        return context


def _readable(*paths: Path | None) -> None:
    """Raises `OSError` with the name of the file, which that of the `ssl` module lacks."""
    for path in paths:
        if path is not None:
            path.open("rb").close()


def self_signed(
    directory: Path, *, names: tuple[str, ...] = (), stem: str = "server", valid: float = 24.0
) -> ServerTls:
    """Write a fresh self-signed certificate and key to `directory`, valid for so many hours, and return them.

    `names` are DNS names or IP addresses for the certificate's SAN; without any, it has neither SAN nor common name,
    like the certificate that GIE's endpoint picker makes for itself at start.
    """
    import ipaddress

    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(x509.NameOID.ORGANIZATION_NAME, "epp-conformance")])
    now = dt.datetime.now(dt.UTC)
    builder = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - dt.timedelta(hours=1))
        .not_valid_after(now + dt.timedelta(hours=valid))
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
    )
    if names:
        general: list[x509.GeneralName] = []
        for name in names:
            try:
                general.append(x509.IPAddress(ipaddress.ip_address(name)))
            except ValueError:
                general.append(x509.DNSName(name))
        builder = builder.add_extension(x509.SubjectAlternativeName(general), critical=False)
    certificate = builder.sign(key, hashes.SHA256())
    pem = serialization.Encoding.PEM
    certificate_file, key_file = directory / f"{stem}.crt", directory / f"{stem}.key"
    certificate_file.write_bytes(certificate.public_bytes(pem))
    key_file.touch(mode=0o600)
    key_file.write_bytes(key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()))
    return ServerTls(certificate=certificate_file, key=key_file)
