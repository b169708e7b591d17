"""Secrets reach the work's environment and nothing else: real jobs that tell everything they know."""

import json
import os
import shutil
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from remote.errors import NotFound, UsageError
from remote.jobs import vault
from remote.jobs.secret_store import names_of_lost_secrets
from remote.jobs.store import JobStore
from remote.protocol.jobs import Finished, Job
from remote.protocol.secrets import SetSecret
from tests.jobs.workshop import RELEASE, plan_program

TOKEN = "hf_AbCdEfGhIjKlMnOpQrStUvWxYz012345"
TELLER = """
import os, sys
token = os.environ["HF_TOKEN"]
print(os.environ)
print(sys.argv)
for piece in (token[:9], token[9:20], token[20:]):
    sys.stdout.write(piece)
    sys.stdout.flush()
print(" and again", token)
sys.exit(3)
"""


@pytest.fixture(autouse=True)
def _forget(workshop):
    yield
    shutil.rmtree(vault.directory_in_memory(workshop.root), ignore_errors=True)


def keep(workshop, value: str = TOKEN, name: str = "HF_TOKEN", op_id: str = "set-1"):
    return workshop.store.secrets.set(name, value, actor="ann", op_id=op_id)


def is_over(job: Job) -> bool:
    return isinstance(job.state, Finished)


def files_with(root: Path, value: bytes) -> set[str]:
    return {path.name for path in root.rglob("*") if path.is_file() and value in path.read_bytes()}


def test_the_work_finds_the_value_and_no_file_of_ours_does(workshop) -> None:
    keep(workshop)
    workshop.start("teller", TELLER)
    job = workshop.until("teller", is_over)
    log = workshop.store.read_log("teller", 0, 1 << 16).data
    written = (workshop.root / "jobs/teller/out.log").read_bytes()
    assert written.count(TOKEN.encode()) == 3
    assert TOKEN.encode() not in log
    assert log.count(b"*" * len(TOKEN)) == 3
    assert len(log) == len(written)
    assert job.last_line == f"{'*' * len(TOKEN)} and again {'*' * len(TOKEN)}"
    assert files_with(workshop.root, TOKEN.encode()) == {"out.log"}
    assert TOKEN not in repr(job)


def test_it_lies_in_a_private_file_in_memory(workshop) -> None:
    found = keep(workshop)
    assert [(secret.name, secret.state, secret.kept_in) for secret in found.secrets] == [("HF_TOKEN", "set", "memory")]
    directory = vault.directory_in_memory(workshop.root)
    assert stat.S_IMODE((directory / "HF_TOKEN").stat().st_mode) == 0o600
    assert stat.S_IMODE(directory.stat().st_mode) == 0o700
    assert files_with(workshop.root, TOKEN.encode()) == set()


def test_where_no_memory_takes_it_the_reply_says_so(workshop, monkeypatch) -> None:
    monkeypatch.setattr(vault, "has_memory", lambda: False)
    found = keep(workshop)
    assert found.secrets[0].kept_in == "disk"
    assert str(workshop.root / "secrets") in found.note
    path = workshop.root / "secrets/HF_TOKEN"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    workshop.start("teller", TELLER)
    workshop.until("teller", is_over)
    assert TOKEN.encode() not in workshop.store.read_log("teller", 0, 1 << 16).data
    monkeypatch.undo()
    assert keep(workshop, op_id="set-2").secrets[0].kept_in == "memory"
    assert not path.exists()


def test_a_restart_of_the_host_loses_it_and_says_so(workshop) -> None:
    keep(workshop)
    shutil.rmtree(vault.directory_in_memory(workshop.root))
    assert [secret.state for secret in workshop.store.secrets.list().secrets] == ["gone"]
    assert names_of_lost_secrets(workshop.root) == ["HF_TOKEN"]
    keep(workshop, op_id="set-2")
    assert names_of_lost_secrets(workshop.root) == []


