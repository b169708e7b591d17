"""Which trials a tuning has, in how many rounds, who goes on and who wins."""

from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from remote.errors import UsageError
from remote.pipeline.config import load_run
from remote.pipeline.tuning import (
    Comparison,
    Standing,
    benchmark_of,
    choose,
    compare,
    draw_trials,
    oddity_of,
    plan_rounds,
    plan_tuning,
    who_goes_on,
)
from remote.protocol.benchmark import BenchmarkLevel, RequestFigures, Spread
from remote.protocol.run import TuningConfig
from remote.protocol.tuning import TuningPlan

FLAT = Spread(median=1.0, lower=1.0, upper=1.0)
SWEEP = """
[tuning]
prompts = 2
[tuning.sweep]
"engine.flags.max-total-tokens" = [200, 300]
"engine.dtype" = ["bfloat16", "float16"]
"""


def level(rates: dict[str, float], *, odd: int = 0, first: float = 1.0) -> BenchmarkLevel:
    """One answer of eleven tokens for each prompt, its ten later ones at that rate."""
    requests = [
        RequestFigures(
            prompt_id=prompt,
            repeat=0,
            output_tokens=11,
            time_to_first_token_s=first,
            end_to_end_s=first + 10 / rate,
            verify_calls=None,
        )
        for prompt, rate in rates.items()
    ]
    return BenchmarkLevel(
        concurrency=1,
        requests=requests,
        decode_tokens_per_s=FLAT,
        output_tokens_per_s=FLAT,
        time_to_first_token_s=FLAT,
        end_to_end_s=FLAT,
        acceptance_length=None,
        odd=odd,
    )


@pytest.fixture
def plan(root: Path, python: str, document: str) -> Callable[..., TuningPlan]:
    def planned(sweep: str = SWEEP, **overrides: str) -> TuningPlan:
        settings = {key.replace("__", "."): value for key, value in overrides.items()}
        return plan_tuning(document + sweep, settings, root=root, python=python)

    return planned


def test_every_combination_is_a_trial_and_number_0_is_what_the_file_has(plan) -> None:
    found = plan()
    assert found.problems == []
    # What the file has already is no setting of a trial, and evaluation.dtype decides what is served, not engine.dtype.
    assert [trial.settings for trial in found.trials] == [
        {},
        {"engine.flags.max-total-tokens": 200},
        {"engine.flags.max-total-tokens": 300},
    ]
    assert "200" in found.trials[1].command
    assert (found.launches, found.requests) == (4, 4 * 2 * 2)


def test_keys_that_go_together_are_a_table(plan) -> None:
    sweep = """
[tuning]
drafter = true
prompts = 2
[tuning.sweep]
speculation = [{ num_steps = 1, draft_tokens = 2 }, { num_steps = 5, draft_tokens = 2 }]
"""
    found = plan(sweep)
    assert found.trials[1].settings == {"speculation.num_steps": 1, "speculation.draft_tokens": 2}
    assert found.trials[1].problem is None
    assert "draft_tokens must be num_steps + 1 = 6" in (found.trials[2].problem or "")
    assert any("there is no drafter" in problem for problem in found.problems)


@pytest.mark.parametrize(
    "key", ["target.model", "data.evaluation", "name", "directory", "extraction.layer_ids", "tuning.prompts", ""]
)
def test_only_how_a_server_serves_is_swept(plan, key: str) -> None:
    with pytest.raises(UsageError, match=r"tuning\.sweep names"):
        plan(f'[tuning]\nprompts = 2\n[tuning.sweep]\n"{key}" = ["a", "b"]\n')


@pytest.mark.parametrize(
    ("sweep", "whole"),
    [
        ("[tuning.sweep.engine]\nmemory_fraction = [0.5]", "engine.memory_fraction"),
        ("[tuning.sweep]\nname = 3", "name"),
    ],
)
def test_a_sweep_that_is_written_otherwise_is_told_how(plan, sweep: str, whole: str) -> None:
    with pytest.raises(UsageError, match=r"tuning\.sweep\.(engine|name) is no list") as error:
        plan(f"[tuning]\nprompts = 2\n{sweep}\n")
    assert f'"{whole}" = [' in (error.value.info.hint or "")


