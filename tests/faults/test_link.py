"""The link on bad networks: jobs never notice, no byte is lost or repeated, and people read what happened."""

import asyncio
import os
import random
import signal
import time
from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import pytest

from console.config.hosts import HostConfig
from console.errors import ConsoleError
from console.link.inbox import CAPACITY_BYTES
from remote.protocol.ids import new_op_id
from remote.protocol.jobs import Finished, Running
from remote.protocol.requests import GetJob, JobReply, Ping, StartJob
from remote.protocol.specs import MappingCopySpec
from tests.faults.linked import PATIENCE_S, QUICK, Ground, ground_before
from tests.jobs.test_supervised_jobs import SLEEP

GOLDEN = Path(__file__).parents[1] / "golden/kimi-k2.5-vocabulary"
TALKER = """
import os, pathlib, time
number = 0
while not pathlib.Path("enough").exists():
    os.write(1, b"line %d \\xff\\xfe\\n" % number)
    number += 1
    time.sleep(0.005)
"""


@pytest.fixture
async def ground(embedded: HostConfig) -> AsyncIterator[Ground]:
    async with ground_before(embedded) as made:
        yield made


def log_of(ground: Ground, job_id: str) -> bytes:
    return (ground.workshop.store.directory(job_id) / "out.log").read_bytes()


async def finish_talker(ground: Ground, job_id: str = "talker") -> bytes:
    (ground.workshop.store.directory(job_id) / "enough").touch()
    await asyncio.to_thread(ground.workshop.until, job_id, lambda job: isinstance(job.state, Finished))
    return log_of(ground, job_id)


FAULTS = {
    "reset": (lambda network: network.reset(), "reset on its way"),
    "end of stream": (lambda network: network.close(), "the other side closed the connection"),
    "bit flip": (lambda network: network.flip_a_bit(), "damaged"),
    "black hole": (lambda network: network.hold("up", "down"), "no word from the host"),
    "black hole from the host": (lambda network: network.hold("down"), "no word from the host"),
}


@pytest.mark.parametrize("fault", FAULTS)
async def test_skypilot_6787_a_lost_link_is_no_lost_job(ground: Ground, fault: str) -> None:
    ground.workshop.start("talker", TALKER)
    await asyncio.to_thread(ground.workshop.until, "talker", lambda job: isinstance(job.state, Running))
    strike, words = FAULTS[fault]
    async with ground.console("talker") as console:
        await console.until(lambda: len(console.log) > 200)
        strike(ground.network)
        await console.until(lambda: bool(console.losses))
        assert words in console.losses[0].reason
        ground.network.reset()
        ground.network.let_go()
        await console.until(console.is_up)
        reached = len(console.log)
        await console.until(lambda: len(console.log) > reached + 200)
        await console.until_log(await finish_talker(ground))
        seen = [job.state for job in console.jobs if job.job_id == "talker"]  # a recorder may begin beside it
        assert seen
        assert all(isinstance(state, Running | Finished) for state in seen), seen


async def test_silence_that_meets_a_ping_on_its_way_is_told_as_silence(ground: Ground) -> None:
    ratios_of_the_defaults = msgspec.structs.replace(QUICK, silence_s=2.0, sleep_s=1.25, ping_interval_s=0.2)
    async with ground.console(timings=ratios_of_the_defaults) as console:
        ground.network.hold("up", "down")
        await console.until(lambda: bool(console.losses))
        assert "no word from the host" in console.losses[0].reason


async def test_a_killed_link_process_is_named_and_replaced(ground: Ground) -> None:
    ground.workshop.start("talker", TALKER)
    async with ground.console("talker") as console:
        await console.until(lambda: len(console.log) > 200)
        for pid in ground.link_processes():
            os.kill(pid, signal.SIGKILL)
        await console.until(lambda: bool(console.losses))
        assert "was killed (SIGKILL)" in console.losses[0].reason
        await console.until(console.is_up)
        await console.until_log(await finish_talker(ground))


