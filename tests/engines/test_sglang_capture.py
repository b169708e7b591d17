"""The capture plugin without the engine: from the rows of passes to whole files in the spool.

The engine's objects are plain records with the fields that SGLang 0.5.23 gives them; `test_real_engine.py` has the real ones.
"""

import json
import random
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import roost_capture_spool
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from roost_capture_spool import Setting, owner
from safetensors.torch import load_file

from remote.engines.sglang_capture import roost_sglang_capture
from remote.engines.sglang_capture.roost_sglang_capture import hook as capture_hook
from remote.engines.sglang_capture.roost_sglang_capture.hook import CaptureHook

LAYERS, WIDTH = [2, 5], 4
PREFILL = SimpleNamespace(is_extend=lambda: True)
DECODE = SimpleNamespace(is_extend=lambda: False)
TARGET, DRAFTER = SimpleNamespace(is_draft_worker=False), SimpleNamespace(is_draft_worker=True)

Piece = tuple[str, list[int], int, int]
"""A request's part of a pass: its id, its whole prompt, and the positions [start, end) that this pass computes."""


@pytest.fixture(autouse=True)
def sglang(monkeypatch: pytest.MonkeyPatch) -> None:
    version = ModuleType("sglang.version")
    version.__dict__["__version__"] = "0.5.23"
    monkeypatch.setitem(sys.modules, "sglang", ModuleType("sglang"))
    monkeypatch.setitem(sys.modules, "sglang.version", version)


def hook_for(spool: Path, memory_bytes: int = 1 << 20) -> CaptureHook:
    return CaptureHook(Setting(spool, LAYERS, memory_bytes))


def states_of(prompt: list[int]) -> tuple[torch.Tensor, torch.Tensor]:
    """Made-up states that depend on token, position and layer: [T, L, H] and [T, H]."""
    base = torch.tensor(prompt).float() * 1000 + torch.arange(len(prompt))
    hidden = torch.stack([(base + layer / 10).unsqueeze(1).expand(-1, WIDTH) for layer in LAYERS], 1)
    return hidden, base.unsqueeze(1).expand(-1, WIDTH) + 0.5


def run_pass(hook: CaptureHook, pieces: list[Piece], *, runner: Any = TARGET, mode: Any = PREFILL) -> None:
    batch = SimpleNamespace(
        forward_mode=mode,
        rids=[rid for rid, *_ in pieces],
        extend_seq_lens_cpu=[end - start for *_, start, end in pieces],
        extend_prefix_lens_cpu=[start for _, _, start, _ in pieces],
        input_ids=torch.tensor([token for _, prompt, start, end in pieces for token in prompt[start:end]]),
    )
    requests = [SimpleNamespace(origin_input_ids=prompt) for _, prompt, *_ in pieces]
    hook.note_prompts(batch, SimpleNamespace, SimpleNamespace(reqs=requests))
    parts = [(hidden[s:e], final[s:e]) for _, p, s, e in pieces for hidden, final in [states_of(p)]]
    hidden = torch.cat([part[0] for part in parts]).reshape(-1, len(LAYERS) * WIDTH)
    final = torch.cat([part[1] for part in parts])
    output = SimpleNamespace(hidden_states=hidden, last_hidden_states=final)
    hook.take(SimpleNamespace(logits_output=output), runner, batch)
    # The engine uses the same buffers for the next pass.
    hidden.fill_(float("nan"))
    final.fill_(float("nan"))


