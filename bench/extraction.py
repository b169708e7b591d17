"""What capturing costs beside plain prefill: the embedded engine, the same conversations, the same requests at a time, in turns.

Peer: an SGLang server of the run's own flags without the capture plugin, also without a cache of prefixes. Ours: the capturing
server asked by the same client (capture), and the whole extraction agent, which also renders, checks, hashes and stores (extraction).
The work is what users wait for, so the measure is tokens a second from the first request to the last answer, and for the whole
extraction to the finished store; and, for a machine that others use, the seconds of a core that the server and what asks it take together.
`python bench/extraction.py [SAMPLES] [TURNS]` (defaults 64 and 11); needs `make demo`'s set-up.
"""

import asyncio
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, NamedTuple

import httpx
import msgspec
import psutil

from console.embedded.locations import EmbeddedHome
from remote.agents.extraction.dialects import DIALECTS
from remote.agents.extraction.samples import read_samples
from remote.artifacts.chat_template import ChatTemplate
from remote.artifacts.target_tokens import target_vocab_size
from remote.protocol.jobs import JobResult
from remote.protocol.run import ExtractionConfig
from remote.protocol.specs import Capture, ExtractionSpec

REPOSITORY = Path(__file__).resolve().parents[1]
CONVERSATIONS = "conversations/smollm2_train.jsonl"
CONCURRENCY, MAX_LENGTH = 8, 512
AS_IT_CAPTURES = (
    *("--set", "evaluation.dtype=bfloat16"),
    *("--set", "evaluation.attention_backend=torch_native"),
    *("--set", "engine.flags.disable-radix-cache=true"),
)
"""What makes of the server that a run's evaluation measures the one that captures, without the capture."""


class Taken(NamedTuple):
    """What one turn took: of the clock, and of the cores."""

    seconds: float
    core_seconds: float


async def ask(url: str, prompts: list[list[int]], turn: str) -> float:
    """Seconds for all of them, so many at a time as an extraction sends."""
    dialect, slots = DIALECTS["sglang"], asyncio.Semaphore(CONCURRENCY)
    limits = httpx.Limits(max_connections=CONCURRENCY)
    async with httpx.AsyncClient(base_url=url, timeout=600, limits=limits) as client:

        async def one(number: int, ids: list[int]) -> None:
            async with slots:
                response = await client.post(dialect.path, json=dialect.body(f"roost-{turn}-{number}", ids))
            assert dialect.cached_tokens(response.raise_for_status().json()) == 0

        began = time.monotonic()
        await asyncio.gather(*(one(number, ids) for number, ids in enumerate(prompts)))
        return time.monotonic() - began


def extract(python: Path, spec: ExtractionSpec, scratch: Path) -> float:
    """Seconds of one whole extraction by the agent, without what its Python takes to start."""
    (scratch / "spec.json").write_bytes(msgspec.json.encode(spec))
    environment = {
        **os.environ,
        "ROOST_JOB_DIR": str(scratch),
        "ROOST_ROOT": str(scratch.parent),
        "PYTHONPATH": str(REPOSITORY),
    }
    command = [python, "-m", "remote.agents.extraction.worker"]
    subprocess.run(command, env=environment, check=True, stdout=subprocess.DEVNULL)
    result = msgspec.json.decode((scratch / "result.json").read_bytes(), type=JobResult)
    seconds = result.summary["seconds"]
    assert isinstance(seconds, float)
    return seconds


def core_seconds(url: str) -> float:
    """What the server at `url` and all that ran for the bench have taken of the cores so far."""
    port = str(httpx.URL(url).port)
    engines = [one for one in psutil.process_iter(["cmdline"]) if one.info["cmdline"] and port in one.info["cmdline"]]
    family = {one for engine in engines for one in (engine, *engine.children(recursive=True))}
    own = os.times()
    return sum(sum(one.cpu_times()[:2]) for one in family) + sum(own[:4])


