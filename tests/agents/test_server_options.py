"""What an engine's own help says of its options, and what is said of those that it would refuse."""

from pathlib import Path

import msgspec
import pytest

from remote.agents.server.contract import EngineCommand, EngineKind
from remote.agents.server.options import EngineOptions, Option, complaints, parse_help, read_options
from remote.agents.server.plan import KINDS
from remote.errors import Precondition

GOLDEN = Path(__file__).resolve().parents[1] / "golden/server"
HELP = """usage: sglang serve [-h] --model-path MODEL_PATH
                    [--attention-backend {triton,flashinfer}]
                    [--tp-size TENSOR_PARALLEL_SIZE]

options:
  -h, --help            show this help message and exit
  --model-path MODEL_PATH, --model MODEL_PATH
                        The path of the model weights, such as --not-an-option X.
  --trust-remote-code   Whether or not to allow for custom models.
  --attention-backend {triton,flashinfer}
                        Choose the kernels.
  --tensor-parallel-size TENSOR_PARALLEL_SIZE, --tp-size TENSOR_PARALLEL_SIZE
  --layers LAYERS [LAYERS ...]
  --maybe [MAYBE]       With or without.
"""
KIND: EngineKind = KINDS["sglang"]
KNOWN = EngineOptions("1.0", parse_help(HELP))


def test_every_name_is_read_with_what_it_takes():
    assert parse_help(HELP) == {
        "model-path": Option("needed"),
        "model": Option("needed"),
        "trust-remote-code": Option("none"),
        "attention-backend": Option("needed", ["triton", "flashinfer"]),
        "tensor-parallel-size": Option("needed"),
        "tp-size": Option("needed"),
        "layers": Option("needed"),
        "maybe": Option("optional"),
    }


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        ({"modelpath": "/m"}, "did you mean --model-path"),
        ({"entirely-else": 1}, "no option of the installed engine (1.0)"),
        ({"attention-backend": "flashinfr"}, "near it: flashinfer"),
        ({"trust-remote-code": "yes"}, "takes no value"),
        ({"layers": True}, "needs a value"),
    ],
)
def test_what_would_be_refused_is_said_with_what_to_write(flags, words):
    (said,) = complaints(flags, KNOWN)
    assert words in said


def test_what_fits_is_not_complained_about():
    flags = {"model": "/m", "trust-remote-code": True, "tp-size": 8, "layers": ["1", "2"], "maybe": True}
    assert complaints(flags | {"attention-backend": "triton"}, KNOWN) == []
    assert complaints({"trust-remote-code": False}, KNOWN) == []


def engine(tmp_path, body: str) -> EngineCommand:
    script = tmp_path / "engine"
    script.write_text(f"#!/bin/sh\necho asked >> {tmp_path}/asked\n{body}\n")
    script.chmod(0o755)
    return EngineCommand([str(script), "-m", "engine"], {}, {})


def test_an_installation_is_asked_once_and_again_when_it_changed(tmp_path):
    body = f'[ "$1" = -c ] && cat {tmp_path}/identity && exit\necho "  --port PORT"'
    command, cache = engine(tmp_path, body), tmp_path / "engines"
    (tmp_path / "identity").write_text("1.0 /site 1\n")
    assert read_options(command, KIND, cache).options == {"port": Option("needed")}
    assert read_options(command, KIND, cache).version == "1.0"
    assert (tmp_path / "asked").read_text().count("asked") == 3
    (tmp_path / "identity").write_text("1.1 /site 2\n")
    assert read_options(command, KIND, cache).version == "1.1"
    assert (tmp_path / "asked").read_text().count("asked") == 5


def test_a_damaged_cache_is_asked_for_again(tmp_path):
    command, cache = engine(tmp_path, '[ "$1" = -c ] && echo 1 && exit\necho "  --port PORT"'), tmp_path / "engines"
    read_options(command, KIND, cache)
    (path,) = cache.iterdir()
    path.write_text("{")
    assert read_options(command, KIND, cache).options == {"port": Option("needed")}
    assert msgspec.json.decode(path.read_bytes(), type=EngineOptions).version == "1"


@pytest.mark.parametrize(
    ("body", "words"),
    [("echo broken >&2; exit 3", "ended with 3.*broken"), ('[ "$1" = -c ] && echo 1 || true', "no options")],
)
def test_an_engine_that_cannot_say_its_options_is_named(tmp_path, body, words):
    with pytest.raises(Precondition, match=words):
        read_options(engine(tmp_path, body), KIND, tmp_path / "engines")


def test_a_python_that_is_not_there_is_named(tmp_path):
    with pytest.raises(Precondition, match="cannot be asked"):
        read_options(EngineCommand(["/nowhere/python"], {}, {}), KIND, tmp_path / "engines")


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("sglang-0.5.23", ["tp-size", "mem-fraction-static", "return-aux-hidden-state-layer-ids", "sleep-on-idle"]),
        ("vllm-0.32", ["tensor-parallel-size", "max-model-len", "speculative-config", "enforce-eager"]),
    ],
)
def test_the_help_of_the_real_engines_is_read_to_its_end(name, options):
    text = (GOLDEN / f"{name}-help.txt").read_text()
    known = parse_help(text)
    assert len(known) >= text.count("\n  --")
    assert set(options) <= set(known)
    assert known[options[-1]].value == "none"
    assert known[options[0]].value == "needed"