def wait_for(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < deadline, "this should have happened by now"
        time.sleep(0.005)


def assert_captured(spool: Path, rid: str, prompt: list[int]) -> None:
    path = spool / f"{rid}.safetensors"
    wait_for(path.exists)
    states = load_file(path)
    hidden, final = states_of(prompt)
    assert states["input_ids"].tolist() == prompt
    assert states["hidden_states"].equal(hidden)
    assert states["final_hidden_states"].equal(final)


def names(spool: Path) -> set[str]:
    return {path.name for path in spool.iterdir()}


def test_a_request_in_one_pass_becomes_a_file(tmp_path: Path):
    run_pass(hook_for(tmp_path), [("roost-a", [1, 2, 3], 0, 3)])
    assert_captured(tmp_path, "roost-a", [1, 2, 3])
    assert names(tmp_path) == {"ready-rank0.json", "roost-a.safetensors", "waiting-rank0.json"}
    marker = json.loads((tmp_path / "ready-rank0.json").read_bytes())
    assert (marker["engine_version"], marker["layer_ids"]) == ("0.5.23", LAYERS)


def test_the_warm_up_announces_the_capture_and_leaves_nothing_else(tmp_path: Path):
    run_pass(hook_for(tmp_path), [("HEALTH_CHECK_1", [0], 0, 1)])
    assert names(tmp_path) == {"ready-rank0.json", "waiting-rank0.json"}


PROMPTS = st.lists(st.lists(st.integers(0, 9), min_size=1, max_size=12), min_size=1, max_size=4)


@given(prompts=PROMPTS, chance=st.randoms())
@settings(max_examples=50, deadline=None)
def test_chunks_are_joined_however_the_scheduler_cuts_and_mixes_them(
    tmp_path_factory: pytest.TempPathFactory, prompts: list[list[int]], chance: random.Random
):
    spool = tmp_path_factory.mktemp("spool")
    hook = hook_for(spool)
    done = [0] * len(prompts)
    while unfinished := [row for row, prompt in enumerate(prompts) if done[row] < len(prompt)]:
        pieces: list[Piece] = [("user-traffic", [7, 7], 0, 2)] * chance.randint(0, 1)
        for row in chance.sample(unfinished, chance.randint(1, len(unfinished))):
            end = chance.randint(done[row] + 1, len(prompts[row]))
            pieces.append((f"roost-{row}", prompts[row], done[row], end))
            done[row] = end
        chance.shuffle(pieces)
        run_pass(hook, pieces)
    for row, prompt in enumerate(prompts):
        assert_captured(spool, f"roost-{row}", prompt)
    assert not [name for name in names(spool) if "user" in name or name.startswith("error")]


def test_a_request_that_the_scheduler_takes_back_begins_again(tmp_path: Path):
    hook = hook_for(tmp_path)
    run_pass(hook, [("roost-a", [1, 2, 3, 4], 0, 2)])
    run_pass(hook, [("roost-a", [1, 2, 3, 4], 0, 3)])
    run_pass(hook, [("roost-a", [1, 2, 3, 4], 3, 4)])
    assert_captured(tmp_path, "roost-a", [1, 2, 3, 4])


def test_the_drafter_and_decoding_are_not_captured(tmp_path: Path):
    hook = hook_for(tmp_path)
    run_pass(hook, [("roost-a", [1], 0, 1)], runner=DRAFTER)
    run_pass(hook, [("roost-a", [1], 0, 1)], mode=DECODE)
    assert names(tmp_path) == set()


def test_rows_that_are_missing_are_an_error_and_no_file(tmp_path: Path):
    hook = hook_for(tmp_path)
    # The first token came from the prefix cache.
    run_pass(hook, [("roost-a", [1, 2, 3], 1, 3)])
    assert "rows from position 1" in json.loads((tmp_path / "error-rank0.json").read_bytes())["error"]
    assert not list(tmp_path.glob("*.safetensors"))


def test_an_engine_that_captures_nothing_is_an_error(tmp_path: Path):
    hook = hook_for(tmp_path)
    batch = SimpleNamespace(forward_mode=PREFILL, rids=["roost-a"])
    nothing = SimpleNamespace(hidden_states=None, last_hidden_states=None)
    hook.take(SimpleNamespace(logits_output=nothing), TARGET, batch)
    assert "no hidden states" in json.loads((tmp_path / "error-rank0.json").read_bytes())["error"]
    assert "ready-rank0.json" not in names(tmp_path)


def test_a_disk_that_refuses_is_told_and_the_engine_goes_on(tmp_path: Path):
    hook = hook_for(tmp_path)
    (tmp_path / "roost-a.part").mkdir()
    run_pass(hook, [("roost-a", [1, 2], 0, 2)])
    wait_for((tmp_path / "error-rank0.json").exists)
    run_pass(hook, [("roost-b", [3], 0, 1)])
    assert_captured(tmp_path, "roost-b", [3])


class SlowDisk:
    """Writes nothing until it is told to go on."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.go_on = threading.Event()
        write = roost_capture_spool.save_pieces

        def wait_and_write(*arguments: Any) -> None:
            self.go_on.wait(20)
            write(*arguments)

        monkeypatch.setattr(roost_capture_spool, "save_pieces", wait_and_write)


ROW_BYTES = (len(LAYERS) + 1) * WIDTH * 4


def test_no_more_is_held_than_is_allowed_and_the_engine_waits_for_the_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    disk, prompts = SlowDisk(monkeypatch), [[number, 1, 2, 3] for number in range(12)]
    bound = 4 * 4 * ROW_BYTES
    hook, begun = hook_for(tmp_path, memory_bytes=bound), []

    def engine() -> None:
        for number, prompt in enumerate(prompts):
            begun.append(number)
            run_pass(hook, [(f"roost-{number}", prompt, 0, 4)])

    passes = threading.Thread(target=engine)
    passes.start()
    wait_for(lambda: len(begun) == 5 and hook._writer is not None and hook._writer.held_bytes == bound)
    assert passes.is_alive()
    disk.go_on.set()
    passes.join(20)
    for number, prompt in enumerate(prompts):
        assert_captured(tmp_path, f"roost-{number}", prompt)
    wait_for(lambda: hook._writer is not None and hook._writer.held_bytes == 0)


def test_a_request_larger_than_the_bound_is_captured_alone(tmp_path: Path):
    hook, prompt = hook_for(tmp_path, memory_bytes=ROW_BYTES), list(range(1, 10))
    run_pass(hook, [("roost-a", prompt, 0, 5)])
    run_pass(hook, [("roost-a", prompt, 5, 9)])
    assert_captured(tmp_path, "roost-a", prompt)


def test_requests_that_were_cancelled_half_way_are_given_up_when_others_need_the_memory(tmp_path: Path):
    hook = hook_for(tmp_path, memory_bytes=4 * ROW_BYTES)
    for number in range(5):
        run_pass(hook, [(f"roost-cancelled-{number}", [1, 2, 3, 4], 0, 3)])
        run_pass(hook, [(f"roost-{number}", [5, 6, number], 0, 3)])
        assert_captured(tmp_path, f"roost-{number}", [5, 6, number])
    assert not list(tmp_path.glob("error*"))
    run_pass(hook, [("roost-cancelled-0", [1, 2, 3, 4], 3, 4)])
    assert "rows from position 3 follow rows up to 0" in (tmp_path / "error-rank0.json").read_text()


def test_ranks_that_hold_the_same_rows_share_the_writing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    count, prompts = 4, [[number, 1] for number in range(32)]
    for rank in range(count):
        monkeypatch.setattr(capture_hook, "ranks", lambda rank=rank: (rank, count))
        hook = hook_for(tmp_path)
        run_pass(hook, [(f"roost-{number}", prompt, 0, 2) for number, prompt in enumerate(prompts)])
        mine = [number for number in range(len(prompts)) if owner(f"roost-{number}", count) == rank]
        assert 0 < len(mine) < len(prompts)
        for number in mine:
            assert_captured(tmp_path, f"roost-{number}", prompts[number])
            (tmp_path / f"roost-{number}.safetensors").unlink()
    assert names(tmp_path) == {f"{kind}-rank{rank}.json" for kind in ("ready", "waiting") for rank in range(count)}


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32])
def test_pieces_become_the_file_that_safetensors_would_have_written(tmp_path: Path, dtype: torch.dtype):
    pieces = [torch.randn(count, 3, 5).to(dtype) for count in (2, 1, 4)]
    ids = [torch.arange(count) for count in (2, 1, 4)]
    roost_capture_spool.save_pieces({"states": pieces, "ids": ids}, tmp_path / "file", {"made_by": "a test"})
    read = load_file(tmp_path / "file")
    assert read["states"].equal(torch.cat(pieces))
    assert read["ids"].equal(torch.cat(ids))


def test_without_a_spool_the_plugin_does_nothing(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv("ROOST_CAPTURE_SPOOL", raising=False)
    roost_sglang_capture.register()  # it would import SGLang, which is not installed here
