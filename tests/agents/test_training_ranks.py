"""Several ranks on one machine: they learn what one would, and none is left when another ends."""

import signal
import socket
from pathlib import Path

import psutil
import pytest
import torch
from safetensors.torch import load_file

from remote.agents.training.ranks import Ranks, interface_towards
from remote.errors import Precondition
from remote.protocol.progress import CheckpointSaved, DrafterMeasured, StepLogged
from remote.protocol.run import HostsConfig

from .test_training_worker import Inputs, Run, wait_for_checkpoint


@pytest.fixture
def inputs(tmp_path: Path) -> Inputs:
    return Inputs(tmp_path)


def companions(run: Run) -> list[psutil.Process]:
    """The other ranks of a training that has saved a checkpoint."""
    wait_for_checkpoint(run)
    return psutil.Process(run.process.pid).children()


def assert_equal_drafters(directory: Path, one: str, other: str, atol: float = 1e-4) -> None:
    weights = [load_file(directory / name / "drafter" / "model.safetensors") for name in (one, other)]
    for name, tensor in weights[0].items():
        torch.testing.assert_close(weights[1][name], tensor, rtol=1e-3, atol=atol)


def steps(run: Run) -> list[StepLogged]:
    return [event for event in run.events() if isinstance(event, StepLogged)]


def test_three_ranks_learn_what_one_does(inputs: Inputs, tmp_path: Path) -> None:
    shared = {"steps": 20, "batch_tokens": 96, "batches_per_step": 4}
    alone = Run(tmp_path / "alone", inputs.spec(output="one", **shared))
    assert alone.wait() == 0, alone.text()
    # Two of them take one batch of a step, the first takes two.
    together = Run(tmp_path / "together", inputs.spec(output="three", ranks=3, **shared))
    assert together.wait() == 0, together.text()
    assert_equal_drafters(tmp_path, "one", "three")
    assert alone.result().summary["tokens"] == together.result().summary["tokens"]
    for mine, theirs in zip(steps(alone), steps(together), strict=True):
        assert mine.loss == pytest.approx(theirs.loss, rel=1e-4)
        assert mine.accuracy == pytest.approx(theirs.accuracy, abs=1e-3)
        assert mine.gradient_norm == pytest.approx(theirs.gradient_norm, rel=1e-3)


def test_a_stopped_training_goes_on_with_another_number_of_ranks(inputs: Inputs, tmp_path: Path) -> None:
    shared = {"steps": 40, "batch_tokens": 96, "batches_per_step": 2, "checkpoint_every": 1}
    whole = Run(tmp_path / "whole", inputs.spec(output="whole", **shared))
    assert whole.wait() == 0, whole.text()
    first = Run(tmp_path / "first", inputs.spec(output="broken", ranks=2, **shared))
    others = companions(first)
    assert len(others) == 1
    first.process.send_signal(signal.SIGTERM)
    assert first.wait() == 143, first.text()
    assert not psutil.wait_procs(others, timeout=30)[1]
    stopped_at = max(event.step for event in first.events() if isinstance(event, CheckpointSaved))
    assert 0 < stopped_at < 40
    second = Run(tmp_path / "second", inputs.spec(output="broken", ranks=1, **shared))
    assert second.wait() == 0, second.text()
    assert f"resumed from step {stopped_at}" in second.text()
    assert_equal_drafters(tmp_path, "whole", "broken")


