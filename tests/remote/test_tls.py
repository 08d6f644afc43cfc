"""Encrypted connections: who is let in, who is not, and what both sides say of it."""

from __future__ import annotations

import contextlib
import datetime as dt
import logging
import shutil
import socket
import ssl
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pipeline.cli import main
from pipeline.core.plan.plan import StagePlan, TensorSpec
from pipeline.core.remote_address import Address, parse
from pipeline.errors import BoardError, DeviceLost, InputError
from pipeline.remote.connection import Connection, ServerRefusal
from pipeline.remote.device_threads import ServerDevices
from pipeline.remote.offer import Offer
from pipeline.remote.rate_limit import FAILURE, RateLimit
from pipeline.remote.server import MOST_ARRIVALS, Server
from pipeline.remote.store import FileStore
from pipeline.remote.tls import ClientTls, ServerTls
from tests.remote.conftest import in_thread, until

pytest.importorskip("cryptography", reason="the extra 'tls' is not installed")
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from pipeline.remote.credentials import create_credentials

LIMIT = 60.0
X, Y = TensorSpec("x", (4,)), TensorSpec("y", (4,))
STAGE = StagePlan("s", "there", (X,), (Y,))


class Authority:
    """Makes certificates for tests."""

    def __init__(self, title: str = "authority") -> None:
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, title)])
        self.certificate = self._sign(self._name, self._key, is_authority=True)

    def write(self, path: Path) -> None:
        path.write_bytes(self.certificate.public_bytes(serialization.Encoding.PEM))

    def write_pair(self, certificate: Path, key: Path, *, days: int = 1) -> None:
        own_key = ec.generate_private_key(ec.SECP256R1())
        name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "somebody")])
        made = self._sign(name, own_key, is_authority=False, days=days)
        certificate.write_bytes(made.public_bytes(serialization.Encoding.PEM))
        form = serialization.PrivateFormat.PKCS8
        key.write_bytes(own_key.private_bytes(serialization.Encoding.PEM, form, serialization.NoEncryption()))
        key.chmod(0o600)

    def _sign(self, name: x509.Name, key: Any, *, is_authority: bool, days: int = 1) -> x509.Certificate:
        now = dt.datetime.now(dt.timezone.utc)
        names = x509.SubjectAlternativeName([x509.DNSName("localhost")])
        return (
            x509.CertificateBuilder()
            .subject_name(name)
            .issuer_name(self._name)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - dt.timedelta(days=9))
            .not_valid_after(now + dt.timedelta(days=days))
            .add_extension(names, critical=False)
            .add_extension(x509.BasicConstraints(is_authority, None), critical=True)
            .sign(self._key, hashes.SHA256())
        )


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("keys") / "board"
    create_credentials(folder)
    return folder


@contextlib.contextmanager
def serving(tls: ServerTls | None, host: str = "127.0.0.1", **options: Any) -> Iterator[Server]:
    offer = Offer(FileStore(), ServerDevices(()), (), largest_frame=10_000_000)
    with in_thread(Server(host, 0, offer, tls=tls, **options)) as server:
        yield server


@pytest.fixture
def server(keys: Path) -> Iterator[Server]:
    with serving(ServerTls(keys)) as running:
        yield running


def connect(server: Server, folder: Path | None, host: str = "127.0.0.1") -> Connection:
    return Connection(Address("remote", host, server.port, "null", timeout=20.0, tls=str(folder or "")))


def works(server: Server, folder: Path) -> None:
    with contextlib.closing(connect(server, folder)) as connection:
        number = connection.open(STAGE, None)
        assert connection.run(number, STAGE, [np.arange(4, dtype=np.float32)])[0].tolist() == [0, 1, 2, 3]


def test_the_token_lets_in(server: Server, keys: Path) -> None:
    works(server, keys / "client")


@pytest.mark.parametrize("count", [0, 1, 4095, 16 << 10, 1_000_003])
def test_frames_of_all_sizes_arrive(server: Server, keys: Path, count: int) -> None:
    specs = (TensorSpec("x", (count,)), TensorSpec("n", (3,), "int8"))
    stage = StagePlan("s", "there", specs, specs)
    inputs: list[np.ndarray] = [np.random.default_rng(0).random(count, np.float32), np.arange(3, dtype=np.int8)]
    with contextlib.closing(connect(server, keys / "client")) as connection:
        number = connection.open(stage, None)
        for _ in range(3):
            outputs = connection.run(number, stage, inputs)
            assert all(np.array_equal(ours, theirs) for ours, theirs in zip(inputs, outputs, strict=True))
            assert connection.usable()


