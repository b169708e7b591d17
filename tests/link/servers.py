"""Real SSH servers on loopback: the embedded one, OpenSSH's, and a proxy that can cut a connection."""

import asyncio
import getpass
import os
import shutil
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import asyncssh
import pytest

from console.config.hosts import HostConfig
from console.embedded import lifecycle
from console.embedded.locations import EmbeddedHome
from console.link.host_keys import Endpoint, remember

SSHD = shutil.which("sshd", path="/usr/sbin:/usr/bin:/usr/local/sbin")


@pytest.fixture
def home(embedded_data: Path) -> EmbeddedHome:
    """An embedded host whose jobs run under the tests' own interpreter."""
    return EmbeddedHome(directory=embedded_data / "embedded", engine_python=Path(sys.executable))


@pytest.fixture
async def embedded(home: EmbeddedHome) -> AsyncIterator[HostConfig]:
    """The embedded host, running."""
    yield await lifecycle.ensure_running(home)
    await lifecycle.stop(home)


class OpenSSH:
    """OpenSSH's server on loopback with keys of its own."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.port = _free_port()
        self.client_key = directory / "client_key"
        self._write_key("host_key")
        self._write_key("client_key")
        shutil.copy(directory / "client_key.pub", directory / "authorized_keys")
        self._process: subprocess.Popen[bytes] | None = None
        self._options = ""
        self._passwd: Path | None = None

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def restart_with(self, options: str = "", *, shell: str | None = None, home: Path | None = None) -> None:
        """Start again with more lines in the configuration, or with another login shell and home of this user.

        The user is another one for the server alone, by a mount namespace; skips where none can be made.
        """
        self.stop()
        self._options = options
        self._passwd = None if shell is None or home is None else self._write_passwd(shell, home)
        self.start()

    def _write_passwd(self, shell: str, home: Path) -> Path:
        path = shutil.which(shell, path="/bin:/usr/bin:/sbin:/usr/sbin")
        if path is None:
            pytest.skip(f"{shell} is not installed")
        if subprocess.run(["unshare", "--mount", "true"], capture_output=True, check=False).returncode != 0:
            pytest.skip("no mount namespace can be made here")
        me = getpass.getuser()
        lines = []
        for line in Path("/etc/passwd").read_text().splitlines():
            name, password, uid, gid, about, *_ = line.split(":")
            lines.append(":".join([name, password, uid, gid, about, str(home), path]) if name == me else line)
        passwd = self.directory / "passwd"
        passwd.write_text("\n".join(lines) + "\n")
        passwd.chmod(0o644)
        return passwd

    def kill(self) -> None:
        assert self._process is not None
        self._process.kill()
        self._process.wait()

    def _write_key(self, name: str) -> None:
        key = asyncssh.generate_private_key("ssh-ed25519")
        path = self.directory / name
        path.unlink(missing_ok=True)
        path.touch(mode=0o600)
        key.write_private_key(path)
        key.write_public_key(path.with_suffix(".pub"))

    def change_host_key(self) -> None:
        self.stop()
        self._write_key("host_key")

    @property
    def host_key(self) -> asyncssh.SSHKey:
        return asyncssh.read_public_key(self.directory / "host_key.pub")

    def start(self) -> None:
        config = self.directory / "sshd_config"
        config.write_text(
            f"Port {self.port}\nListenAddress 127.0.0.1\nHostKey {self.directory}/host_key\nPidFile none\n"
            f"AuthorizedKeysFile {self.directory}/authorized_keys\nStrictModes no\nUsePAM no\nPasswordAuthentication no\n"
            f"{self._options}\n"
        )
        os.makedirs("/run/sshd", exist_ok=True)
        log = (self.directory / "sshd.log").open("ab")
        command = [SSHD, "-D", "-e", "-f", str(config)]
        if self._passwd is not None:
            bind = f'mount --bind {self._passwd} /etc/passwd && exec "$@"'
            command = ["unshare", "--mount", "--propagation", "private", "sh", "-c", bind, "sh", *command]
        self._process = subprocess.Popen(command, stdout=log, stderr=log)
        while True:
            with socket.socket() as probe:
                # From the server's own address and, by chance, its port, a socket is connected to itself before anybody listens.
                probe.bind(("127.0.0.2", 0))
                if probe.connect_ex(("127.0.0.1", self.port)) == 0:
                    return
            assert self._process.poll() is None, (self.directory / "sshd.log").read_text()

    def stop(self) -> None:
        if self._process is not None:
            self._process.terminate()
            self._process.wait()

    def config(self, root: Path) -> HostConfig:
        return HostConfig(
            name="lab",
            address="127.0.0.1",
            port=self.port,
            user=getpass.getuser(),
            identity_file=str(self.client_key),
            root=str(root),
            python=sys.executable,
        )

    def remember(self) -> None:
        remember(Endpoint("127.0.0.1", self.port), self.host_key)


@pytest.fixture
def openssh(tmp_path: Path, embedded_data: Path) -> Iterator[OpenSSH]:
    """A running OpenSSH server."""
    if SSHD is None:
        pytest.skip("OpenSSH's sshd is not installed (Debian: openssh-server)")
    directory = tmp_path / "openssh"
    directory.mkdir()
    server = OpenSSH(directory)
    server.start()
    yield server
    server.stop()


class Proxy:
    """Forwards TCP to a port until it is told to cut every connection."""

    def __init__(self, target: int) -> None:
        self._target = target
        self._writers: list[asyncio.StreamWriter] = []
        self.accepting = True
        self.port = 0

    async def start(self) -> asyncio.Server:
        server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.port = server.sockets[0].getsockname()[1]
        return server

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if not self.accepting:
            writer.transport.abort()
            return
        there_reader, there_writer = await asyncio.open_connection("127.0.0.1", self._target)
        self._writers += [writer, there_writer]
        await asyncio.gather(_pump(reader, there_writer), _pump(there_reader, writer), return_exceptions=True)

    def cut(self) -> None:
        for writer in self._writers:
            writer.transport.abort()
        self._writers.clear()


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while block := await reader.read(1 << 16):
        writer.write(block)
        await writer.drain()
    writer.close()


@pytest.fixture
async def proxy(embedded: HostConfig) -> AsyncIterator[Proxy]:
    """A proxy in front of the embedded host, whose key is known for it too."""
    made = Proxy(embedded.port or 0)
    server = await made.start()
    address = lifecycle._read_address(
        EmbeddedHome(directory=Path(embedded.root).parent, engine_python=Path(embedded.python or ""))
    )
    assert address is not None
    remember(Endpoint("127.0.0.1", made.port), asyncssh.import_public_key(address.host_key))
    yield made
    made.cut()
    server.close()


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]
