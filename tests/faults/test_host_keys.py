"""Host keys and private keys: strict, asked once, and never silent about which hop or which file it was."""

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from contextvars import Token
from pathlib import Path

import asyncssh
import msgspec
import pytest

from console.config.hosts import HostConfig
from console.errors import ConfirmationNeeded, ConnectionFailed, UnknownHostKey, UsageError
from console.link import host_keys, private_keys, session
from console.link.client import HostLink
from console.link.host_keys import known_hosts_file
from console.ui.app import RoostApp
from console.ui.screens.dialogs import AskPassphrase, Confirm
from console.ui.session import LiveSession
from remote.protocol.requests import Ping
from tests.link.servers import OpenSSH


async def ping(host: HostConfig) -> None:
    async with HostLink(host, actor="test") as link:
        await link.call(Ping())


async def test_a_revoked_key_is_a_hard_stop_with_words_of_its_own(openssh: OpenSSH, tmp_path: Path) -> None:
    openssh.remember()
    known = known_hosts_file()
    known.write_text(known.read_text() + f"@revoked * {openssh.host_key.export_public_key().decode()}")
    with pytest.raises(ConnectionFailed, match="was revoked") as refused:
        await ping(openssh.config(tmp_path / "root"))
    assert not refused.value.info.retryable


async def test_a_revoked_key_that_was_never_accepted_is_not_even_asked_for(openssh: OpenSSH, tmp_path: Path) -> None:
    known = known_hosts_file()
    known.parent.mkdir(parents=True)
    known.write_text(f"@revoked * {openssh.host_key.export_public_key().decode()}")
    with pytest.raises(ConnectionFailed, match="was revoked"):
        await ping(openssh.config(tmp_path / "root"))


async def test_a_changed_key_is_a_hard_stop(openssh: OpenSSH, tmp_path: Path) -> None:
    openssh.remember()
    openssh.change_host_key()
    openssh.start()
    with pytest.raises(ConnectionFailed, match="not the one that was accepted before") as refused:
        await ping(openssh.config(tmp_path / "root"))
    assert not refused.value.info.retryable
    assert refused.value.info.next_command is None, "no override is offered"


async def test_a_key_of_a_trusted_authority_is_known(openssh: OpenSSH, tmp_path: Path) -> None:
    authority = asyncssh.generate_private_key("ssh-ed25519")
    certificate = authority.generate_host_certificate(openssh.host_key, "roost test", principals=["127.0.0.1"])
    certificate.write_certificate(openssh.directory / "host_key-cert.pub")
    openssh.restart_with(f"HostCertificate {openssh.directory}/host_key-cert.pub")
    known = known_hosts_file()
    known.parent.mkdir(parents=True)
    known.write_text(f"@cert-authority [127.0.0.1]:{openssh.port} {authority.export_public_key().decode()}")
    await ping(openssh.config(tmp_path / "root"))


@pytest.fixture
def bastion(tmp_path: Path, embedded_data: Path) -> Iterator[OpenSSH]:
    directory = tmp_path / "bastion"
    directory.mkdir()
    server = OpenSSH(directory)
    server.start()
    yield server
    server.stop()


def behind(bastion: OpenSSH, openssh: OpenSSH, root: Path) -> HostConfig:
    """The host, reached through the bastion by the same user and key."""
    (bastion.directory / "authorized_keys").write_bytes((openssh.directory / "client_key.pub").read_bytes())
    host = openssh.config(root)
    return msgspec.structs.replace(host, jump=f"{host.user}@127.0.0.1:{bastion.port}")


async def test_each_hop_is_asked_for_by_name_and_trusted_by_itself(
    bastion: OpenSSH, openssh: OpenSSH, tmp_path: Path
) -> None:
    host = behind(bastion, openssh, tmp_path / "root")
    with pytest.raises(UnknownHostKey, match=f"127.0.0.1:{bastion.port}") as first:
        await ping(host)
    assert first.value.fingerprint == bastion.host_key.get_fingerprint()
    assert f":{bastion.port}" in await session.trust(host, first.value.fingerprint)
    with pytest.raises(UnknownHostKey, match="host key of lab") as second:
        await ping(host)
    assert second.value.fingerprint == openssh.host_key.get_fingerprint()
    assert (await session.trust(host, second.value.fingerprint)).startswith("lab ")
    await ping(host)


async def test_a_hop_whose_key_changed_is_named(bastion: OpenSSH, openssh: OpenSSH, tmp_path: Path) -> None:
    host = behind(bastion, openssh, tmp_path / "root")
    openssh.remember()
    bastion.remember()
    bastion.change_host_key()
    bastion.start()
    with pytest.raises(ConnectionFailed, match=rf"127\.0\.0\.1:{bastion.port}\) is not the one that was accepted"):
        await ping(host)


async def test_a_connection_through_a_hop_leaves_none_behind(
    bastion: OpenSSH, openssh: OpenSSH, tmp_path: Path
) -> None:
    openssh.remember()
    bastion.remember()
    host = behind(bastion, openssh, tmp_path / "root")
    connection = await session.connect(host)
    passed = session.witness_of(connection).passed
    assert len(passed) == 1
    connection.abort()
    await connection.wait_closed()
    await passed[0].wait_closed()


PASSPHRASE = "correct horse"


@pytest.fixture
def encrypted(openssh: OpenSSH, monkeypatch: pytest.MonkeyPatch) -> OpenSSH:
    """The client's key, encrypted; no agent, nobody asked yet."""
    key = asyncssh.read_private_key(openssh.client_key)
    openssh.client_key.unlink()
    openssh.client_key.touch(mode=0o600)
    key.write_private_key(openssh.client_key, passphrase=PASSPHRASE)
    openssh.remember()
    monkeypatch.delenv("SSH_AUTH_SOCK", raising=False)
    monkeypatch.setattr(private_keys, "_opened", {})
    return openssh


