"""What is read of real jobs: their processes, their pace, their servers."""

import os
import signal
import time
from pathlib import Path

from remote.protocol.jobs import Finished
from remote.protocol.specs import MappingCopySpec
from remote.recorder.jobs import JobReader, written_by

SLEEP = "import time; time.sleep(600)"
RANKS = """
import os, subprocess, sys, time
ranks = [
    subprocess.Popen([sys.executable, "-S", "-c", "import time; time.sleep(600)"], env={**os.environ, "RANK": str(n)})
    for n in range(3)
]
time.sleep(600)
"""
TELLS = """
import json, os, time
path = os.environ["ROOST_JOB_DIR"] + "/progress.jsonl"
def tell(seq, event):
    with open(path, "a") as file:
        file.write(json.dumps({"type": "progress_record", "seq": seq, "at": time.time(), "event": event}) + "\\n")
tell(1, {"type": "server_ready", "url": "http://127.0.0.1:9", "engine": "sglang", "engine_version": "0.5.23",
         "model": "m", "pid": 1, "startup_s": 1.0})
for seq in range(2, 12):
    tell(seq, {"type": "files_copied", "bytes_done": seq * 100, "bytes_total": 2000})
time.sleep(600)
"""
RESTARTS = TELLS.replace(
    "time.sleep(600)",
    """
tell(12, {"type": "server_restarting", "reason": "it died", "restart": 1, "most": 3, "pause_s": 2.0})
time.sleep(600)
""",
)
WAITS = """
import json, os, time
pause = {"since": time.time(), "reason": "no room", "path": "/data", "bytes_free": 0, "inodes_free": 1, "bytes_needed": 2}
path = os.environ["ROOST_JOB_DIR"] + "/pause.json"
with open(path + ".new", "w") as file:
    json.dump(pause, file)
os.rename(path + ".new", path)
time.sleep(600)
"""


def test_a_job_at_work_is_read_and_one_that_is_over_is_not(workshop):
    workshop.start("sleeper", SLEEP)
    reader = JobReader(workshop.store)
    (found,) = reader.read(time.time()).samples
    assert (found.job_id, found.process_count, found.activity) == ("sleeper", 1, "load")
    while reader.read(time.time()).samples[0].memory_bytes < 1 << 20:
        pass
    assert not reader.read(time.time()).is_idle
    workshop.stop("sleeper")
    workshop.until("sleeper", lambda job: isinstance(job.state, Finished))
    assert reader.read(time.time()).is_idle


def test_a_stopped_rank_is_named(workshop):
    workshop.start("training", RANKS)
    reader = JobReader(workshop.store)
    found = reader.read(time.time()).samples[0]
    while len(found.ranks) < 3:
        found = JobReader(workshop.store).read(time.time()).samples[0]
    victim = found.ranks[1].pid
    os.kill(victim, signal.SIGSTOP)
    reader = JobReader(workshop.store)
    while not (found := reader.read(time.time()).samples[0]).suspended_pids:
        pass
    assert found.suspended_pids == [victim]
    assert [(rank.rank, rank.state == "T") for rank in found.ranks] == [(0, False), (1, True), (2, False)]


def test_pace_and_server_come_from_the_jobs_own_progress(workshop):
    workshop.start("copier", TELLS)
    reader = JobReader(workshop.store)
    while (reading := reader.read(time.time())).samples[0].bytes_left != 900:
        pass
    assert reading.samples[0].activity == "copy"
    assert [(endpoint.job_id, endpoint.url) for endpoint in reading.endpoints] == [("copier", "http://127.0.0.1:9")]


def test_an_engine_that_died_is_not_asked_until_it_is_there_again(workshop):
    workshop.start("server", RESTARTS)
    reader = JobReader(workshop.store)
    while not (reading := reader.read(time.time())).samples[0].restarts:
        pass
    assert reading.samples[0].restarted_because == "it died"
    assert reading.endpoints == []


def test_a_job_that_waits_for_room_is_paused(workshop):
    workshop.start("copier", WAITS)
    reader = JobReader(workshop.store)
    while reader.read(time.time()).samples[0].activity != "paused":
        pass
    workshop.store.directory("copier").joinpath("pause.json").unlink()
    while reader.read(time.time()).samples[0].activity == "paused":
        pass


def test_where_a_job_writes_is_known_from_its_spec():
    assert [str(path) for path in written_by(MappingCopySpec(source="/a", destination="/b/c"), Path("/root"))] == [
        "/b/c"
    ]
