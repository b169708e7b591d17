"""A token's way over a real link: from a pipe or an unseen terminal into the environment of a real job, and nowhere else."""

import asyncio
import logging
import os
import pty
import shutil
import subprocess
import sys
from pathlib import Path

import asyncssh
import pytest

from console import operations, operations_secrets
from console.link.client import HostLink
from remote.jobs import vault
from remote.protocol.frames import JobChanged, LogData, ProgressMade
from remote.protocol.jobs import is_over
from remote.protocol.requests import GetJob, ListJobs, ReadLog, Watch

TOKEN = "hf_AbCdEfGhIjKlMnOpQrStUvWxYz012345"
TELLER = """
import os, sys, time
token = os.environ["HF_TOKEN"]
print(os.environ)
print(sys.argv, flush=True)
for at in range(0, len(token), 5):
    sys.stdout.write(token[at : at + 5])
    sys.stdout.flush()
    time.sleep(0.05)
print()
"""


@pytest.fixture
def lab(openssh, workshop, embedded_data: Path):
    """OpenSSH's server with the workshop's root, known to the console as `lab`."""
    openssh.remember()
    host = openssh.config(workshop.root)
    config = Path(os.environ["XDG_CONFIG_HOME"]) / "roost/roost.toml"
    config.parent.mkdir(parents=True, exist_ok=True)
    config.write_text(
        f'[hosts.lab]\naddress = "{host.address}"\nport = {host.port}\nuser = "{host.user}"\n'
        f'identity_file = "{host.identity_file}"\nroot = "{host.root}"\npython = "{host.python}"\n'
    )
    yield host
    shutil.rmtree(vault.directory_in_memory(workshop.root), ignore_errors=True)


def roost(*arguments: str, given: bytes = b"") -> "subprocess.CompletedProcess[bytes]":
    command = [sys.executable, "-m", "console.cli", *arguments]
    return subprocess.run(command, input=given, capture_output=True, check=False, timeout=60)


async def test_a_token_is_in_the_work_and_in_nothing_that_is_sent_or_kept(lab, workshop, caplog) -> None:
    caplog.set_level(logging.DEBUG)
    heard: list[str] = []
    log = b""
    async with HostLink(lab, actor="test") as link:
        await operations_secrets.set_secret(link, "HF_TOKEN", TOKEN)
        await link.watch(Watch(jobs=True, logs={"teller": 0}))
        await asyncio.to_thread(workshop.start, "teller", TELLER)
        async with asyncio.timeout(60):
            async for event in link.events():
                heard.append(repr(event))
                if isinstance(event, LogData):
                    assert event.offset == len(log)
                    log += event.data
                if isinstance(event, JobChanged) and is_over(event.job.state):
                    break
        job = (await link.call(GetJob(job_id="teller"))).job
        heard += [repr(job), repr(await link.call(ListJobs())), repr(await operations_secrets.list_secrets(link))]
        page = await link.call(ReadLog(job_id="teller", offset=0, limit=1 << 16))
    written = (workshop.root / "jobs/teller/out.log").read_bytes()
    assert written.count(TOKEN.encode()) == 2, "it told its environment, and the token in pieces"
    assert page.data == written.replace(TOKEN.encode(), b"*" * len(TOKEN))
    assert page.data.startswith(log)
    assert job.last_line == "*" * len(TOKEN)
    assert all(TOKEN not in text for text in heard)
    assert TOKEN not in caplog.text
    holders = {path.name for path in workshop.root.rglob("*") if path.is_file() and TOKEN.encode() in path.read_bytes()}
    assert holders == {"out.log"}


CARELESS = """
import json, os, sys
token = os.environ["HF_TOKEN"]
with open("progress.jsonl", "w") as progress:
    event = {"type": "note", "level": "info", "text": "the token is " + token}
    progress.write(json.dumps({"type": "progress_record", "seq": 1, "at": 1.0, "event": event}) + "\\n")
with open("result.json", "w") as result:
    json.dump({"type": "job_result", "outputs": [], "summary": {"token": token}}, result)
with open("failure.json", "w") as failure:
    json.dump({"type": "error_info", "code": "failed", "message": "GET https://host/?key=" + token + " failed"}, failure)
sys.exit(1)
"""