def answering(*answers: str | None) -> tuple[list[str], Token]:
    questions: list[str] = []
    left = iter(answers)

    async def ask(question: str) -> str | None:
        questions.append(question)
        return next(left)

    return questions, private_keys.ask_passphrase.set(ask)


async def test_nobody_to_ask_for_a_passphrase_is_a_confirmation_that_is_missing(
    encrypted: OpenSSH, tmp_path: Path
) -> None:
    with pytest.raises(ConfirmationNeeded, match="is encrypted and nobody can be asked") as refused:
        await ping(encrypted.config(tmp_path / "root"))
    assert refused.value.info.next_command == f"ssh-add {encrypted.client_key}"


async def test_a_passphrase_is_asked_for_once_and_remembered_for_reconnects(encrypted: OpenSSH, tmp_path: Path) -> None:
    questions, token = answering("wrong", PASSPHRASE)
    try:
        await ping(encrypted.config(tmp_path / "root"))
        await ping(encrypted.config(tmp_path / "root"))
    finally:
        private_keys.ask_passphrase.reset(token)
    assert len(questions) == 2
    assert str(encrypted.client_key) in questions[0]
    assert questions[1].startswith("That was not it.")


@pytest.mark.parametrize("answers", [(None,), ("a", "b", "c")])
async def test_wrong_passphrases_and_a_refusal_end_the_attempt(
    encrypted: OpenSSH, tmp_path: Path, answers: tuple[str | None, ...]
) -> None:
    questions, token = answering(*answers)
    try:
        with pytest.raises(ConnectionFailed, match="was not unlocked") as refused:
            await ping(encrypted.config(tmp_path / "root"))
    finally:
        private_keys.ask_passphrase.reset(token)
    assert len(questions) == len(answers)
    assert not refused.value.info.retryable


async def test_a_file_that_is_no_key_is_named(openssh: OpenSSH, tmp_path: Path) -> None:
    openssh.remember()
    openssh.client_key.write_text("no key at all")
    with pytest.raises(ConnectionFailed, match="client_key cannot be read"):
        await ping(openssh.config(tmp_path / "root"))


def text_of(app: RoostApp) -> str:
    return "\n".join("".join(piece.text for piece in strip) for strip in app.screen._compositor.render_strips())


async def until(pilot, app: RoostApp, condition) -> None:
    for _ in range(1500):
        app.refresh_now()
        await pilot.pause(0.01)
        if condition():
            return
    pytest.fail("waited in vain for the screen")


async def test_the_screen_asks_for_the_passphrase_and_for_the_key_of_the_host(
    encrypted: OpenSSH, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    known_hosts_file().unlink()
    config = tmp_path / "config/roost/roost.toml"
    host = encrypted.config(tmp_path / "root")
    config.write_text(
        f'[hosts.lab]\naddress = "{host.address}"\nport = {host.port}\nuser = "{host.user}"\n'
        f'identity_file = "{host.identity_file}"\nroot = "{host.root}"\npython = "{host.python}"\n'
    )
    app = RoostApp("lab", lambda: opened(host))
    async with app.run_test(size=(100, 30)) as pilot:
        fingerprint = encrypted.host_key.get_fingerprint()[:20]
        await until(pilot, app, lambda: isinstance(app.screen, Confirm) and fingerprint in text_of(app))
        await pilot.press("y")
        await until(pilot, app, lambda: isinstance(app.screen, AskPassphrase))
        await pilot.press(*[letter if letter != " " else "space" for letter in PASSPHRASE], "enter")
        await until(pilot, app, lambda: app._state.welcome is not None)
    assert host_keys.is_known(host_keys.Endpoint("127.0.0.1", encrypted.port), [])


@asynccontextmanager
async def opened(host: HostConfig) -> AsyncIterator[LiveSession]:
    async with HostLink(host, actor="screen") as link:
        yield LiveSession(link)


async def test_a_damaged_store_of_keys_is_named_and_never_rewritten(openssh: OpenSSH, tmp_path: Path) -> None:
    openssh.remember()
    known = known_hosts_file()
    known.write_bytes(known.read_bytes() + b"\xf6\xff\n")
    with pytest.raises(UsageError, match="a known_hosts file cannot be read"):
        await ping(openssh.config(tmp_path / "root"))
    openssh.remember()
    assert b"\xf6\xff\n" in known.read_bytes()


async def test_a_key_is_not_accepted_beside_another_of_the_users_own_files_nor_after_it_was_revoked(
    openssh: OpenSSH, tmp_path: Path
) -> None:
    fingerprint = openssh.host_key.get_fingerprint()
    endpoint = host_keys.Endpoint("127.0.0.1", openssh.port)
    other = asyncssh.generate_private_key("ssh-ed25519").export_public_key().decode()
    mine = tmp_path / "known"
    mine.write_text(f"[127.0.0.1]:{openssh.port} {other}")
    with pytest.raises(ConnectionFailed, match="trusted with another key before"):
        host_keys.accept("lab", endpoint, openssh.host_key, fingerprint, [mine])
    mine.write_text(f"@revoked * {openssh.host_key.export_public_key().decode()}")
    with pytest.raises(ConnectionFailed, match="was revoked"):
        host_keys.accept("lab", endpoint, openssh.host_key, fingerprint, [mine])
    assert not known_hosts_file().exists()
