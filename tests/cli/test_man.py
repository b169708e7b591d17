"""The manual page and the shell's completion, made of the command itself."""

import os
import shutil
import subprocess
import sys

import pytest

from console.cli.man import manual_page
from console.cli.spec import VERB_DOCUMENTS


@pytest.fixture
def page(roost) -> str:
    told = roost("spec", "--man")
    assert told.exit_code == 0
    return told.stdout


def test_every_verb_and_every_exit_code_is_on_the_page(page):
    for verb in VERB_DOCUMENTS:
        assert f".SS roost {verb.replace('-', chr(92) + '-')}" in page
    assert ".B 130\ninterrupted" in page
    assert ".B 6\nconfirmation" in page


def test_no_line_is_a_macro_by_mistake(page):
    macros = {".TH", ".SH", ".SS", ".TP", ".B", ".I"}
    for line in page.splitlines():
        assert not line.startswith("'")
        assert not line.startswith(".") or line.split()[0] in macros


def test_what_a_verb_says_is_no_macro():
    verb = {"verb": "x", "help": ".so /etc/passwd \\n(x", "parameters": [], "documents": []}
    page = manual_page({"verbs": [verb], "exit_codes": {}}, "1")
    assert "\n\\&.so /etc/passwd \\en(x\n" in page


@pytest.mark.skipif(shutil.which("groff") is None, reason="groff is not installed")
def test_groff_has_nothing_to_complain_of(page):
    done = subprocess.run(["groff", "-man", "-Tutf8", "-ww"], input=page, text=True, capture_output=True, check=False)
    assert done.returncode == 0
    assert done.stderr == ""


def test_the_page_is_a_page_of_its_own(roost):
    assert roost("spec", "--man", "--json").exit_code == 2


def test_a_shell_completes_verbs():
    environment = os.environ | {"_ROOST_COMPLETE": "complete_bash", "COMP_WORDS": "roost jo", "COMP_CWORD": "1"}
    script = "from console.cli.main import main; main()"
    done = subprocess.run([sys.executable, "-c", script], env=environment, text=True, capture_output=True, check=False)
    assert done.stdout.split() == ["jobs", "journal"]