@pytest.mark.parametrize("token", [None, "not the token of that server"])
def test_without_the_token_nobody_is_let_in(
    server: Server, keys: Path, tmp_path: Path, token: str | None, caplog: pytest.LogCaptureFixture
) -> None:
    folder = tmp_path / "client"
    shutil.copytree(keys / "client", folder)
    (folder / "token").unlink()
    if token is not None:
        (folder / "token").write_text(token)
        (folder / "token").chmod(0o600)
    with pytest.raises(ServerRefusal, match=r"refuses: the token is missing or wrong; copy the server's"):
        connect(server, folder)
    works(server, keys / "client")
    (line,) = [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]
    assert line.startswith("a client at 127.0.0.1 is refused: the token is missing or wrong; copy the server's into")


def test_another_servers_certificate_is_not_believed(
    server: Server, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    create_credentials(tmp_path / "other")
    with pytest.raises(ServerRefusal, match="the server's certificate is not believed: self-signed certificate"):
        connect(server, tmp_path / "other" / "client")
    await_lines(caplog, "a client at 127.0.0.1 is refused")


def test_a_server_is_known_by_its_name(server: Server, keys: Path) -> None:
    connect(server, keys / "client", "localhost").close()
    expected = pytest.raises(ServerRefusal, match=r"not believed: IP address mismatch")
    with serving(ServerTls(keys), "127.0.0.2") as elsewhere, expected:
        connect(elsewhere, keys / "client", "127.0.0.2")


def write_server(folder: Path, *, days: int = 1) -> Authority:
    """Write a server's files, with a certificate for so many days."""
    authority = Authority()
    authority.write_pair(folder / "server.crt", folder / "server.key", days=days)
    write_token(folder / "token")
    return authority


def write_token(path: Path) -> None:
    path.write_text("t" * 40)
    path.chmod(0o600)


def test_an_expired_certificate_is_not_served(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The server started, and no client could use it."""
    write_server(tmp_path, days=-1)
    assert main(["serve", "--port", "0", "--tls", str(tmp_path)]) != 0
    error = capsys.readouterr().err
    assert "certificate has expired; 'soc-pipeline serve --init-tls DIR' makes a new one" in " ".join(error.split())


def test_a_certificate_that_expires_while_it_is_served_is_not_believed(tmp_path: Path) -> None:
    authority = write_server(tmp_path, days=-1)
    client = tmp_path / "client"
    client.mkdir()
    authority.write(client / "server.crt")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(tmp_path / "server.crt", tmp_path / "server.key")
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def answer() -> None:
            with listener.accept()[0] as connection, contextlib.suppress(OSError):
                context.wrap_socket(connection, server_side=True).close()

        thread = threading.Thread(target=answer)
        thread.start()
        port = listener.getsockname()[1]
        with pytest.raises(ServerRefusal, match="not believed: certificate has expired"):
            Connection(Address("remote", "localhost", port, "null", timeout=20.0, tls=str(client)))
        thread.join(LIMIT)


@pytest.mark.skipif(sys.platform == "win32", reason="rights of POSIX")
@pytest.mark.parametrize("mode", [0o604, 0o644, 0o602])
@pytest.mark.parametrize("name", ["server.key", "token"])
def test_a_secret_that_all_may_read_is_none(tmp_path: Path, name: str, mode: int) -> None:
    write_server(tmp_path)
    (tmp_path / name).chmod(mode)
    with pytest.raises(InputError, match=rf"everybody on this machine may read '.*{name}', or change it; 'chmod 600"):
        ServerTls(tmp_path)
    # A service's group may be let in.
    (tmp_path / name).chmod(0o640)
    ServerTls(tmp_path)


@pytest.mark.skipif(sys.platform == "win32", reason="rights of POSIX")
@pytest.mark.parametrize("name", ["client.key", "token"])
def test_a_clients_secret_that_all_may_read_is_none(tmp_path: Path, name: str) -> None:
    authority = Authority()
    authority.write(tmp_path / "server.crt")
    authority.write_pair(tmp_path / "client.crt", tmp_path / "client.key")
    write_token(tmp_path / "token")
    ClientTls(tmp_path)
    (tmp_path / name).chmod(0o644)
    with pytest.raises(InputError, match="everybody on this machine may read"):
        ClientTls(tmp_path)


@pytest.mark.parametrize("has_token", [False, True])
def test_certificates_of_clients(tmp_path: Path, has_token: bool, caplog: pytest.LogCaptureFixture) -> None:
    servers, clients, strangers = Authority("servers"), Authority("clients"), Authority("strangers")
    servers.write_pair(tmp_path / "server.crt", tmp_path / "server.key")
    clients.write(tmp_path / "clients.crt")
    folders = {name: tmp_path / name for name in ("good", "stranger", "expired", "none")}
    for folder in folders.values():
        folder.mkdir()
        servers.write(folder / "server.crt")
    clients.write_pair(folders["good"] / "client.crt", folders["good"] / "client.key")
    strangers.write_pair(folders["stranger"] / "client.crt", folders["stranger"] / "client.key")
    clients.write_pair(folders["expired"] / "client.crt", folders["expired"] / "client.key", days=-1)
    if has_token:
        write_token(tmp_path / "token")
    with serving(ServerTls(tmp_path)) as server:
        with contextlib.closing(connect(server, folders["good"], "localhost")) as connection:
            assert connection.open(STAGE, None) == 0
        for name in ("stranger", "expired"):
            with pytest.raises(ServerRefusal, match=r"does not take this client's certificate \(.*(ca|expired)"):
                connect(server, folders[name], "localhost")
        reason = "the token is missing" if has_token else r"certificate \(certificate required"
        with pytest.raises(ServerRefusal, match=reason):
            connect(server, folders["none"], "localhost")
    assert len([record for record in caplog.records if record.levelno >= logging.WARNING]) == 3


def test_a_client_without_tls_is_told(server: Server, keys: Path, caplog: pytest.LogCaptureFixture) -> None:
    with pytest.raises(ServerRefusal, match=r"refuses: this server speaks TLS; add '\?tls=DIR' to its address"):
        connect(server, None)
    await_lines(caplog, "a client at 127.0.0.1 is refused: it does not speak TLS")
    works(server, keys / "client")


def test_a_server_without_tls_is_told(keys: Path, caplog: pytest.LogCaptureFixture) -> None:
    with serving(None) as server, pytest.raises(ServerRefusal, match="the server does not speak TLS; leave out 'tls'"):
        connect(server, keys / "client")
    await_lines(caplog, "the other side speaks TLS, and this one does not; start the server with --tls")


def test_a_replayed_handshake_is_refused(server: Server, keys: Path, caplog: pytest.LogCaptureFixture) -> None:
    """What a client once sent, recorded on the way, lets nobody in."""
    recorded: list[bytes] = []
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def relay() -> None:
            client, _ = listener.accept()
            upstream = socket.create_connection(("127.0.0.1", server.port))
            with client, upstream:
                back = threading.Thread(target=pump, args=(upstream, client, []))
                back.start()
                pump(client, upstream, recorded)
                back.join(LIMIT)

        thread = threading.Thread(target=relay)
        thread.start()
        address = Address(
            "remote", "127.0.0.1", listener.getsockname()[1], "null", timeout=20.0, tls=str(keys / "client")
        )
        with contextlib.closing(Connection(address)) as connection:
            assert connection.open(STAGE, None) == 0
        thread.join(LIMIT)
    assert sum(map(len, recorded)) > 500
    with socket.create_connection(("127.0.0.1", server.port), timeout=LIMIT) as replay:
        with contextlib.suppress(OSError):
            for data in recorded:
                replay.sendall(data)
            replay.shutdown(socket.SHUT_WR)
        answers = b""
        with contextlib.suppress(OSError):
            while data := replay.recv(1 << 16):
                answers += data
    await_lines(caplog, "a client at 127.0.0.1 is refused")
    # That of the first client ends when the server has heard of it.
    until(lambda: server.sessions == 0)
    works(server, keys / "client")


def pump(source: socket.socket, target: socket.socket, record: list[bytes]) -> None:
    with contextlib.suppress(OSError):
        while data := source.recv(1 << 16):
            record.append(data)
            target.sendall(data)
        target.shutdown(socket.SHUT_WR)


def test_hundreds_of_half_open_handshakes_keep_nobody_out(server: Server, keys: Path) -> None:
    hello = client_hello()
    with contextlib.ExitStack() as stack, contextlib.closing(connect(server, keys / "client")) as early:
        program = early.open(STAGE, None)
        for number in range(200):
            client = stack.enter_context(socket.create_connection(("127.0.0.1", server.port), timeout=LIMIT))
            # Nothing, some of the first message, or all of it; none goes on.
            with contextlib.suppress(OSError):
                client.sendall((b"", hello[:7], hello)[number % 3])
            if number % 50 == 49:
                assert early.run(program, STAGE, [np.ones(4, np.float32)])[0].tolist() == [1] * 4
                works(server, keys / "client")
        assert len([each for each in threading.enumerate() if each.name == "session"]) <= 2 * MOST_ARRIVALS


def client_hello() -> bytes:
    """Return what a client sends first."""
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    side = ssl.create_default_context().wrap_bio(incoming, outgoing, server_hostname="board")
    with contextlib.suppress(ssl.SSLWantReadError):
        side.do_handshake()
    return outgoing.read()


def await_lines(caplog: pytest.LogCaptureFixture, text: str) -> None:
    """Wait until the server's thread has said something, as one line."""
    for _ in range(600):
        lines = [record.getMessage() for record in caplog.records if text in record.getMessage()]
        if lines:
            assert len(lines) == 1
            assert "\n" not in lines[0]
            return
        threading.Event().wait(0.1)
    pytest.fail(f"nobody says {text!r}")


def test_an_address_that_fails_too_often_has_to_wait(keys: Path) -> None:
    clock = [0.0]
    limit = RateLimit(1.0, 3 * FAILURE, exempt=lambda _: False, clock=lambda: clock[0])
    with serving(ServerTls(keys), rate_limit=limit) as server:
        works(server, keys / "client")
        for _ in range(5):
            with pytest.raises(DeviceLost):
                connect(server, None)
        with pytest.raises(DeviceLost):
            connect(server, keys / "client")
        clock[0] += 10 * FAILURE
        works(server, keys / "client")


@pytest.mark.parametrize("missing", ["server.crt", "server.key", "token"])
def test_what_is_missing_in_a_folder_is_named(keys: Path, tmp_path: Path, missing: str) -> None:
    folder = tmp_path / "board"
    shutil.copytree(keys, folder)
    (folder / missing).unlink()
    with pytest.raises(InputError, match=rf"{missing}.*--init-tls"):
        ServerTls(folder)


def test_a_damaged_or_weak_file_is_named(keys: Path, tmp_path: Path) -> None:
    folder = tmp_path / "board"
    shutil.copytree(keys, folder)
    (folder / "token").write_text("short")
    with pytest.raises(InputError, match="has 5 characters; 16 are the least"):
        ServerTls(folder)
    (folder / "client" / "server.crt").write_text("no certificate")
    with pytest.raises(InputError, match=r"server.crt' is no certificate"):
        ClientTls(folder / "client")
    (folder / "server.key").write_text("no key")
    with pytest.raises(InputError, match="are no certificate with its key"):
        ServerTls(folder)


def test_the_address_names_the_folder() -> None:
    assert parse("remote://board:9123/cpu?tls=keys/board&timeout=2").tls == "keys/board"
    assert str(parse("remote://board:9123/cpu?tls=keys/board")) == "remote://board:9123/cpu"
    with pytest.raises(BoardError, match="tls names the folder"):
        parse("remote://board:9123/cpu?tls=")
    with pytest.raises(BoardError, match="has the option 'tls'"):
        parse("rpc://board:9090/cpu?tls=keys")


def test_credentials_are_for_their_user_alone(tmp_path: Path) -> None:
    folder = tmp_path / "new" / "board"
    create_credentials(folder, ["board.local", "10.1.2.3"])
    files = sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())
    assert files == ["client/server.crt", "client/token", "server.crt", "server.key", "token"]
    assert all(not path.stat().st_mode & 0o077 for path in (folder, *folder.rglob("*")))
    certificate = x509.load_pem_x509_certificate((folder / "server.crt").read_bytes())
    names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert {"board.local", "localhost"} <= set(names.get_values_for_type(x509.DNSName))
    assert {"10.1.2.3", "127.0.0.1"} <= set(map(str, names.get_values_for_type(x509.IPAddress)))
    with pytest.raises(InputError, match="is there already, and not empty"):
        create_credentials(folder)
    with pytest.raises(InputError, match="cannot write credentials"):
        create_credentials(Path("/proc/nowhere/board"))


def test_the_command(serve: Callable[..., Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "board"
    assert main(["serve", "--init-tls", str(folder)]) == 0
    assert "?tls=DIR" in capsys.readouterr().out
    child = serve("--tls", folder)
    address = Address("remote", "127.0.0.1", child.port, "null", timeout=20.0, tls=str(folder / "client"))
    with contextlib.closing(Connection(address)) as connection:
        assert connection.open(STAGE, None) == 0


def test_listening_to_strangers_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["serve", "--host", "0.0.0.0", "--port", "0"]) in {1, 2}
    assert "give --tls DIR" in capsys.readouterr().err
