"""The certificates by which the members of a cluster know each other, and the rule when they are needed.

Whoever may speak to a scheduler or worker of Dask may run code there, because pickles travel. So beyond this
machine's loopback there is mutual TLS: everybody shows a certificate of one authority, whose key was thrown
away when it had signed.
"""

from __future__ import annotations

import datetime
import os
import stat
from pathlib import Path

from fusescope.core import paths
from fusescope.jobs.spec.cluster import Place, is_loopback

VARIABLE = "FUSESCOPE_CERTIFICATES"
AUTHORITY, CERTIFICATE, KEY = FILES = ("ca.pem", "node.pem", "node-key.pem")
DAYS = 365


def home() -> Path:
    """The folder of this user's certificates ($FUSESCOPE_CERTIFICATES, else in the user's configuration)."""
    return Path(os.environ.get(VARIABLE) or paths.user_folder("XDG_CONFIG_HOME", ".config") / "certificates")


def make(folder: Path, days: int = DAYS) -> list[Path]:
    """An authority and one certificate for scheduler, workers and clients, valid so many days, in a folder
    that only this user can read. ValueError where some are there already, RuntimeError without the package
    cryptography."""
    try:
        from cryptography import x509
        from cryptography.hazmat.primitives import hashes, serialization
        from cryptography.hazmat.primitives.asymmetric import ec
        from cryptography.x509.oid import NameOID
    except ImportError:
        raise RuntimeError("certificates need the package cryptography: pip install cryptography") from None
    if there := [name for name in FILES if (folder / name).exists()]:
        raise ValueError(f"{folder} holds {', '.join(there)} already; name a new folder, or delete them")
    begin = datetime.datetime.now(datetime.UTC) - datetime.timedelta(minutes=5)  # clocks may differ
    end = begin + datetime.timedelta(days=days)

    def certificate(name: str, key, issuer, signer, authority: bool):
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        builder = x509.CertificateBuilder(
            issuer_name=issuer or subject,
            subject_name=subject,
            public_key=key.public_key(),
            serial_number=x509.random_serial_number(),
            not_valid_before=begin,
            not_valid_after=end,
        )
        builder = builder.add_extension(x509.BasicConstraints(authority, 0 if authority else None), True)
        usage = dict.fromkeys(
            ("content_commitment", "key_encipherment", "data_encipherment", "key_agreement"), False
        )
        builder = builder.add_extension(
            x509.KeyUsage(
                digital_signature=not authority,
                key_cert_sign=authority,
                crl_sign=authority,
                encipher_only=False,
                decipher_only=False,
                **usage,
            ),
            True,
        )
        signer_id = x509.SubjectKeyIdentifier.from_public_key(signer.public_key())
        builder = builder.add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(signer_id), False
        )
        own_id = x509.SubjectKeyIdentifier.from_public_key(key.public_key())
        return builder.add_extension(own_id, False).sign(signer, hashes.SHA256())

    authority_key, key = ec.generate_private_key(ec.SECP256R1()), ec.generate_private_key(ec.SECP256R1())
    authority = certificate("FuseScope cluster authority", authority_key, None, authority_key, True)
    node = certificate("FuseScope cluster node", key, authority.subject, authority_key, False)
    secret = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    pem = serialization.Encoding.PEM
    texts = {AUTHORITY: authority.public_bytes(pem), CERTIFICATE: node.public_bytes(pem), KEY: secret}
    for name, text in texts.items():
        fd = os.open(folder / name, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(fd, "wb") as file:
            file.write(text)
    return [folder / name for name in FILES]


def needed(place: Place) -> bool:
    """Whether the members of this cluster must show certificates: one that listens or is called beyond this
    machine, and one whose address says so."""
    return place.how == "slurm" or (
        place.how == "address" and (place.scheme == "tls" or not is_loopback(place.host))
    )


def check(place: Place) -> None:
    """Without Dask, before anything starts. ValueError, in one sentence, where certificates are needed and
    are not here, or others may read the key."""
    if not needed(place):
        return
    folder = home()
    if missing := [name for name in FILES if not (folder / name).is_file()]:
        where = "SLURM" if place.how == "slurm" else f"{place.host}, beyond this machine's loopback,"
        raise ValueError(
            f"a cluster on {where} needs TLS, because whoever may speak to a worker may run code there, and "
            f"{folder} lacks {', '.join(missing)}: make them once with fusescope cluster certificates DIR, "
            f"copy DIR to every machine and set {VARIABLE}"
        )
    mode = stat.S_IMODE((folder / KEY).stat().st_mode)
    if mode & 0o077:
        raise ValueError(
            f"{folder / KEY} may be read by other users (mode {mode:o}): chmod 600 {folder / KEY}"
        )


def security(place: Place):
    """Dask's Security of a cluster; None: an address of this machine, called without TLS. ValueError as
    ``check``."""
    from distributed.security import Security

    if place.how == "local":
        return Security.temporary()  # other users of this machine reach its loopback too
    check(place)
    if not needed(place):
        return None
    files = {"tls_ca_file": str(home() / AUTHORITY)}
    for role in ("client", "scheduler", "worker"):
        files |= {f"tls_{role}_cert": str(home() / CERTIFICATE), f"tls_{role}_key": str(home() / KEY)}
    return Security(require_encryption=True, **files)
