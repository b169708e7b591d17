"""A training of two ranks as a job: torch's gloo, a step every tenth of a second, and phases that the test asks for by files."""

import os
import subprocess
import sys
import time
from pathlib import Path

STEPS = 100_000
DIRECTORY = Path(os.environ["ROOST_JOB_DIR"])


def main() -> None:
    """Start one process a rank, as torchrun does."""
    ranks = [
        subprocess.Popen(
            [sys.executable, __file__],
            env={
                **os.environ,
                "RANK": str(rank),
                "WORLD_SIZE": "2",
                "MASTER_ADDR": "127.0.0.1",
                "MASTER_PORT": sys.argv[1],
                "OMP_NUM_THREADS": "1",
            },
        )
        for rank in range(2)
    ]
    for rank in ranks:
        rank.wait()


def train() -> None:
    """Steps that need both ranks; rank 0 tells them."""
    import torch  # noqa: PLC0415 - the parent does without
    from torch import distributed  # noqa: PLC0415

    from remote.agents.harness import JobContext  # noqa: PLC0415
    from remote.protocol.progress import StepLogged, TrainingPhase  # noqa: PLC0415

    distributed.init_process_group("gloo")
    chief = distributed.get_rank() == 0
    job = JobContext(DIRECTORY, Path(os.environ["ROOST_ROOT"])) if chief else None
    gradient = torch.ones(1024)
    for step in range(1, STEPS):
        distributed.all_reduce(gradient)
        gradient /= 2
        time.sleep(0.1)
        if job is None:
            continue
        job.tell(
            StepLogged(
                step=step,
                total_steps=STEPS,
                loss=2.0,
                accuracy=[0.5],
                learning_rate=1e-4,
                gradient_norm=1.0,
                tokens_per_s=100.0,
                input_wait_fraction=0.0,
            )
        )
        while (DIRECTORY / "save").exists():
            if not (DIRECTORY / "saving").exists():
                job.tell(TrainingPhase(phase="checkpoint"))
                (DIRECTORY / "saving").touch()
            time.sleep(0.05)
        if (DIRECTORY / "saving").exists():
            job.tell(TrainingPhase(phase="step"))
            (DIRECTORY / "saving").unlink()


if __name__ == "__main__":
    (train if "RANK" in os.environ else main)()