@pytest.mark.parametrize("optimizer", ["adamw", "muon"])
def test_ranks_that_share_weights_and_moments_learn_what_one_does(
    inputs: Inputs, tmp_path: Path, optimizer: str
) -> None:
    # At the rate of the others rounding grows within twenty steps to what can be seen.
    shared = {"steps": 20, "batch_tokens": 96, "batches_per_step": 3, "checkpoint_every": 5, "learning_rate": 1e-3}
    shared["optimizer"] = optimizer
    alone = Run(tmp_path / "alone", inputs.spec(output="one", **shared))
    assert alone.wait() == 0, alone.text()
    # One batch of a step for the second rank, two for the first: they meet once a step all the same.
    together = Run(tmp_path / "together", inputs.spec(output="two", ranks=2, sharded=True, **shared))
    assert together.wait() == 0, together.text()
    # Muon makes its steps orthogonal in bfloat16, where another order of addition is seen sooner.
    slack = 10 if optimizer == "muon" else 1
    assert_equal_drafters(tmp_path, "one", "two", atol=slack * 1e-4)
    for mine, theirs in zip(steps(alone), steps(together), strict=True):
        assert mine.loss == pytest.approx(theirs.loss, rel=slack * 1e-4)
        assert mine.gradient_norm == pytest.approx(theirs.gradient_norm, rel=slack * 1e-3)
    measured = [
        [event.acceptance_length for event in run.events() if isinstance(event, DrafterMeasured)]
        for run in (alone, together)
    ]
    assert measured[1] == pytest.approx(measured[0], rel=0.02)
    states = [torch.load(tmp_path / name / "checkpoints/step-00000020/state.pt") for name in ("one", "two")]
    moments = {"optimizer": ("exp_avg", "exp_avg_sq"), "muon": ("momentum_buffer",)}
    for part in states[0].keys() & moments:
        assert states[0][part]["state"].keys() == states[1][part]["state"].keys()
        for mine, theirs in zip(*(state[part]["state"].values() for state in states), strict=True):
            for name in moments[part]:
                torch.testing.assert_close(theirs[name], mine[name], rtol=slack * 1e-2, atol=slack * 1e-4)


@pytest.mark.slow
@pytest.mark.parametrize(("ranks", "sharded"), [(1, False), (3, True)])
def test_a_sharded_training_goes_on_with_other_ranks(inputs: Inputs, tmp_path: Path, ranks: int, sharded: bool) -> None:
    shared = {"steps": 40, "batch_tokens": 96, "batches_per_step": 3, "checkpoint_every": 1, "learning_rate": 1e-3}
    whole = Run(tmp_path / "whole", inputs.spec(output="whole", **shared))
    assert whole.wait() == 0, whole.text()
    first = Run(tmp_path / "first", inputs.spec(output="broken", ranks=2, sharded=True, **shared))
    others = companions(first)
    first.process.send_signal(signal.SIGTERM)
    assert first.wait() == 143, first.text()
    assert not psutil.wait_procs(others, timeout=30)[1]
    stopped_at = max(event.step for event in first.events() if isinstance(event, CheckpointSaved))
    assert 0 < stopped_at < 40
    second = Run(tmp_path / "second", inputs.spec(output="broken", ranks=ranks, sharded=sharded, **shared))
    assert second.wait() == 0, second.text()
    assert f"resumed from step {stopped_at}" in second.text()
    assert_equal_drafters(tmp_path, "whole", "broken")


def test_a_killed_rank_ends_the_training_with_its_number(inputs: Inputs, tmp_path: Path) -> None:
    spec = inputs.spec(steps=100_000, batches_per_step=2, ranks=2, checkpoint_every=5)
    run = Run(tmp_path / "job", spec)
    companions(run)[0].kill()
    assert run.wait() == 1, run.text()
    assert "rank 1 of 2 ended (signal 9)" in run.failure()


def test_a_killed_first_rank_leaves_no_other(inputs: Inputs, tmp_path: Path) -> None:
    run = Run(tmp_path / "job", inputs.spec(steps=100_000, batches_per_step=3, ranks=3, checkpoint_every=5))
    others = companions(run)
    run.process.kill()
    run.wait()
    assert len(others) == 2
    assert not psutil.wait_procs(others, timeout=30)[1]


