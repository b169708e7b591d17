"""What SpecForge's and speculators' own data sets read from an exported store, as one safetensors file; run under the engine's Python.

python peer_readers.py specforge|speculators DIRECTORY OUTPUT
"""

import sys
from pathlib import Path

import torch
from safetensors.torch import save_file

MAX_LENGTH = 4096


def read_specforge(directory: Path) -> list[dict[str, torch.Tensor]]:
    from specforge.data.preprocessing import OfflineEagle3Dataset, list_local_files  # noqa: PLC0415 - one peer at a time

    # It orders them as text.
    paths = sorted(list_local_files(directory), key=lambda path: int(Path(path).stem.removeprefix("data_")))
    data = OfflineEagle3Dataset(paths, max_len=MAX_LENGTH)
    return [{name: tensor.squeeze(0) for name, tensor in data[number].items()} for number in range(len(data))]


def read_speculators(directory: Path) -> list[dict[str, torch.Tensor]]:
    from datasets import Dataset  # noqa: PLC0415 - as above
    from hs_connectors.transfer import FileTransfer  # noqa: PLC0415 - as above
    from speculators.train.data import ArrowDataset  # noqa: PLC0415 - as above

    table = Dataset.from_json(str(directory / "samples.jsonl"), cache_dir=str(directory / "cache"))
    table.with_format("torch").save_to_disk(str(directory / "arrow"))
    data = ArrowDataset(MAX_LENGTH, directory / "arrow", FileTransfer(directory), on_missing="raise")
    return [data[number] for number in range(len(data))]


if __name__ == "__main__":
    layout, directory, output = sys.argv[1:]
    read = {"specforge": read_specforge, "speculators": read_speculators}[layout]
    samples = read(Path(directory))
    named = {f"{number}.{name}": tensor for number, sample in enumerate(samples) for name, tensor in sample.items()}
    save_file({name: tensor.contiguous() for name, tensor in named.items()}, output)
