"""The secrets of a host: their values in the vault, their names below the root, and what covers them in all that is sent."""

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec

from remote.artifacts import atomic
from remote.errors import Conflict, NotFound, UsageError, WorkFailed
from remote.jobs import locks, records, vault
from remote.protocol.secrets import Secret, SecretList
from remote.redaction import LEAST_LENGTH, MOST_LENGTH, SECRET_NAME, Redactor, is_secret_value

_CHANGE_TIMEOUT_S = 30.0
_REMEMBERED_OPERATIONS = 200
_RECORD_NAME = "secrets.json"
_ON_DISK = (
    "This host has no file system in memory that could take it: the value lies in a file below {directory} that only this "
    "user can read, and stays there until it is removed."
)


class SecretsRecord(msgspec.Struct, frozen=True, kw_only=True):
    """Which secrets were set, without their values, and the operations that took effect."""

    v: int = records.RECORD_VERSION
    secrets: list[Secret] = []
    operations: list[str] = []


class SecretStore:
    """The secrets of one root; safe to use from several threads and processes at once."""

    def __init__(self, root: Path, lock_directory: Path) -> None:
        self._root = root
        self._path = root / _RECORD_NAME
        self._lock = lock_directory / "secrets.change"
        self._known: tuple[frozenset[tuple[str, int]], Redactor] = (frozenset(), self._redactor(set()))

    def set(self, name: str, value: str, *, actor: str, op_id: str) -> SecretList:
        """Keep a value for the jobs that start from now on. Raises UsageError, Conflict, WorkFailed."""
        if not is_secret_value(value):
            raise UsageError(
                f"the value for {name} is no token: one word of printable ASCII of {LEAST_LENGTH} to {MOST_LENGTH} characters",
                hint="Was there a second line, a space or nothing at all on the standard input?",
            )
        with self._changing():
            record = self._read()
            if op_id in record.operations:
                return self._list(record)
            try:
                on_disk = vault.keep(self._root, name, value) == vault.directory_on_disk(self._root)
            except OSError as error:
                raise WorkFailed(f"{name} could not be stored: {error.strerror} ({error.filename})") from error
            secret = Secret(
                name=name, state="set", kept_in="disk" if on_disk else "memory", set_at=time.time(), set_by=actor
            )
            return self._list(self._write(record, name, [secret], op_id))

    def remove(self, name: str, *, op_id: str) -> SecretList:
        """Forget a secret; what jobs write of it is covered no more. Raises NotFound, Conflict."""
        with self._changing():
            record = self._read()
            if op_id in record.operations:
                return self._list(record)
            if all(secret.name != name for secret in record.secrets):
                raise NotFound(f"there is no secret {name} on this host", next_command="roost secrets list")
            vault.forget(self._root, name)
            return self._list(self._write(record, name, [], op_id))

    def list(self) -> SecretList:
        """The names, and which of them lost their value in a restart of the host."""
        return self._list(self._read())

    def redactor(self) -> Redactor:
        """What covers the values that are set now, those that they replaced, and those that jobs inherit from the login."""
        seen = vault.fingerprint(self._root)
        if seen != self._known[0]:
            self._known = (seen, self._redactor(vault.read_every_value(self._root)))
        return self._known[1]

    @staticmethod
    def _redactor(values: "set[str]") -> Redactor:
        return Redactor(values | _inherited_values())

    def cover(self, line: bytes) -> bytes:
        """A line of the protocol with every value covered that `redactor` has seen.

        It asks no disk, for it runs where the heartbeat does: whoever reads what is sent calls `redactor` beforehand.
        """
        return self._known[1].redact_json(line)

    @contextmanager
    def _changing(self) -> Iterator[None]:
        try:
            lock = locks.take(self._lock, _CHANGE_TIMEOUT_S)
        except locks.LockTimeout as error:
            raise Conflict(f"another change of the secrets is under way: {error}") from error
        try:
            yield
        finally:
            os.close(lock)

    def _read(self) -> SecretsRecord:
        return _read_record(self._path)

    def _write(self, record: SecretsRecord, name: str, now: "list[Secret]", op_id: str) -> SecretsRecord:
        others = [secret for secret in record.secrets if secret.name != name]
        written = SecretsRecord(
            secrets=sorted([*others, *now], key=lambda secret: secret.name),
            operations=[*record.operations, op_id][-_REMEMBERED_OPERATIONS:],
        )
        atomic.write_atomic(self._path, records.encode(written))
        return written

    def _list(self, record: SecretsRecord) -> SecretList:
        secrets = _as_they_are(record, self._root)
        on_disk = any(secret.kept_in == "disk" and secret.state == "set" for secret in secrets)
        note = _ON_DISK.format(directory=vault.directory_on_disk(self._root)) if on_disk else ""
        return SecretList(secrets=secrets, note=note)


def names_of_lost_secrets(root: Path) -> list[str]:
    """The secrets of `root` that were set and whose values a restart of the host has lost; raises WorkFailed."""
    record = _read_record(root / _RECORD_NAME)
    return [secret.name for secret in _as_they_are(record, root) if secret.state == "gone"]


def _read_record(path: Path) -> SecretsRecord:
    data = records.read_bytes(str(path))
    try:
        return SecretsRecord() if data is None else msgspec.json.decode(data, type=SecretsRecord)
    except msgspec.DecodeError as error:
        raise WorkFailed(f"{path} cannot be read: {error}", hint="Remove it and set the secrets again.") from error


def _as_they_are(record: SecretsRecord, root: Path) -> list[Secret]:
    there = vault.read_values(root)
    return [
        msgspec.structs.replace(secret, state="set" if secret.name in there else "gone") for secret in record.secrets
    ]


def _inherited_values() -> set[str]:
    """Tokens that the host's own environment gives to every login; a path is none, whatever its name."""
    found = {value for name, value in os.environ.items() if SECRET_NAME.match(name)}
    return {value for value in found if is_secret_value(value) and "/" not in value}
