"""Credentials: key, certificate and token for a server's first installation."""

from __future__ import annotations

import datetime as dt
import ipaddress
import os
import secrets
import shutil
import socket
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import psutil

from pipeline.errors import InputError
from pipeline.remote.tls import SERVER_CERTIFICATE, SERVER_KEY, TOKEN
from pipeline.system.optional import require

if TYPE_CHECKING:
    from cryptography import x509

CLIENT_FOLDER = "client"
"""Folder of a client's files, to be copied to its machine."""

_YEARS = 10
"""A board in the field is not visited each year; whoever wants less time has an authority, and makes certificates."""


def create_credentials(folder: Path, names: Sequence[str] = ()) -> None:
    """Write server files into a fresh folder, client files below it.

    Clients reach this machine by `names` and addresses, beside those that it knows itself. Raises `InputError` if the
    folder has something in it, or cannot be written; `MissingExtra` if the library that makes certificates is not
    installed.
    """
    require("cryptography", "tls", "making certificates")
    try:
        if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
            raise InputError(f"{str(folder)!r} is there already, and not empty; name a new folder, or remove that one")
        folder.absolute().parent.mkdir(parents=True, exist_ok=True)
        # For this user alone from the beginning; all files or none are there in the end.
        incomplete = Path(tempfile.mkdtemp(".incomplete", f".{folder.name}.", folder.absolute().parent))
        try:
            _fill(incomplete, names)
            incomplete.replace(folder)
        except BaseException:
            shutil.rmtree(incomplete, ignore_errors=True)
            raise
    except OSError as error:
        raise InputError(f"cannot write credentials into {str(folder)!r}: {error.strerror}") from None


def _fill(folder: Path, names: Sequence[str]) -> None:
    key, certificate = _make_certificate([*names, *_own_names()])
    token = secrets.token_urlsafe(32).encode() + b"\n"
    (folder / CLIENT_FOLDER).mkdir(mode=0o700)
    _write(folder / SERVER_KEY, key)
    for client_or_server in (folder, folder / CLIENT_FOLDER):
        _write(client_or_server / SERVER_CERTIFICATE, certificate)
        _write(client_or_server / TOKEN, token)


def _make_certificate(names: Sequence[str]) -> tuple[bytes, bytes]:
    """Return a new key and certificate for names and addresses, as PEM."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    key = ec.generate_private_key(ec.SECP256R1())
    now = dt.datetime.now(dt.timezone.utc)
    title = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "soc-pipeline server")])
    certificate = (
        x509.CertificateBuilder()
        .subject_name(title)
        .issuer_name(title)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        # Boards without a battery begin with the clock of some years ago, until they hear the time.
        .not_valid_before(now - dt.timedelta(days=365 * _YEARS))
        .not_valid_after(now + dt.timedelta(days=365 * _YEARS))
        .add_extension(x509.SubjectAlternativeName(list(map(_as_general_name, dict.fromkeys(names)))), critical=False)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    return private, certificate.public_bytes(serialization.Encoding.PEM)


def _as_general_name(name: str) -> x509.GeneralName:
    from cryptography import x509

    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)


def _own_names() -> list[str]:
    """Return this machine's names and network addresses."""
    families = (socket.AF_INET, socket.AF_INET6)
    addresses = [
        # Of a link-local address the card's name follows, which no certificate has.
        address.address.partition("%")[0]
        for card in psutil.net_if_addrs().values()
        for address in card
        if address.family in families
    ]
    return ["localhost", socket.gethostname(), socket.getfqdn(), "127.0.0.1", "::1", *addresses]


def _write(path: Path, content: bytes) -> None:
    # Never readable by others, not even for a moment.
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "wb") as stream:
        stream.write(content)
