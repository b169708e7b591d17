"""Writes tests/golden/protocol/v1 anew; run it when a message gained a field, and read the difference before committing it."""

from pathlib import Path

import msgspec
from protocol_samples import SAMPLES

GOLDEN = Path(__file__).resolve().parents[1] / "golden" / "protocol" / "v1"


def main() -> None:
    GOLDEN.mkdir(parents=True, exist_ok=True)
    for sample in SAMPLES:
        (GOLDEN / f"{type(sample).__struct_config__.tag}.json").write_bytes(msgspec.json.encode(sample) + b"\n")


if __name__ == "__main__":
    main()
