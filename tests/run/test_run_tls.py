"""TLS between the suite and a target: the right verdict, or one clear message, for each way it can be set up."""

from __future__ import annotations

import dataclasses
import datetime as dt
import ipaddress
from dataclasses import dataclass
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from conformance.errors import TargetUnreachableError
from conformance.planning.plan import Selection
from conformance.run.session import RunSettings, run
from conformance.targets.profile import Discovery, File, Profile, Start, Timeouts, Tls
from conformance.verdict import Verdict
from ext_proc.http2.tls import self_signed

pytestmark = pytest.mark.program

SOME = Selection(scenarios=("destination.completion",))


@dataclass(frozen=True)
class Identity:
    """A certificate with its key, as PEM files."""

    certificate: Path
    key: Path
    name: x509.Name
    secret: ec.EllipticCurvePrivateKey

    @property
    def server(self) -> tuple[str, ...]:
        """Flags of the reference EPP."""
        return (f"--tls-cert={self.certificate}", f"--tls-key={self.key}")


class Authorities:
    """Makes certificates in a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def make(self, stem: str, *names: str, by: Identity | None = None, days: int = 1) -> Identity:
        """A certificate for `names`, signed `by` an authority, or one that is an authority; it ends in `days`."""
        key = ec.generate_private_key(ec.SECP256R1())
        name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, stem)])
        now = dt.datetime.now(dt.UTC)
        builder = (
            x509.CertificateBuilder()
            .subject_name(name)
            .issuer_name(by.name if by else name)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - dt.timedelta(days=10))
            .not_valid_after(now + dt.timedelta(days=days))
            .add_extension(x509.BasicConstraints(ca=by is None, path_length=None), critical=True)
        )
        if names:
            builder = builder.add_extension(x509.SubjectAlternativeName([_general(one) for one in names]), False)
        signed = builder.sign(by.secret if by else key, hashes.SHA256())
        identity = Identity(self.folder / f"{stem}.crt", self.folder / f"{stem}.key", name, key)
        pem = serialization.Encoding.PEM
        identity.certificate.write_bytes(signed.public_bytes(pem))
        identity.key.write_bytes(
            key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
        )
        return identity


def _general(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)


@pytest.fixture(scope="module")
def authorities(tmp_path_factory):
    return Authorities(tmp_path_factory.mktemp("certificates"))


@pytest.fixture(scope="module")
def ca(authorities):
    return authorities.make("ca")


@pytest.fixture(scope="module")
def server(authorities, ca):
    return authorities.make("server", "127.0.0.1", "localhost", by=ca)


@pytest.fixture(scope="module")
def client(authorities, ca):
    return authorities.make("client", by=ca)


def verdicts(flags: tuple[str, ...], tls: Tls) -> set[Verdict]:
    command = ("{python}", "-m", "reference_epp", "--listen=127.0.0.1:{port}", "--endpoints-file={endpointsFile}")
    profile = Profile(
        name="tls",
        start=Start(command=(*command, "--scrape-interval=20ms", "--log-level=error", *flags)),
        discovery=Discovery(file=File(reread=0.15)),
        tls=tls,
        timeouts=Timeouts(start=600),  # longer than a test may take: a message must come at once
    )
    outcome = run(RunSettings(profile=profile, selection=SOME, seed=1, jobs=1), lambda _: None)
    return {result.verdict for result in outcome.versions[0].results}


def message(flags: tuple[str, ...], tls: Tls) -> str:
    with pytest.raises(TargetUnreachableError) as caught:
        verdicts(flags, tls)
    return str(caught.value)


@pytest.fixture(scope="module")
def identities(authorities, ca, server, client) -> dict[str, Identity]:
    """By name; `unnamed` has no name, `expired` is over, and `stranger` is signed by another authority."""
    unnamed = self_signed(authorities.folder)
    strangers = authorities.make("strangers")
    return {
        "ca": ca, "server": server, "client": client, "strangers": strangers,
        "named": authorities.make("named", "epp.example", by=ca),
        "expired": authorities.make("expired", "127.0.0.1", by=ca, days=-1),
        "stranger": authorities.make("stranger", by=strangers),
        "unnamed": dataclasses.replace(ca, certificate=unnamed.certificate, key=unnamed.key),
    }  # fmt: skip


def flags_of(identities: dict[str, Identity], served: str) -> tuple[str, ...]:
    """Flags of the EPP: the identity that it serves; with `+mutual` it asks for a client certificate."""
    name, _, mutual = served.partition("+")
    if name in ("", "self-signed"):
        return (f"--tls={name}",) if name else ()
    return (*identities[name].server, *([f"--tls-client-ca={identities['ca'].certificate}"] if mutual else ()))


def tls_of(identities: dict[str, Identity], mode: str, ca: str, own: str, name: str) -> Tls:
    said = {"ca": str(identities[ca].certificate)} if ca else {}
    if own:
        said |= {"cert": str(identities[own].certificate), "key": str(identities[own].key)}
    return Tls(mode=mode, **said, **({"server_name": name} if name else {}))


@pytest.mark.parametrize(
    ("served", "mode", "ca_of_ours", "own", "name"),
    [
        ("self-signed", "unverified", "", "", ""),
        ("unnamed", "unverified", "", "", ""),
        ("expired", "unverified", "", "", ""),
        ("server", "verified", "ca", "", ""),
        ("named", "verified", "ca", "", "epp.example"),
        ("server+mutual", "verified", "ca", "client", ""),
        ("server+mutual", "unverified", "", "client", ""),
    ],
)
def test_a_target_is_reached_over_tls(identities, served, mode, ca_of_ours, own, name) -> None:
    tls = tls_of(identities, mode, ca_of_ours, own, name)
    assert verdicts(flags_of(identities, served), tls) == {Verdict.PASS}


REJECTED = "certificate was rejected"


@pytest.mark.parametrize(
    ("served", "mode", "ca_of_ours", "own", "words"),
    [
        ("expired", "verified", "ca", "", [f"{REJECTED}: certificate has expired", "turn verification off"]),
        ("server", "verified", "strangers", "", [f"{REJECTED}: unable to get local issuer", "Name its CA"]),
        ("server", "verified", "", "", [REJECTED]),
        ("named", "verified", "ca", "", ["IP address mismatch", "set the server name"]),
        ("unnamed", "verified", "unnamed", "", [REJECTED]),
        ("server+mutual", "unverified", "", "", ["asks for a client certificate"]),
        ("server+mutual", "unverified", "", "stranger", ["client certificate"]),
        ("server", "plaintext", "", "", ["expects TLS and was spoken to in plaintext", "Turn TLS on"]),
        ("", "unverified", "", "", ["the server does not speak TLS", "Connect without TLS"]),
    ],
)
def test_a_failed_handshake_has_one_clear_message(identities, served, mode, ca_of_ours, own, words) -> None:
    said = message(flags_of(identities, served), tls_of(identities, mode, ca_of_ours, own, ""))
    assert [word for word in words if word not in said] == []


def test_missing_files_are_named(tmp_path, server) -> None:
    assert "TLS files can't be used" in message(server.server, Tls(mode="verified", ca=str(tmp_path / "no.pem")))