async def test_work_that_writes_a_token_into_its_records_is_covered_in_all_of_them(lab, workshop) -> None:
    cover = "*" * len(TOKEN)
    async with HostLink(lab, actor="test") as link:
        await operations_secrets.set_secret(link, "HF_TOKEN", TOKEN)
        await asyncio.to_thread(workshop.start, "careless", CARELESS)
        await asyncio.to_thread(workshop.until, "careless", lambda job: is_over(job.state))
        job = (await link.call(GetJob(job_id="careless"))).job
        assert job.state.reason == f"GET https://host/?key={cover} failed"
        assert job.result.summary == {"token": cover}
        assert job.last_progress.event.text == f"the token is {cover}"
        assert [record.event.text for record in await operations.read_progress(link, "careless")] == [
            f"the token is {cover}"
        ]
        await link.watch(Watch(progress={"careless": 0}))
        async with asyncio.timeout(30):
            made = await anext(event async for event in link.events() if isinstance(event, ProgressMade))
        assert made.record.event.text == f"the token is {cover}"


async def test_asyncssh_logs_no_payload_however_much_it_is_told_to_log(lab, caplog) -> None:
    caplog.set_level(logging.DEBUG)
    asyncssh.set_debug_level(3)
    try:
        async with HostLink(lab, actor="test") as link:
            await operations_secrets.set_secret(link, "HF_TOKEN", TOKEN)
    finally:
        asyncssh.set_debug_level(1)
    dumped = caplog.text + "".join(f"{record.__dict__}" for record in caplog.records)
    assert TOKEN not in dumped
    assert TOKEN.encode().hex() not in dumped.replace(" ", "").lower()


def test_the_verbs_take_it_from_a_pipe_and_never_show_it(lab, workshop) -> None:
    done = roost("secrets", "set", "HF_TOKEN", "-H", "lab", given=TOKEN.encode() + b"\n")
    assert done.returncode == 0, done.stderr
    assert b"HF_TOKEN" in done.stdout
    listed = roost("secrets", "list", "-H", "lab", "--json")
    removed_unasked = roost("secrets", "remove", "HF_TOKEN", "-H", "lab")
    assert removed_unasked.returncode == 6
    assert b"--confirm HF_TOKEN" in removed_unasked.stderr
    assert vault.read_values(workshop.root) == {"HF_TOKEN": TOKEN}
    removed = roost("secrets", "remove", "HF_TOKEN", "-H", "lab", "--confirm", "HF_TOKEN")
    assert removed.returncode == 0
    assert vault.read_values(workshop.root) == {}
    for outcome in (done, listed, removed_unasked, removed):
        assert TOKEN.encode() not in outcome.stdout + outcome.stderr


@pytest.mark.parametrize(
    ("name", "given"), [("PATH", TOKEN), ("HF_TOKEN", ""), ("HF_TOKEN", "two words here"), (TOKEN, TOKEN)]
)
def test_what_is_no_token_is_a_usage_error_that_does_not_repeat_it(name, given, embedded_data) -> None:
    done = roost("secrets", "set", name, "-H", "lab", given=given.encode())
    assert done.returncode == 2
    assert not given or given.encode() not in done.stdout + done.stderr


def test_a_terminal_does_not_show_what_is_typed(lab, workshop) -> None:
    pid, terminal = pty.fork()
    if pid == 0:
        os.execv(sys.executable, [sys.executable, "-m", "console.cli", "secrets", "set", "HF_TOKEN", "-H", "lab"])
    shown = b""
    while b"not shown" not in shown:
        shown += os.read(terminal, 1 << 12)
    os.write(terminal, TOKEN.encode() + b"\n")
    try:
        while block := os.read(terminal, 1 << 12):
            shown += block
    except OSError:  # Linux says so when the other end is closed
        pass
    _, status = os.waitpid(pid, 0)
    os.close(terminal)
    assert os.waitstatus_to_exitcode(status) == 0, shown
    assert TOKEN.encode() not in shown
    assert b"kept in memory" in shown
    assert vault.read_values(workshop.root) == {"HF_TOKEN": TOKEN}
