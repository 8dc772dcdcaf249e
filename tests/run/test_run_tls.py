"""TLS between the suite and a target: the right verdict, or one clear message, for each way it can be set up."""

from __future__ import annotations

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


# -- it works ----------------------------------------------------------------------------------------------------------


def test_a_certificate_that_the_target_made_for_itself():
    assert verdicts(("--tls=self-signed",), Tls(mode="unverified")) == {Verdict.PASS}


def test_self_signed_without_any_name(tmp_path):
    made = self_signed(tmp_path)
    flags = (f"--tls-cert={made.certificate}", f"--tls-key={made.key}")
    assert verdicts(flags, Tls(mode="unverified")) == {Verdict.PASS}


def test_verified_by_its_authority(ca, server):
    assert verdicts(server.server, Tls(mode="verified", ca=str(ca.certificate))) == {Verdict.PASS}


def test_verified_for_a_name_of_its_own(authorities, ca):
    named = authorities.make("named", "epp.example", by=ca)
    tls = Tls(mode="verified", ca=str(ca.certificate), server_name="epp.example")
    assert verdicts(named.server, tls) == {Verdict.PASS}


def test_mutual(ca, server, client):
    flags = (*server.server, f"--tls-client-ca={ca.certificate}")
    ours = {"cert": str(client.certificate), "key": str(client.key)}
    assert verdicts(flags, Tls(mode="verified", ca=str(ca.certificate), **ours)) == {Verdict.PASS}
    assert verdicts(flags, Tls(mode="unverified", **ours)) == {Verdict.PASS}


def test_expired_and_unverified(authorities, ca):
    expired = authorities.make("expired", "127.0.0.1", by=ca, days=-1)
    assert verdicts(expired.server, Tls(mode="unverified")) == {Verdict.PASS}


# -- it does not, and says why -----------------------------------------------------------------------------------------


def test_expired(authorities, ca):
    expired = authorities.make("expired-too", "127.0.0.1", by=ca, days=-1)
    said = message(expired.server, Tls(mode="verified", ca=str(ca.certificate)))
    assert "certificate was rejected: certificate has expired" in said
    assert "turn verification off" in said


def test_another_authority(authorities, server):
    other = authorities.make("other")
    said = message(server.server, Tls(mode="verified", ca=str(other.certificate)))
    assert "certificate was rejected: unable to get local issuer certificate" in said
    assert "Name its CA" in said


def test_the_authorities_of_the_system_do_not_know_it(server):
    assert "certificate was rejected" in message(server.server, Tls(mode="verified"))


def test_another_name(authorities, ca):
    named = authorities.make("elsewhere", "epp.example", by=ca)
    said = message(named.server, Tls(mode="verified", ca=str(ca.certificate)))
    assert "IP address mismatch" in said
    assert "set the server name" in said


def test_no_name(tmp_path):
    made = self_signed(tmp_path)
    flags = (f"--tls-cert={made.certificate}", f"--tls-key={made.key}")
    assert "certificate was rejected" in message(flags, Tls(mode="verified", ca=str(made.certificate)))


def test_mutual_without_a_certificate_of_ours(ca, server):
    flags = (*server.server, f"--tls-client-ca={ca.certificate}")
    assert "asks for a client certificate" in message(flags, Tls(mode="unverified"))


def test_mutual_with_a_stranger_s_certificate(authorities, ca, server):
    stranger = authorities.make("stranger", by=authorities.make("strangers"))
    flags = (*server.server, f"--tls-client-ca={ca.certificate}")
    tls = Tls(mode="unverified", cert=str(stranger.certificate), key=str(stranger.key))
    assert "client certificate" in message(flags, tls)


def test_plaintext_against_tls(server):
    said = message(server.server, Tls())
    assert "expects TLS and was spoken to in plaintext" in said
    assert "Turn TLS on" in said


def test_tls_against_plaintext():
    said = message((), Tls(mode="unverified"))
    assert "the server does not speak TLS" in said
    assert "Connect without TLS" in said


def test_files_that_are_not_there(tmp_path, server):
    said = message(server.server, Tls(mode="verified", ca=str(tmp_path / "no.pem")))
    assert "TLS files can't be used" in said
