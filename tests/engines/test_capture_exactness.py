"""What each engine captures is what transformers computes, for every layer, however the prompts are cut, mixed and alike.

Tiny models with random weights in float32. The final state is held against the model's logits, too: it is the one that the head reads.
"""

import random
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

import httpx
import pytest
import torch
from safetensors.torch import load_file

from remote.agents.extraction.dialects import DIALECTS
from remote.protocol.run import EngineConfig, EngineName, FlagValue
from remote.protocol.specs import Capture, ServerSpec

from .conftest import Serve, reference_states

pytestmark = [pytest.mark.engine, pytest.mark.slow]

CHUNK = 48
CLOSE = {"rtol": 1e-4, "atol": 1e-4}
States = dict[str, torch.Tensor]


class Case(NamedTuple):
    """An engine on a model, with every layer id that it can capture of it."""

    engine: EngineName
    model: str
    layer_ids: list[int]
    flags: dict[str, FlagValue]
    backend: str | None = None
    ranks: int = 1


SGLANG = {"chunked-prefill-size": CHUNK}
VLLM = {"max-num-batched-tokens": CHUNK}
CASES = [
    Case("sglang", "tiny-llama", [1, 2, 3], SGLANG, "torch_native"),
    # Its first id may not be 1 for this architecture: SGLang would shift them all.
    Case("sglang", "tiny-dsv3", [2, 3, 4, 5], SGLANG, "intel_amx"),
    Case("sglang", "tiny-llama", [1, 2, 3], SGLANG, "torch_native", ranks=2),
    Case("vllm", "tiny-llama", [1, 2, 3], VLLM),
    # Of its own accord it takes tiles for latent attention where the processor has them, which know no float32. On a CPU it does not
    # cut prefills of latent attention, and a prompt longer than a batch would wait for ever.
    Case("vllm", "tiny-dsv3", [1, 2, 3, 4, 5], {"max-num-batched-tokens": 512}, "CPU_MLA"),
]


def spec_of(case: Case, model: Path, spool: Path, vllm_python: Path) -> ServerSpec:
    engine = EngineConfig(
        name=case.engine,
        python=str(vllm_python) if case.engine == "vllm" else None,
        device="cpu",
        dtype="float32",
        attention_backend=case.backend,
        tensor_parallel_size=case.ranks,
        max_running_requests=8,
        context_length=512,
        flags=case.flags,
        environment={"SGLANG_CPU_OMP_THREADS_BIND": "|".join(map(str, range(case.ranks)))} if case.ranks > 1 else {},
    )
    return ServerSpec(
        model=str(model), engine=engine, capture=Capture(layer_ids=case.layer_ids, spool_directory=str(spool))
    )


def prompts() -> list[list[int]]:
    """Shorter than, equal to and longer than a chunk; some that begin alike, one that begins another, one twice."""
    chosen = random.Random(7)
    made = [[chosen.randrange(3, 512) for _ in range(length)] for length in (5, 130, 17, 48, 96, 61, 1, 33)]
    shared = [chosen.randrange(3, 512) for _ in range(70)]
    alike = [shared + [chosen.randrange(3, 512) for _ in range(length)] for length in (3, 20, 50)]
    return [*made, *alike, shared, list(alike[1])]


def capture(case: Case, url: str, spool: Path, asked: list[list[int]], *, at_once: int, name: str) -> list[States]:
    dialect = DIALECTS[case.engine]
    rids = [f"roost-{name}-{index}" for index in range(len(asked))]

    def ask(rid: str, ids: list[int]) -> int:
        answer = httpx.post(f"{url}{dialect.path}", json=dialect.body(rid, ids), timeout=120).raise_for_status()
        return dialect.cached_tokens(answer.json())

    with ThreadPoolExecutor(at_once) as senders:
        assert list(senders.map(ask, rids, asked)) == [0] * len(asked)
    files = [spool / f"{rid}.safetensors" for rid in rids]
    deadline = time.monotonic() + 60
    while not all(file.exists() for file in files):
        assert time.monotonic() < deadline, sorted(path.name for path in spool.iterdir())
        time.sleep(0.05)
    states = [load_file(file) for file in files]
    for file in files:
        file.unlink()
    return states


def assert_as_transformers(
    states: list[States], asked: list[list[int]], case: Case, expected: States, head: torch.Tensor
) -> None:
    for index, state in enumerate(states):
        hidden, final = expected[f"hidden.{index}"], state["final_hidden_states"]
        assert state["input_ids"].tolist() == asked[index]
        assert state["hidden_states"].shape[1] == len(case.layer_ids)
        for column, layer in enumerate(case.layer_ids):
            torch.testing.assert_close(state["hidden_states"][:, column], hidden[layer], **CLOSE)
        torch.testing.assert_close(final, hidden[-1], **CLOSE)
        torch.testing.assert_close(final @ head.T, expected[f"logits.{index}"], **CLOSE)


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.engine}-{case.model}")
def test_captured_rows_are_what_transformers_computes(
    case: Case,
    serve: Serve,
    serve_elsewhere: Serve,
    tiny_models: Path,
    engine_python: Path,
    request: pytest.FixtureRequest,
    tmp_path: Path,
) -> None:
    spool, model, asked = tmp_path / "spool", tiny_models / case.model, prompts()
    vllm_python = request.getfixturevalue("vllm_python") if case.engine == "vllm" else engine_python
    server = (serve_elsewhere if case.engine == "vllm" else serve)(spec_of(case, model, spool, vllm_python))
    expected = load_file(reference_states(engine_python, model, asked, tmp_path / "reference.safetensors"))
    head = load_file(model / "model.safetensors")["lm_head.weight"].float()

    url = server.wait_until_ready().url
    together = capture(case, url, spool, asked, at_once=8, name="together")
    assert_as_transformers(together, asked, case, expected, head)
    alone = capture(case, url, spool, asked[-5:], at_once=1, name="alone")
    again = {f"{kind}.{i}": expected[f"{kind}.{len(asked) - 5 + i}"] for kind in ("hidden", "logits") for i in range(5)}
    assert_as_transformers(alone, asked[-5:], case, again, head)

    # What is not ours leaves nothing.
    httpx.post(f"{url}/v1/completions", json={"model": str(model), "prompt": asked[0], "max_tokens": 1}, timeout=120)
    ranks = range(case.ranks)
    assert {path.name for path in spool.iterdir()} == {
        f"{kind}-rank{rank}.json" for kind in ("ready", "waiting") for rank in ranks
    }
    server.stop()