def empty_spool(spool: Path, count: int) -> None:
    """Wait for the last file and remove all, as the agent does with each when it is stored."""
    while len(files := list(spool.glob("roost-*.safetensors"))) < count:
        time.sleep(0.05)
    for path in files:
        path.unlink()


def roost(*arguments: str) -> dict[str, Any]:
    """A verb's JSON document."""
    command = [sys.executable, "-m", "console.cli", *arguments, "--json"]
    return json.loads(subprocess.run(command, cwd=REPOSITORY, stdout=subprocess.PIPE, check=True).stdout)


def served(*arguments: str) -> dict[str, Any]:
    """A server of the embedded run, ready."""
    return roost("server", "start", "embedded", *arguments, "--wait")["server"]


def main() -> None:
    """Serve twice, ask in turns, print the rates and their ratios."""
    count, turns = (int(argument) for argument in [*sys.argv[1:], *("64", "11")[len(sys.argv) - 1 :]])
    home = EmbeddedHome.default()
    servers = [served(*AS_IT_CAPTURES), served("--capture")]
    try:
        plain, capturing = (server["ready"]["url"] for server in servers)
        capture = msgspec.convert(servers[1]["plan"]["spec"]["capture"], Capture)
        model, conversations = Path(servers[1]["plan"]["spec"]["model"]), home.root / CONVERSATIONS
        samples = read_samples(
            conversations,
            ChatTemplate(model),
            vocab_size=target_vocab_size(model),
            max_samples=count,
            max_length=MAX_LENGTH,
        )
        prompts = [item.input_ids.tolist() for item in samples.plan]
        asyncio.run(ask(plain, prompts[:CONCURRENCY], "warm"))
        asyncio.run(ask(capturing, prompts[:CONCURRENCY], "warm"))
        empty_spool(Path(capture.spool_directory), CONCURRENCY)
        arms = {"plain prefill": plain, "capture": capturing, "extraction": capturing}
        taken: dict[str, list[Taken]] = {arm: [] for arm in arms}
        for turn in range(turns):
            for arm, url in arms.items():
                before = core_seconds(url)
                if arm == "extraction":
                    with tempfile.TemporaryDirectory(dir=home.root) as scratch:
                        spec = ExtractionSpec(
                            url=capturing,
                            capture=capture,
                            target_model=str(model),
                            conversations=str(conversations),
                            store=str(Path(scratch) / "store"),
                            extraction=ExtractionConfig(layer_ids=capture.layer_ids, concurrency=CONCURRENCY),
                            max_length=MAX_LENGTH,
                            max_samples=count,
                            fingerprint="-",
                        )
                        seconds = extract(home.engine / "bin/python", spec, Path(scratch))
                else:
                    seconds = asyncio.run(ask(url, prompts, f"{turn}"))
                    if arm == "capture":
                        empty_spool(Path(capture.spool_directory), len(prompts))
                taken[arm].append(Taken(seconds, core_seconds(url) - before))
        report(len(prompts), samples.tokens, taken)
    finally:
        for server in servers:
            roost("stop", server["job"]["job_id"], "--confirm", server["job"]["job_id"])


def report(samples: int, tokens: int, taken: dict[str, list[Taken]]) -> None:
    """The median of each, and of the turns' ratios to plain prefill with the lower and the upper quartile."""
    print(f"{samples} samples, {tokens:,} tokens, {CONCURRENCY} at a time; median of {len(taken['capture'])} turns")
    for arm, each in taken.items():
        shown = [f"{arm:14}{tokens / statistics.median(one.seconds for one in each):8.0f} tokens/s"]
        for name in Taken._fields:
            pairs = zip(each, taken["plain prefill"], strict=True)
            low, middle, high = statistics.quantiles([getattr(a, name) / getattr(b, name) for a, b in pairs], n=4)
            shown.append(f"{name.replace('_', ' ')} {middle:.3f}x ({low:.3f} to {high:.3f})")
        print("   ".join(shown))


if __name__ == "__main__":
    main()