def test_a_removed_secret_reaches_no_later_job(workshop) -> None:
    keep(workshop)
    assert workshop.store.secrets.remove("HF_TOKEN", op_id="remove-1").secrets == []
    assert not vault.directory_in_memory(workshop.root).exists()
    workshop.start("asker", "import os; print('HF_TOKEN' in os.environ)")
    workshop.until("asker", is_over)
    assert workshop.store.read_log("asker", 0, 100).data == b"False\n"
    with pytest.raises(NotFound):
        workshop.store.secrets.remove("HF_TOKEN", op_id="remove-2")


def test_a_value_that_was_replaced_stays_covered_in_what_a_job_still_writes(workshop) -> None:
    keep(workshop)
    go_on = workshop.root / "go-on"
    program = (
        f"import os, time\nwhile not os.path.exists({str(go_on)!r}): time.sleep(0.02)\nprint(os.environ['HF_TOKEN'])"
    )
    workshop.start("late", program)
    newer = TOKEN[::-1]
    keep(workshop, newer, op_id="set-2")
    assert vault.read_values(workshop.root) == {"HF_TOKEN": newer}
    go_on.touch()
    workshop.until("late", is_over)
    assert workshop.store.read_log("late", 0, 100).data == b"*" * len(TOKEN) + b"\n"


def test_the_same_operation_takes_effect_once(workshop) -> None:
    keep(workshop)
    keep(workshop, TOKEN[::-1], op_id="set-2")
    keep(workshop, op_id="set-1")
    assert vault.read_values(workshop.root) == {"HF_TOKEN": TOKEN[::-1]}


def test_a_directory_that_others_can_enter_is_not_believed(workshop) -> None:
    directory = vault.directory_in_memory(workshop.root)
    directory.parent.mkdir(mode=0o700, exist_ok=True)
    directory.mkdir(mode=0o755)
    (directory / "HF_TOKEN").write_text("planted-by-somebody")
    assert vault.read_values(workshop.root) == {}
    assert keep(workshop).secrets[0].kept_in == "disk"


def test_a_value_that_is_no_token_is_refused_without_being_told(workshop) -> None:
    with pytest.raises(UsageError) as caught:
        keep(workshop, "two secret words")
    assert "secret words" not in str(caught.value)


def test_the_text_form_of_the_request_hides_the_value() -> None:
    request = SetSecret(name="HF_TOKEN", value=TOKEN, op_id="set-1")
    assert TOKEN not in f"{request!r}{request}{list(request.__rich_repr__())}"


def test_a_job_without_secrets_costs_no_directory(workshop) -> None:
    workshop.start("plain", "print('hello')")
    workshop.until("plain", is_over)
    assert not vault.directory_in_memory(workshop.root).exists()
    assert not os.path.exists(workshop.root / "secrets")


def test_a_token_that_the_login_brings_is_covered_too(workshop, monkeypatch) -> None:
    monkeypatch.setenv("WANDB_API_KEY", TOKEN)
    store = JobStore(workshop.root, RELEASE, sys.executable, plan=plan_program)
    store.start("teller", workshop.spec("import os; print(os.environ['WANDB_API_KEY'])"), actor="ann", op_id="start-1")
    workshop.until("teller", is_over)
    assert store.read_log("teller", 0, 100).data == b"*" * len(TOKEN) + b"\n"


def test_the_last_line_of_a_job_that_is_over_is_whole(workshop) -> None:
    keep(workshop)
    workshop.start("talker", "print('the last epoch', end='')")
    assert workshop.until("talker", is_over).last_line == "the last epoch"


def test_the_list_that_the_host_prints_by_itself_is_covered(workshop) -> None:
    keep(workshop)
    workshop.start("teller", TELLER)
    workshop.until("teller", is_over)
    command = [sys.executable, "-m", "remote", "jobs", "--root", str(workshop.root)]
    told = subprocess.run(command, cwd=RELEASE, capture_output=True, text=True, check=True).stdout
    assert TOKEN not in told
    assert json.loads(told)[0]["job_id"] == "teller"