async def test_asyncssh_321_a_reader_on_a_dead_link_is_woken(ground: Ground) -> None:
    async with ground.console() as console:
        ground.network.hold("up", "down")
        with pytest.raises(ConsoleError):
            await console.link.call(Ping(), timeout_s=1.0)
        await console.until(lambda: bool(console.losses))


async def test_a_short_outage_costs_nothing(ground: Ground) -> None:
    ground.workshop.start("talker", TALKER)
    async with ground.console("talker") as console:
        await console.until(lambda: len(console.log) > 200)
        ground.network.hold("up", "down")
        await asyncio.to_thread(ground.workshop.until, "talker", lambda job: job.log_size > len(console.log) + 2000)
        ground.network.let_go()
        await console.until_log(await finish_talker(ground))
        assert console.losses == []


async def test_a_slow_thin_line_delivers_everything_but_old_readings(ground: Ground) -> None:
    ground.network.latency_s, ground.network.slice_bytes = 0.05, 700
    async with ground.console("talker") as console:
        ground.network.bytes_per_s = 150_000
        ground.workshop.start("talker", "import os\nos.write(1, b'x' * 199 + b'\\n')\n" * 1000)
        await asyncio.to_thread(ground.workshop.until, "talker", lambda job: isinstance(job.state, Finished))
        await console.link.call(Ping())
        await console.until_log(log_of(ground, "talker"))
        ground.network.bytes_per_s = None
        readings = console.readings
        await console.until(lambda: console.readings > readings)


async def test_a_lost_reply_is_asked_for_again_and_takes_effect_once(ground: Ground, tmp_path: Path) -> None:
    async with ground.console() as console:
        ground.network.hold("down")
        spec = MappingCopySpec(source=str(GOLDEN), destination=str(tmp_path / "mapping"))
        request = StartJob(job_id="once", spec=spec, op_id=new_op_id())
        asking = asyncio.create_task(console.link.call(request, timeout_s=PATIENCE_S))
        started = ground.workshop.store.directory("once") / "started.json"
        await asyncio.to_thread(ground.workshop.wait_for, started.exists)
        born = started.read_bytes()
        ground.network.reset()
        ground.network.let_go()
        reply = await asking
        assert isinstance(reply, JobReply)
        assert reply.job.job_id == "once"
        assert started.read_bytes() == born
        done = await asyncio.to_thread(ground.workshop.until, "once", lambda job: isinstance(job.state, Finished))
        assert done.state.outcome == "succeeded"


HOSTILE = """
import os
os.write(1, b"\\xff\\xfe\\x80 no UTF-8\\n")
os.write(1, b"m" * 3_000_000 + b"\\n")
os.write(1, b"\\x1b]52;c;aGk=\\x07\\x1b[2J\\x9b31m" * 20_000 + b"\\nend\\n")
"""


async def test_hostile_bytes_leave_the_link_alive(ground: Ground) -> None:
    async with ground.console("hostile") as console:
        ground.workshop.start("hostile", HOSTILE)
        await asyncio.to_thread(ground.workshop.until, "hostile", lambda job: isinstance(job.state, Finished))
        await console.link.call(Ping())
        await console.until_log(log_of(ground, "hostile"))
        readings = console.readings
        await console.until(lambda: console.readings > readings)
        assert console.losses == []


async def test_a_log_whose_head_was_cut_is_told_once_and_goes_on(ground: Ground) -> None:
    ground.workshop.start("talker", TALKER)
    directory = ground.workshop.store.directory("talker")
    await asyncio.to_thread(ground.workshop.until, "talker", lambda job: job.log_size > 4000)
    (directory / "log_start").write_text("2000")
    async with ground.console("talker") as console:
        whole = await finish_talker(ground)
        await console.until(lambda: len(console.log) >= len(whole) - 2000)
        assert console.truncations == [2000]
        assert console.log == whole[2000:]


async def test_a_log_that_was_emptied_is_told_and_read_from_its_new_beginning(ground: Ground) -> None:
    ground.workshop.start("talker", TALKER)
    log = ground.workshop.store.directory("talker") / "out.log"
    async with ground.console("talker") as console:
        await console.until(lambda: len(console.log) > 4000)
        log.open("r+b").truncate(0)
        await console.until(lambda: bool(console.truncations))
        await console.until_log(await finish_talker(ground))


