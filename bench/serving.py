"""What a server's benchmark says beside the engine's own client: `roost server bench` and `sglang.benchmark.serving`, in one run.

Both ask the same SGLang server (the embedded host's, the target alone) for the same prompts, greedily, to the end-of-sequence token
or 48 tokens, from an empty prefix cache, in turns so that a neighbour's load meets both. The peer gets the rendered prompts as text: its own
`--apply-chat-template` removes the begin-of-sequence token wherever it stands, which for this model is in every turn. It is the
installed engine's, with `datasets` and what that needs put beside it for the run. `python bench/serving.py [PROMPTS] [TURNS]`
(defaults 12 and 2); needs `make demo`'s set-up.
"""

import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any, NamedTuple

from tokenizers import Tokenizer

from console.embedded.locations import EmbeddedHome
from remote.artifacts.chat_template import ChatTemplate
from remote.artifacts.conversations import choose_prompts, read_prompts

REPOSITORY = Path(__file__).resolve().parents[1]
PROMPTS = "conversations/smollm2_eval.jsonl"
LEVELS = (1, 4)
MAX_TOKENS = 48
PEER_NEEDS = ["datasets", "pyarrow", "pandas", "dill", "multiprocess", "xxhash", "fsspec", "python-dateutil", "pytz"]


class Figures(NamedTuple):
    """Tokens in all, the whole server's rate, one request's rate after its first token, seconds to the first token."""

    tokens: float
    server_tokens_per_s: float
    decode_tokens_per_s: float
    first_token_s: float


def roost(*arguments: str) -> dict[str, Any]:
    """A verb's JSON document."""
    command = [sys.executable, "-m", "console.cli", *arguments, "--json"]
    return json.loads(subprocess.run(command, cwd=REPOSITORY, stdout=subprocess.PIPE, check=True).stdout)


def ours(server: str, prompts: int, concurrency: int) -> Figures:
    """One turn of `roost server bench`."""
    asked = ["--prompts", PROMPTS, "--count", str(prompts), "-c", str(concurrency), "--max-tokens", str(MAX_TOKENS)]
    found = roost("server", "bench", server, *asked, "--repeats", "1", "--warm-up", "1", "--wait")
    (level,) = found["benchmark"]["report"]["levels"]
    return Figures(
        tokens=sum(request["output_tokens"] for request in level["requests"]),
        server_tokens_per_s=level["output_tokens_per_s"]["median"],
        decode_tokens_per_s=level["decode_tokens_per_s"]["median"],
        first_token_s=level["time_to_first_token_s"]["median"],
    )


def peer(engine: Path, packages: Path, url: str, model: Path, dataset: Path, prompts: int, concurrency: int) -> Figures:
    """One turn of the engine's own client."""
    output = packages / f"row-{concurrency}.jsonl"
    output.unlink(missing_ok=True)
    environment = os.environ | {
        "PYTHONPATH": f"{REPOSITORY}/remote/engines/sglang_cpu:{packages}",
        "HF_HUB_OFFLINE": "1",
    }
    command = [engine, "-m", "sglang.benchmark.serving", "--backend", "sglang", "--base-url", url, "--model", model]
    command += ["--dataset-name", "custom", "--dataset-path", dataset, "--num-prompts", str(prompts)]
    command += ["--sharegpt-output-len", str(MAX_TOKENS), "--max-concurrency", str(concurrency), "--temperature", "0"]
    command += ["--disable-ignore-eos", "--flush-cache", "--warmup-requests", "1", "--output-file", output]
    subprocess.run(command, env=environment, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    row = json.loads(output.read_text())
    return Figures(
        tokens=row["total_output_tokens"],
        server_tokens_per_s=row["output_throughput"],
        decode_tokens_per_s=1000 / row["median_tpot_ms"],
        first_token_s=row["median_ttft_ms"] / 1000,
    )


def write_dataset(home: EmbeddedHome, model: Path, count: int, path: Path) -> None:
    """The prompts as they go into the model, in the form of the peer's `custom` data set."""
    template, tokenizer = ChatTemplate(model), Tokenizer.from_file(str(model / "tokenizer.json"))
    prompts = choose_prompts(read_prompts(home.root / PROMPTS), count)
    texts = [tokenizer.decode(template.prompt_ids(prompt.turns), skip_special_tokens=False) for prompt in prompts]
    lines = [{"conversations": [{"content": text}, {"content": "an answer of no account"}]} for text in texts]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))


def main() -> None:
    """Serve, ask in turns, print both and their ratio."""
    prompts, turns = (int(argument) for argument in [*sys.argv[1:], *("12", "2")[len(sys.argv) - 1 :]])
    home = EmbeddedHome.default()
    served = roost("server", "start", "embedded", "--wait")["server"]
    server, model = served["job"]["job_id"], Path(served["plan"]["spec"]["model"])
    try:
        with tempfile.TemporaryDirectory() as scratch:
            packages = Path(scratch)
            install = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target", scratch, *PEER_NEEDS]
            subprocess.run(install, check=True)
            write_dataset(home, model, prompts, packages / "prompts.jsonl")
            for concurrency in LEVELS:
                pairs: list[tuple[Figures, Figures]] = []
                for _ in range(turns):
                    mine = ours(server, prompts, concurrency)
                    theirs = peer(
                        home.engine / "bin/python",
                        packages,
                        served["ready"]["url"],
                        model,
                        packages / "prompts.jsonl",
                        prompts,
                        concurrency,
                    )
                    pairs.append((mine, theirs))
                report(concurrency, pairs)
    finally:
        roost("stop", server, "--confirm", server)


def report(concurrency: int, pairs: list[tuple[Figures, Figures]]) -> None:
    """Medians over the turns, and ours over the peer's."""
    print(f"{concurrency} at a time, {len(pairs)} turns")
    for name in Figures._fields:
        mine, theirs = (statistics.median(getattr(one[side], name) for one in pairs) for side in (0, 1))
        print(f"  {name:<20} roost {mine:8.2f}   sglang.benchmark.serving {theirs:8.2f}   ratio {mine / theirs:.3f}")


if __name__ == "__main__":
    main()
