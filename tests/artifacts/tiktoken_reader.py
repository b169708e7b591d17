"""What a run makes of conversations with the target whose tokenizer is a tiktoken file, beside that tokenizer itself; run under the
engine's Python. Conversations come on standard input as JSON, answers go to standard output.

python tiktoken_reader.py MODEL
"""

import json
import sys
from pathlib import Path

from transformers import AutoTokenizer

from remote.artifacts.chat_template import ChatTemplate
from remote.artifacts.target_tokens import decode_tokens, end_ids, special_ids


def main(model: Path) -> None:
    own = AutoTokenizer.from_pretrained(str(model), trust_remote_code=True)
    template = ChatTemplate(model)
    read = []
    for turns, truncated in json.load(sys.stdin):
        ids, mask = template.tokenize(turns, truncated=truncated)
        text = own.apply_chat_template(turns, tokenize=False)
        counted = [token for token, counts in zip(ids, mask, strict=True) if counts]
        prompt = template.prompt_ids(turns[:-1])
        read.append(
            {"ids": ids, "mask": mask, "whole": own.encode(text), "said": template.decode(counted), "prompt": prompt}
        )
    tokens = special_ids(model)
    json.dump(
        {
            "has_offsets": own.is_fast,
            "opening": own.encode("<|im_assistant|>assistant<|im_middle|><think>"),
            "read": read,
            "special": dict(zip(decode_tokens(model, tokens), tokens, strict=True)),
            "ends": end_ids(model),
        },
        sys.stdout,
    )


if __name__ == "__main__":
    main(Path(sys.argv[1]))