async def test_dstack_4285_the_log_is_read_to_its_last_byte(ground: Ground) -> None:
    program = "import os\nfor n in range(3000):\n    os.write(1, b'%d ' % n + b'y' * 300 + b'\\n')\nos.write(1, b'last words')"
    async with ground.console("talker") as console:
        ground.workshop.start("talker", program)
        await asyncio.to_thread(ground.workshop.until, "talker", lambda job: isinstance(job.state, Finished))
        await console.until_log(log_of(ground, "talker"))
        assert console.log.endswith(b"last words")


@pytest.mark.parametrize("cuts", [6, pytest.param(30, marks=pytest.mark.slow)])
async def test_skypilot_8945_cuts_at_random_lose_nothing_and_leave_nothing(ground: Ground, cuts: int) -> None:
    luck = random.Random(cuts)
    ground.workshop.start("talker", TALKER)
    async with ground.console("talker") as console:
        for _ in range(cuts):
            reached = len(console.log) + luck.randrange(100, 2000)
            await console.until(lambda reached=reached: len(console.log) > reached)
            luck.choice([ground.network.reset, ground.network.close])()
        await console.until_log(await finish_talker(ground))
        assert len(console.losses) >= cuts // 2
    await asyncio.to_thread(ground.workshop.wait_for, lambda: ground.link_processes() == [])


async def test_a_wake_from_sleep_asks_the_host_and_reconnects_when_it_is_silent(ground: Ground) -> None:
    slept_s = 0.0
    async with ground.console(wall_clock=lambda: time.time() + slept_s) as console:
        slept_s = 3600.0
        await console.link.call(Ping())
        await asyncio.sleep(0.5)
        assert console.losses == [], "a host that answers is not left because a clock was set"
        ground.network.hold("up", "down")
        slept_s = 7200.0
        await console.until(lambda: bool(console.losses))
        assert "slept" in console.losses[0].reason
        ground.network.reset()
        ground.network.let_go()
        await console.until(console.is_up)


async def test_a_console_that_does_not_listen_for_a_while_misses_no_state_and_no_byte(ground: Ground) -> None:
    program = "import os\nfor n in range(20000):\n    os.write(1, b'%d ' % n + b'z' * 200 + b'\\n')"
    async with ground.console("talker", listening=False) as console:
        ground.workshop.start("talker", program)
        await asyncio.to_thread(ground.workshop.until, "talker", lambda job: isinstance(job.state, Finished))
        reply = await console.link.call(GetJob(job_id="talker"))
        assert isinstance(reply, JobReply)
        console.start()
        await console.until_log(log_of(ground, "talker"))
        await console.until(lambda: any(isinstance(job.state, Finished) for job in console.jobs))
        assert console.losses == []


@pytest.mark.slow
async def test_a_log_larger_than_what_may_wait_blocks_no_call_and_costs_no_link(ground: Ground) -> None:
    program = f"import os\nfor n in range({2 * CAPACITY_BYTES >> 20}):\n    os.write(1, (b'%d ' % n + b'z' * 1000 + b'\\n') * 1040)"
    async with ground.console("talker", listening=False) as console:
        ground.workshop.start("talker", program)
        await asyncio.to_thread(ground.workshop.until, "talker", lambda job: isinstance(job.state, Finished))
        async with asyncio.timeout(PATIENCE_S):
            while not console.link._inbox.is_full():
                await asyncio.sleep(0.05)
        await asyncio.sleep(2 * QUICK.silence_s)
        assert console.link._inbox._log_bytes < CAPACITY_BYTES + (1 << 20), "what waits grows without bound"
        await console.link.call(GetJob(job_id="talker"))
        console.start()
        await console.until_log(log_of(ground, "talker"))
        assert console.losses == []


async def test_a_running_job_does_not_notice_that_every_console_is_gone(ground: Ground) -> None:
    ground.workshop.start("sleeper", SLEEP)
    async with ground.console():
        ground.network.reset()
    assert isinstance(ground.workshop.store.get("sleeper").state, Running)
