"""Run files: presets, what is laid over them, and errors that name the key."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remote.errors import NotFound, UsageError
from remote.pipeline.config import load_run, merge

tables = st.recursive(
    st.integers() | st.text(max_size=3),
    lambda below: st.dictionaries(st.sampled_from("abc"), below, max_size=3),
    max_leaves=5,
)
documents = st.dictionaries(st.sampled_from("abc"), tables, max_size=3)


def test_a_file_and_overrides_are_laid_over_the_preset():
    base = load_run('preset = "embedded"')
    run = load_run(
        'preset = "embedded"\n[training]\nsteps = 7\n[engine.environment]\nEXTRA = "1"\n',
        {"training.seed": "9", "extraction.layer_ids": "[1, 5, 9]", "target.model": "elsewhere/model"},
    )
    assert (run.training.steps, run.training.seed, run.extraction.layer_ids) == (7, 9, [1, 5, 9])
    assert run.target.model == "elsewhere/model"
    assert run.engine.environment == base.engine.environment | {"EXTRA": "1"}
    assert run.training.learning_rate == base.training.learning_rate


@pytest.mark.parametrize(
    ("override", "said"),
    [
        (
            {"training.stepz": "3"},
            "training.stepz: there is no such key (did you mean 'steps'?); allowed here: drafter, ",
        ),
        ({"engine.device": '"gpu"'}, "engine.device: Invalid enum value 'gpu'; allowed: cpu, cuda"),
        ({"training.steps": "twenty"}, "training.steps: Expected `int`, got `str`"),
        ({"training.steps": "0"}, "training.steps: Expected `int` >= 1"),
        ({"extraction.layer_ids": "[1, -2]"}, "extraction.layer_ids[1]: Expected `int` >= 0"),
        ({"nonsense": "1"}, "nonsense: there is no such key; allowed here: name, target, "),
        ({"training..steps": "1"}, "the override 'training..steps' is no key"),
        ({"engine.environment": '{A = "a\\u0000b"}'}, "engine.environment.A: a NUL character cannot"),
        ({"engine.environment": '{"A\\u0000" = "b"}'}, "engine.environment.A\0: a NUL character cannot"),
        ({"engine.environment": '{"A=B" = "c"}'}, "engine.environment: 'A=B' is no name of a variable"),
        ({"engine.environment": '{"" = "c"}'}, "engine.environment: '' is no name of a variable"),
        ({"engine.ready_timeout_s": "0"}, "engine.ready_timeout_s: Expected `float` > 0"),
        ({"name": "Has Spaces"}, "name: Expected `str` matching"),
    ],
)
def test_an_error_names_the_key_and_what_is_allowed(override, said):
    with pytest.raises(UsageError) as caught:
        load_run('preset = "embedded"', override)
    assert str(caught.value).startswith(said)


def test_either_engine_captures():
    run = load_run('preset = "embedded"', {"engine.name": "vllm"})
    assert (run.engine.name, run.serving_engine.name) == ("vllm", "vllm")


def test_what_serves_is_the_engine_that_captures_or_one_of_its_own():
    assert load_run('preset = "embedded"').serving_engine == load_run('preset = "embedded"').engine
    run = load_run('preset = "embedded"\n[serving]\nname = "vllm"\ndevice = "cpu"\n')
    assert (run.engine.name, run.serving_engine.name) == ("sglang", "vllm")
    assert run.serving_engine.context_length is None, "nothing of the other engine's settings is taken over"


def test_a_tree_of_drafts_is_refused_for_vllm():
    tree = {"serving": '{ name = "vllm" }', "speculation.top_k": "2", "speculation.draft_tokens": "5"}
    with pytest.raises(UsageError, match=r"^speculation\.top_k is 2, but vllm serves the drafter"):
        load_run('preset = "embedded"', tree)
    assert load_run('preset = "embedded"', {"speculation.top_k": "2"}).speculation.top_k == 2


def test_an_unknown_preset_lists_those_that_exist():
    with pytest.raises(NotFound) as caught:
        load_run('preset = "embeded"')
    assert "embedded, kimi-k2.5-8x-h200, kimi-k2.5-8x-rtx-pro-6000, llama-3.1-8b-1x-h100, tiny" in str(caught.value)
    assert caught.value.info.hint == "Did you mean 'embedded'?"


@pytest.mark.parametrize("name", ["../../secrets", "", 3, ["embedded"]])
def test_a_preset_is_a_name_and_never_a_path(name):
    with pytest.raises(NotFound):
        load_run(f"preset = {name!r}")


def test_a_broken_file_and_a_missing_section_are_said():
    with pytest.raises(UsageError, match="the run file is not TOML"):
        load_run("name = ")
    with pytest.raises(UsageError, match="missing required field `target`"):
        load_run('name = "a"')


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("training.learning_rate", "nan"),
        ("engine.flags.some-flag", "-inf"),
        ("tuning.sweep", '{ "engine.memory_fraction" = [0.5, nan] }'),
    ],
)
def test_a_number_that_json_does_not_have_is_refused(document: str, key: str, value: str):
    with pytest.raises(UsageError, match=rf"^{key}.*not finite"):
        load_run(document, {key: value})


@pytest.mark.parametrize("flag", ["host", "port", "model", "model-path", "uds"])
@pytest.mark.parametrize("section", ["engine", "serving"])
def test_who_reaches_a_server_and_what_it_serves_is_no_setting(document: str, section: str, flag: str):
    with pytest.raises(UsageError, match=rf"{section}\.flags\.{flag}: Roost sets this itself"):
        load_run(document, {f"{section}.flags.{flag}": '"x"'})


@given(documents, documents)
def test_what_is_laid_over_wins_and_the_rest_stays(base, over):
    merged = merge(base, over)
    assert merge(merged, over) == merged
    assert set(merged) == set(base) | set(over)
    for key, value in over.items():
        if not isinstance(value, dict):
            assert merged[key] == value
    for key in set(base) - set(over):
        assert merged[key] == base[key]


@given(documents)
def test_nothing_laid_over_changes_nothing(base):
    assert merge(base, {}) == base
    assert merge({}, base) == base