def test_a_loss_that_is_not_finite_names_the_samples_of_all_ranks(inputs: Inputs, tmp_path: Path) -> None:
    broken = {"learning_rate": 1e30, "gradient_clip": 1e30}
    run = Run(tmp_path / "job", inputs.spec(batch_tokens=24, batches_per_step=3, ranks=2, **broken))
    assert run.wait() == 1
    assert "the loss became" in run.failure()
    named = run.failure().split("[")[1].split("]")[0].split(",")
    assert len(named) == 3


def on_two_hosts(inputs: Inputs, directory: Path, **settings) -> list[Run]:
    """The jobs of both, which meet at a loopback port; the first one's is the first."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        endpoint = f"127.0.0.1:{server.getsockname()[1]}"
    hosts = [HostsConfig(count=2, number=number, rendezvous=endpoint) for number in range(2)]
    return [
        Run(directory / f"host-{host.number}", inputs.spec(output="hosts", hosts=host, **settings)) for host in hosts
    ]


@pytest.mark.slow
def test_two_hosts_learn_what_one_does_and_one_goes_on_alone(inputs: Inputs, tmp_path: Path) -> None:
    shared = {"steps": 20, "batch_tokens": 96, "batches_per_step": 3, "checkpoint_every": 5}
    alone = Run(tmp_path / "alone", inputs.spec(output="one", **shared))
    assert alone.wait() == 0, alone.text()
    first, second = on_two_hosts(inputs, tmp_path, **shared)
    assert first.wait() == 0, first.text()
    assert second.wait() == 0, second.text()
    assert_equal_drafters(tmp_path, "one", "hosts")
    assert second.result().outputs == []
    assert second.result().summary == {"steps": 20}


@pytest.mark.slow
@pytest.mark.parametrize("lost", [0, 1])
def test_a_host_that_loses_another_says_so_and_goes_on_from_its_checkpoint(
    inputs: Inputs, tmp_path: Path, lost: int
) -> None:
    shared = {"steps": 40, "batch_tokens": 96, "batches_per_step": 4, "ranks": 2, "checkpoint_every": 1}
    runs = on_two_hosts(inputs, tmp_path, **shared)
    wait_for_checkpoint(runs[0])
    runs[lost].process.kill()
    runs[lost].wait()
    left = runs[1 - lost]
    assert left.wait() == 1, left.text()
    assert "another host" in left.failure() or "ended" in left.failure()
    again = Run(tmp_path / "again", inputs.spec(output="hosts", **shared))
    assert again.wait() == 0, again.text()
    assert "resumed from step" in again.text()


@pytest.mark.slow
def test_a_stop_of_the_first_host_saves_and_ends_the_others(inputs: Inputs, tmp_path: Path) -> None:
    first, second = on_two_hosts(inputs, tmp_path, steps=100_000, batches_per_step=2, checkpoint_every=5)
    wait_for_checkpoint(first)
    first.process.send_signal(signal.SIGTERM)
    assert first.wait() == 143, first.text()
    assert second.wait() == 1, second.text()
    assert "the first host stopped the training at step" in second.failure()


def test_an_endpoint_that_is_not_reached_is_named() -> None:
    assert interface_towards("127.0.0.1:29500") == "lo"
    with pytest.raises(Precondition, match=r"no-such-host.invalid:1, is not reached"):
        interface_towards("no-such-host.invalid:1")


@pytest.mark.parametrize(("count", "batches"), [(1, 1), (1, 5), (2, 2), (3, 7), (4, 8)])
def test_the_ranks_share_every_batch_of_every_step_once(count: int, batches: int) -> None:
    order = list(range(batches * 3))
    ranks = [Ranks(number, count) for number in range(count)]
    own = [list(rank.own(iter(order), batches)) for rank in ranks]
    assert sorted(number for part in own for number in part) == order
    assert [len(part) for part in own] == [rank.share(batches) * 3 for rank in ranks]
    assert all({number // batches for number in part} == {0, 1, 2} for part in own)
