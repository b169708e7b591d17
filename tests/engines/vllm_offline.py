"""What vLLM continues prompts with, without a server; run under its own Python.

python vllm_offline.py TARGET DRAFTER PROMPTS TOKENS OUTPUT: writes the texts as token ids and the drafts' counters as one JSON document.
"""

import json
import sys
from pathlib import Path


def main() -> None:
    from vllm import LLM, SamplingParams  # noqa: PLC0415 - its workers import this file again

    target, drafter, prompts, tokens, output = sys.argv[1:]
    engine = LLM(
        model=target,
        skip_tokenizer_init=True,
        dtype="float32",
        max_model_len=256,
        max_num_seqs=4,
        enforce_eager=True,
        disable_log_stats=False,
        speculative_config={"model": drafter, "method": "eagle3", "num_speculative_tokens": 2},
    )
    sampling = SamplingParams(temperature=0, max_tokens=int(tokens), ignore_eos=True, detokenize=False)
    outputs = engine.generate([{"prompt_token_ids": ids} for ids in json.loads(prompts)], sampling)
    counters = {
        metric.name: metric.value
        for metric in engine.get_metrics()
        if metric.name.startswith("vllm:spec_decode_num") and hasattr(metric, "value")
    }
    texts = [list(made.outputs[0].token_ids) for made in outputs]
    Path(output).write_text(json.dumps({"texts": texts, "counters": counters}))


if __name__ == "__main__":
    main()
