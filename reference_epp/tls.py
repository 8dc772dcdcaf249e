"""Certificates for the server: files, read again when they change, or one made for this run."""

from __future__ import annotations

import asyncio
import logging
import ssl
import tempfile
from dataclasses import dataclass, replace
from pathlib import Path

from ext_proc.http2.tls import ServerTls, self_signed

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
        if self.certificate is not None and self.key is not None:
            return ServerTls(certificate=self.certificate, key=self.key, client_ca=self.client_ca).context()
        with tempfile.TemporaryDirectory() as directory:
            made = self_signed(Path(directory), names=(host, "localhost"))
            return replace(made, client_ca=self.client_ca).context()

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
                self.context("")  # half of a pair that is being replaced fails here
                if self.certificate is not None and self.key is not None:
                    context.load_cert_chain(self.certificate, self.key)
                if self.client_ca is not None:
                    context.load_verify_locations(self.client_ca)
            except OSError as problem:
                LOG.warning("new certificate can't be used: %s", problem)
            else:
                LOG.info("certificate reloaded", extra={"path": str(self.certificate)})
            served = found


def _contents(files: list[Path]) -> list[bytes] | None:
    """What the files hold, None while one of them is missing."""
    try:
        return [path.read_bytes() for path in files]
    except OSError:
        return None