def test_a_run_that_serves_with_another_engine_sweeps_that_one(plan, document: str) -> None:
    serving = '[serving]\ndevice = "cpu"\n'
    with pytest.raises(UsageError, match=r"\[serving\] says how this run serves") as error:
        plan(serving + SWEEP)
    assert "serving.flags" in (error.value.info.hint or "")
    found = plan(serving + SWEEP.replace("engine.", "serving."))
    assert found.trials[1].settings == {"serving.flags.max-total-tokens": 200}


def test_a_key_that_makes_no_difference_is_no_setting_of_a_winner(plan) -> None:
    # Written down, it would capture in another dtype and make the store anew.
    found = plan(
        '[tuning]\nprompts = 2\n[tuning.sweep]\n"engine.dtype" = ["float16"]\n"engine.flags.max-total-tokens" = [5]\n'
    )
    assert [trial.settings for trial in found.trials] == [{}, {"engine.flags.max-total-tokens": 5}]


def test_what_is_equal_to_python_only_is_another_setting(plan) -> None:
    sweep = SWEEP.replace("[200, 300]", "[true, 1, 1.0]")
    found = plan(sweep, engine__flags="{max-total-tokens = 1}")
    assert [str(trial.settings.get("engine.flags.max-total-tokens")) for trial in found.trials] == [
        "None",
        "True",
        "1.0",
    ]


def test_a_combination_may_need_all_of_its_keys(plan) -> None:
    found = plan(
        '[serving]\nname = "vllm"\ndevice = "cpu"\n[tuning]\ndrafter = true\nprompts = 2\n[tuning.sweep]\n'
        '"serving.name" = ["sglang"]\nspeculation = [{ top_k = 4, draft_tokens = 8 }]\n'
    )
    assert found.trials[1].problem is None
    assert found.trials[1].settings == {
        "serving.name": "sglang",
        "speculation.top_k": 4,
        "speculation.draft_tokens": 8,
    }


def test_a_report_that_could_not_be_told_is_refused_before_hours_of_measuring(plan) -> None:
    values = ", ".join(f'"{number}{"x" * 5000}"' for number in range(120))
    with pytest.raises(UsageError, match="at most 1024 KiB"):
        plan(SWEEP.replace("[200, 300]", f"[{values}]"))


def test_a_trial_that_cannot_be_launched_is_told_and_costs_none(plan) -> None:
    found = plan(
        '[tuning]\nprompts = 2\n[tuning.sweep]\n"engine.flags.max-total-tokenz" = [1]\n"engine.memory_fraction" = [0.5, 7]\n'
    )
    assert [trial.problem is None for trial in found.trials] == [True, False, False]
    assert "max-total-tokenz" in (found.trials[1].problem or "")
    assert "engine.memory_fraction" in (found.trials[2].problem or "")
    assert any("no combination" in problem for problem in found.problems)


@pytest.mark.parametrize(
    ("key", "value", "word"),
    [
        ("tuning__prompts", "40", "holds 2 prompts"),
        ("tuning__concurrency", "3", "only 2"),
        ("tuning", "{prompts = 100, repeats = 50}", "at most 4000 are measured"),
        ("target__model", "models/no", "config.json"),
    ],
)
def test_what_keeps_all_of_it_from_beginning_is_a_problem(plan, key: str, value: str, word: str) -> None:
    assert any(word in problem for problem in plan(**{key: value}).problems)


def test_a_file_without_a_tuning_and_one_with_too_much_are_usage_errors(plan, document: str, root: Path) -> None:
    with pytest.raises(UsageError, match="has no \\[tuning\\]"):
        plan("")
    many = "[tuning.sweep]\n" + "\n".join(f'"engine.flags.f{key}" = [1, 2, 3, 4]' for key in range(40))
    with pytest.raises(UsageError, match="at most 256"):
        draw_trials(load_run(document + many), root)


