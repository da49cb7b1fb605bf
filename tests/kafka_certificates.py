"""A certificate authority of one test run, and the certificate of its Kafka broker."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID


def authority(folder: Path, *, host: str = "localhost") -> Path:
    """Write `server.pem`, key and certificate of a host; return the file of its authority."""
    issuer, subject = _name("tests"), _name(host)
    issuer_key, key = (ec.generate_private_key(ec.SECP256R1()) for _ in range(2))
    may_sign = x509.BasicConstraints(ca=True, path_length=0)
    root = _certificate(issuer, issuer_key.public_key(), may_sign).issuer_name(issuer)
    alternative = x509.SubjectAlternativeName([x509.DNSName(host)])
    server = _certificate(subject, key.public_key(), alternative).issuer_name(issuer)
    pem = serialization.Encoding.PEM
    private = key.private_bytes(
        pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    chain = server.sign(issuer_key, hashes.SHA256()).public_bytes(pem)
    (folder / "server.pem").write_bytes(private + chain)
    trusted = folder / "authority.pem"
    trusted.write_bytes(root.sign(issuer_key, hashes.SHA256()).public_bytes(pem))
    return trusted


def _certificate(
    subject: x509.Name, key: ec.EllipticCurvePublicKey, extension: x509.ExtensionType
) -> x509.CertificateBuilder:
    now = datetime.now(UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(extension, critical=isinstance(extension, x509.BasicConstraints))
    )


def _name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])
