"""Whether a host has the GPUs of a run, said before anything begins."""

from collections.abc import Callable

import pytest

from remote.pipeline.plan import plan_run


@pytest.fixture
def problems(root, python, document, nvml_standin, monkeypatch) -> Callable[..., list[str]]:
    nvml_standin.use(monkeypatch)

    def problems(**overrides) -> list[str]:
        named = {key.replace("__", "."): value for key, value in overrides.items()}
        return plan_run(document, named, root=root, python=python).problems

    return problems


def test_a_run_that_fits_has_no_problem(problems):
    assert problems(engine__device="cuda", engine__tensor_parallel_size="8", training__device="cuda") == []


def test_a_run_on_the_cpu_asks_no_driver(problems, nvml_standin):
    nvml_standin.change({"init.hang": 1})
    assert problems() == []
    nvml_standin.change({"init.hang": 0})


@pytest.mark.parametrize("overrides", [{"engine__device": "cuda"}, {"training__device": "cuda"}])
def test_a_host_without_gpus_is_named_before_anything_begins(problems, nvml_standin, overrides):
    nvml_standin.change({"init": 9})
    (problem,) = problems(**overrides)
    assert "trial needs 1 GPU, but the NVIDIA kernel module is not loaded" in problem


def test_too_few_gpus_are_counted_without_the_lost(problems, nvml_standin):
    nvml_standin.play("one_lost")
    (problem,) = problems(engine__device="cuda", engine__tensor_parallel_size="8")
    assert "needs 8 GPUs, but this host has 7 and 1 that are lost" in problem
    assert problems(engine__device="cuda", engine__tensor_parallel_size="4") == []


def test_a_named_gpu_that_is_not_there_is_a_problem(problems):
    (problem,) = problems(engine__device="cuda", engine__environment__CUDA_VISIBLE_DEVICES='"7,8"')
    assert "engine.environment names GPU 8" in problem


def test_what_a_run_file_asks_for_in_another_section_is_named_there(problems):
    serving = '{ device = "cuda", environment = { CUDA_VISIBLE_DEVICES = "8" } }'
    (problem,) = problems(serving=serving)
    assert "serving.environment names GPU 8" in problem
    (problem,) = problems(serving='{ device = "cuda", tensor_parallel_size = 9 }')
    assert "Lower serving.tensor_parallel_size" in problem
    (problem,) = problems(training__device="cuda", training__ranks="9", training__batches_per_step="9")
    assert "needs 9 GPUs" in problem
    assert "Lower training.ranks" in problem


def test_a_list_of_devices_that_is_none_is_a_problem(problems):
    (problem,) = problems(engine__device="cuda", engine__environment__CUDA_VISIBLE_DEVICES='"all"')
    assert "not a list of different device numbers" in problem


def test_gpus_that_are_in_use_now_are_no_problem_of_a_plan(problems, nvml_standin):
    """They may be free by the time that a stage needs them; the stage's job asks again."""
    nvml_standin.play("one_busy")
    assert problems(engine__device="cuda", engine__tensor_parallel_size="8") == []
