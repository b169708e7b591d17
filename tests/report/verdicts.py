"""Verdicts to write pages of."""

import msgspec

from remote.protocol.reports import (
    ArmServer,
    CategoryAcceptance,
    Cause,
    Decision,
    Divergence,
    LevelVerdict,
    Provenance,
    VerdictReport,
)

CATEGORIES = ("coding", "extraction", "humanities", "math", "reasoning", "roleplay", "stem", "writing")


def level(
    concurrency: int, speedup: float, *, wide: float = 0.05, decision: Decision = "promote", counts: bool = True
) -> LevelVerdict:
    return LevelVerdict(
        concurrency=concurrency,
        counts=counts,
        decision=decision,
        baseline_tokens_per_s=80.0,
        drafter_tokens_per_s=80.0 * speedup,
        speedup=speedup,
        speedup_interval=(speedup - wide, speedup + wide),
        baseline_output_tokens_per_s=70.0 * concurrency**0.7,
        drafter_output_tokens_per_s=70.0 * speedup * concurrency**0.7,
        baseline_first_token_s=0.2,
        drafter_first_token_s=0.25,
        acceptance_length=2.4,
        step_cost=2.4 / speedup,
        baseline_others_cores=0.125,
    )


def verdict(word: str = "plain", **changes: object) -> VerdictReport:
    """A verdict in which every word that comes from a host is `word`."""
    servers = [
        ArmServer(arm=arm, measured_at=1_796_000_000.0, command=["/opt/python", "-m", word], environment={"A": word})
        for arm in ("baseline", "drafter")
    ]
    found = VerdictReport(
        decision="promote",
        baseline_tokens_per_s=80.0,
        drafter_tokens_per_s=120.0,
        speedup=1.5,
        speedup_interval=(1.45, 1.55),
        acceptance_length=2.4,
        coverage=0.96,
        prompts=80,
        identical_outputs=78,
        near_ties=2,
        real_divergences=0,
        dtype="bfloat16",
        attention_backend=word,
        engine=f"sglang {word}",
        reasons=[f"surely faster {word}"],
        advice=[f"measure {word}"],
        levels=[level(1, 1.5), level(4, 1.3), level(16, 1.02, decision="inconclusive", counts=False)],
        categories=[
            CategoryAcceptance(
                category=name, prompts=10, verifications=400 + number, acceptance_length=2.0 + number / 10
            )
            for number, name in enumerate((*CATEGORIES[:-1], word))
        ],
        position_acceptance=[0.7, 0.45, 0.25],
        divergences=[
            Divergence(
                concurrency=1,
                prompt_id=word,
                position=17,
                token_baseline=5,
                token_drafter=-1,
                top_two_logit_gap=0.0625,
                near_tie=True,
            )
        ],
        causes=[
            Cause(cause="coverage", suspect=False, text=f"covers much {word}"),
            Cause(cause="layer_ids", suspect=None, text="not known"),
            Cause(cause="serving", suspect=True, text="too little"),
        ],
        provenance=Provenance(
            run="kimi",
            host_name=word,
            devices=[f"8 x {word}"],
            judged_at=1_796_000_000.0,
            release="d" * 64,
            model=f"/models/{word}",
            model_fingerprint="a" * 64,
            drafter="/runs/kimi/drafter",
            drafter_sha256="b" * 64,
            mapping_sha256=None,
            train="/data/train.jsonl",
            train_sha256="c" * 64,
            evaluation="/data/eval.jsonl",
            evaluation_sha256="e" * 64,
            max_tokens=512,
            servers=servers,
        ),
    )
    return msgspec.structs.replace(found, **changes)
