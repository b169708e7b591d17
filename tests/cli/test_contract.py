"""The promises of the command: exit codes, streams, and a light import graph."""

import json
import subprocess
import sys

import pytest

from console.cli.output import EXIT_CODES, EXIT_INTERRUPTED, narrate, print_document, print_record, print_text
from remote.protocol.errors import ErrorCode


def roost(*arguments: str, env: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "console.cli", *arguments],
        capture_output=True,
        text=True,
        check=False,
        env=env,
        timeout=60,
    )


def test_every_error_code_has_its_exit_code() -> None:
    assert {code.value: number for code, number in EXIT_CODES.items()} == {
        "failed": 1,
        "usage": 2,
        "not_found": 2,
        "connection": 3,
        "protocol": 3,
        "timeout": 4,
        "conflict": 5,
        "precondition": 5,
        "confirmation": 6,
    }
    assert set(EXIT_CODES) == set(ErrorCode)
    assert EXIT_INTERRUPTED == 130


@pytest.mark.parametrize("module", ["console.cli.main", "console.operations"])
def test_headless_never_loads_textual(module: str) -> None:
    script = f"import sys, {module}; sys.exit('textual' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", script], check=False).returncode == 0


def test_an_unknown_host_is_a_usage_error_with_a_json_document(embedded_data) -> None:
    result = roost("jobs", "--host", "nowhere", "--json")
    assert result.returncode == 2
    error = json.loads(result.stdout)["error"]
    assert error["code"] == "usage"
    assert "nowhere" in error["message"]
    assert "nowhere" in result.stderr


def test_a_setting_that_is_no_assignment_is_a_usage_error(embedded_data) -> None:
    result = roost("run", "tiny", "--set", "training.steps", "--json")
    assert result.returncode == 2
    assert "training.steps" in json.loads(result.stdout)["error"]["message"]


def test_a_run_file_that_is_missing_is_named(embedded_data) -> None:
    result = roost("plan", "absent.toml", "--json")
    assert result.returncode == 2
    assert "absent.toml" in json.loads(result.stdout)["error"]["message"]


@pytest.mark.parametrize(
    "verb",
    [
        "run",
        "plan",
        "verdict",
        "status",
        "wait",
        "stop",
        "jobs",
        "logs",
        "telemetry",
        "record",
        "replay",
        "vocabulary",
        "hosts",
        "secrets",
    ],
)
def test_every_verb_explains_itself(verb: str) -> None:
    result = roost(verb, "--help")
    assert result.returncode == 0
    assert "Usage" in result.stdout


@pytest.mark.parametrize("write", [print_document, print_record])
def test_a_document_holds_every_value_and_nothing_that_a_terminal_obeys(write, capsys) -> None:
    hostile = "a\x1b[2J\x9b2J\u202e\u200b\x7f\x00b"
    write("thing", {hostile: hostile})
    written = capsys.readouterr().out
    assert json.loads(written)["thing"] == {hostile: hostile}
    assert written.isascii()
    assert not set(written) & {"\x1b", "\x7f", "\x00"}


@pytest.mark.parametrize("write", [print_text, narrate])
def test_a_line_for_a_person_holds_nothing_that_a_terminal_obeys(write, capsys) -> None:
    write("a\x1b[2J\x9b2J\u202e\u200b\x7f\x00\x1b[31mb")
    told = capsys.readouterr()
    assert told.out + told.err == "ab\n"


@pytest.mark.parametrize("before", [("-H", "nowhere", "jobs"), ("-H", "nowhere", "server", "plan", "embedded")])
def test_a_host_before_the_verb_is_the_verbs(roost, before) -> None:
    refused = roost(*before)
    assert refused.exit_code == 2
    assert "no host named 'nowhere'" in refused.stderr


def test_the_verbs_own_host_goes_before_the_one_before_it(roost) -> None:
    assert "no host named 'nearer'" in roost("-H", "nowhere", "jobs", "-H", "nearer").stderr


def test_a_host_before_a_verb_that_has_none_is_refused(roost) -> None:
    refused = roost("-H", "nowhere", "embedded", "stop")
    assert refused.exit_code == 2
    assert "acts on no host that can be named" in refused.stderr


@pytest.mark.parametrize("arguments", [(), ("demo",)])
def test_without_a_terminal_the_screen_is_refused_and_what_says_it_as_text_is_named(arguments: tuple[str, ...]) -> None:
    told = roost(*arguments)
    assert told.returncode == 2
    assert told.stdout == ""
    assert "needs a terminal" in told.stderr
    assert "roost telemetry --watch" in told.stderr