@given(st.integers(1, 256), st.integers(1, 80), st.integers(1, 64))
def test_rounds_halve_the_trials_and_never_ask_fewer_prompts(challengers: int, prompts: int, concurrency: int) -> None:
    config = TuningConfig(sweep={"a": [1]}, prompts=prompts, concurrency=min(concurrency, prompts))
    rounds = plan_rounds(challengers, config)
    assert rounds[0].trials == challengers
    assert rounds[-1].trials <= 2
    assert rounds[-1].prompts == prompts
    for before, after in pairwise(rounds):
        assert after.trials == -(-before.trials // 2)
        assert after.prompts >= before.prompts
    assert all(config.concurrency <= one.prompts <= prompts for one in rounds)
    assert benchmark_of(config, rounds[0].prompts).concurrency == [config.concurrency]


SERVING = """
[serving]
device = "cpu"
"""


@pytest.mark.parametrize(
    ("section", "key", "more", "recaptures"),
    [
        ("engine", "flags.max-total-tokens", "", True),
        ("engine", "context_length", "", False),
        ("serving", "flags.max-total-tokens", SERVING, False),
    ],
)
def test_a_trial_says_whether_it_is_of_what_captures_as_well(
    root: Path, python: str, document: str, section: str, key: str, more: str, recaptures: bool
) -> None:
    sweep = f'{more}[tuning]\nprompts = 2\n[tuning.sweep]\n"{section}.{key}" = [128]\n'
    present, changed = plan_tuning(document + sweep, {}, root=root, python=python).trials
    assert (present.recaptures, changed.recaptures) == (False, recaptures)


def test_a_comparison_is_of_the_same_prompts_and_of_what_the_objective_says() -> None:
    base, trial = level({"a": 10.0, "b": 20.0}), level({"a": 20.0, "b": 40.0, "c": 1.0})
    found = compare([base], trial, "decode")
    assert found.speedup == pytest.approx(2.0)
    assert found.interval == pytest.approx((2.0, 2.0))
    assert found.tokens_per_s == pytest.approx(20 / 0.75)
    whole = compare([base], trial, "end_to_end")
    assert whole.speedup == pytest.approx((22 / 2.75) / (22 / 3.5))
    with pytest.raises(UsageError):
        compare([base], level({"z": 1.0}), "decode")


def test_answers_of_one_token_have_no_rate_to_compare() -> None:
    base = level({"a": 10.0})
    single = msgspec.structs.replace(
        base, requests=[msgspec.structs.replace(request, output_tokens=1) for request in base.requests]
    )
    for before, after in ((base, single), (single, base), (single, single)):
        with pytest.raises(UsageError, match="ended with its first token"):
            compare([before], after, "decode")


def test_two_measurements_of_the_present_settings_count_together() -> None:
    slow, fast = level({"a": 10.0}), level({"a": 30.0})
    assert compare([slow, fast], level({"a": 15.0}), "decode").speedup == pytest.approx(1.0)


def test_answers_that_say_nothing_are_no_gain() -> None:
    base, names = level({"a": 1.0, "b": 1.0}, odd=1), {"a": 9.0, "b": 9.0}
    assert oddity_of(base, level(names, odd=1)) is None
    assert "2 of 2" in (oddity_of(base, level(names, odd=2)) or "")


@given(st.lists(st.tuples(st.floats(0.1, 10), st.booleans()), max_size=20), st.integers(0, 20))
def test_the_fastest_without_a_fault_go_on(trials: list[tuple[float, bool]], places: int) -> None:
    standings = [
        Standing(number, speedup, "odd" if faulty else None) for number, (speedup, faulty) in enumerate(trials)
    ]
    going = who_goes_on(standings, places)
    sound = [one for one in standings if one.fault is None]
    assert len(going) == min(places, len(sound))
    slowest = min((standings[number].speedup for number in going), default=10.0)
    assert all(one.speedup <= slowest for one in sound if one.number not in going)


@pytest.mark.parametrize(
    ("finalists", "drift", "winner", "word"),
    [
        ([(3, Comparison(9.0, 1.09, (1.02, 1.15))), (1, Comparison(9.0, 1.01, (0.9, 1.1)))], 0.02, 3, "1.09 times"),
        ([(3, Comparison(9.0, 1.09, (0.99, 1.15)))], 0.02, None, "not surely faster"),
        ([(3, Comparison(9.0, 1.09, (1.02, 1.15)))], 0.1, None, "differ by 10%"),
        ([(3, Comparison(9.0, 1.09, (0.99, 1.15)))], 0.6, None, "this host was not quiet"),
        ([], 0.0, None, "no trial"),
    ],
)
def test_a_winner_is_surely_faster_and_by_more_than_chance(finalists, drift, winner, word) -> None:
    number, reason = choose(finalists, drift)
    assert number == winner
    assert word in reason


def test_a_plan_goes_over_the_wire(plan) -> None:
    found = plan()
    assert msgspec.json.decode(msgspec.json.encode(found), type=TuningPlan) == found
