"""Certificates for the server: files, read again when they change, or one made for this run."""

from __future__ import annotations

import asyncio
import datetime as dt
import ipaddress
import logging
import ssl
import tempfile
from dataclasses import dataclass
from pathlib import Path

LOG = logging.getLogger(__name__)

RELOAD_SECONDS = 1.0
"""Time between two looks at the files."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tls:
    """PEM files. Without `certificate` and `key` the server signs its own; `client_ca` demands client certificates."""

    certificate: Path | None = None
    key: Path | None = None
    client_ca: Path | None = None

    def context(self, host: str) -> ssl.SSLContext:
        """What serves TLS for `host`. Raises `OSError`, of which `ssl.SSLError` is one, for files of no use."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.set_alpn_protocols(["h2"])
        if self.certificate is not None and self.key is not None:
            self._load(context)
        else:
            with tempfile.TemporaryDirectory() as directory:
                pair = Path(directory, "key"), Path(directory, "certificate")
                for path, pem in zip(pair, self_signed(host), strict=True):
                    path.write_bytes(pem)
                context.load_cert_chain(pair[1], pair[0])
        if self.client_ca is not None:
            context.load_verify_locations(cadata=self.client_ca.read_text(errors="replace"))
            context.verify_mode = ssl.CERT_REQUIRED
        return context

    async def watch(self, context: ssl.SSLContext) -> None:
        """Serve new connections with the certificate that the files have now; one that can't be used is left aside.

        Authorities of client certificates are added so, too; one that is to be trusted no longer needs a restart.
        """
        files = [path for path in (self.certificate, self.key, self.client_ca) if path is not None]
        served = _contents(files)
        while files:
            await asyncio.sleep(RELOAD_SECONDS)
            found = _contents(files)
            if found in (served, None):
                continue
            try:
                self._load(ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER))  # half of a pair that is being replaced fails here
                self._load(context)
                if self.client_ca is not None:
                    context.load_verify_locations(cadata=self.client_ca.read_text(errors="replace"))
            except OSError as problem:
                LOG.warning("new certificate can't be used: %s", problem)
            else:
                LOG.info("certificate reloaded", extra={"path": str(self.certificate)})
            served = found

    def _load(self, context: ssl.SSLContext) -> None:
        if self.certificate is not None and self.key is not None:
            for path in (self.certificate, self.key):
                path.open("rb").close()  # its error has the name, which that of the ssl module lacks
            context.load_cert_chain(self.certificate, self.key)


def _contents(files: list[Path]) -> list[bytes] | None:
    """What the files hold, None while one of them is missing."""
    try:
        return [path.read_bytes() for path in files]
    except OSError:
        return None


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
