"""Whether a store of bfloat16 states is worth compressing: ratio and speed of a core, on the states of a store that is there.

The bytes are split first (all upper bytes, which hold sign and exponent and repeat; then all lower ones, which hardly do), for without
that little is gained; codecs are python-zstandard's and Blosc2's, which splits by itself. Uncompressed is a
copy each way, which a store in memory costs at least. `python bench/compression.py STORE [SAMPLES]`; the codecs are installed for the run.
"""

import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np

from remote.artifacts.hidden_states import StoreReader

CODECS = ["zstandard==0.25.0", "blosc2==4.15.0", "msgpack", "ndindex", "numexpr"]
TURNS = 3


class Codec(NamedTuple):
    """Both ways; what is packed is the bytes of uint16 [N]."""

    pack: Callable[[np.ndarray], bytes]
    unpack: Callable[[bytes], np.ndarray]


def split(states: np.ndarray) -> bytes:
    """Upper bytes, then lower bytes."""
    return np.ascontiguousarray(states.view(np.uint8).reshape(-1, 2).T[::-1]).tobytes()


def joined(planes: bytes) -> np.ndarray:
    """What was split."""
    return np.ascontiguousarray(np.frombuffer(planes, np.uint8).reshape(2, -1)[::-1].T).view(np.uint16).reshape(-1)


def codecs() -> dict[str, Codec]:
    """By name; each on one thread."""
    import blosc2  # noqa: PLC0415 - installed for the run
    import zstandard  # noqa: PLC0415 - as above

    blosc2.set_nthreads(1)

    def zstd(level: int) -> Codec:
        packer, unpacker = zstandard.ZstdCompressor(level=level), zstandard.ZstdDecompressor()
        return Codec(lambda states: packer.compress(split(states)), lambda packed: joined(unpacker.decompress(packed)))

    def blosc(codec: "blosc2.Codec", filter_: "blosc2.Filter") -> Codec:
        return Codec(
            lambda states: blosc2.compress2(
                states, codec=codec, clevel=1, filters=[filter_], filters_meta=[0], typesize=2, nthreads=1
            ),
            lambda packed: np.frombuffer(blosc2.decompress2(packed, nthreads=1), np.uint16),
        )

    return {
        "none": Codec(lambda states: states.tobytes(), lambda packed: np.frombuffer(packed, np.uint16).copy()),
        "zstd 3, as they are": Codec(
            lambda states: zstandard.ZstdCompressor(3).compress(states.tobytes()),
            lambda packed: np.frombuffer(zstandard.ZstdDecompressor().decompress(packed), np.uint16),
        ),
        "zstd -1, split": zstd(-1),
        "zstd 1, split": zstd(1),
        "zstd 3, split": zstd(3),
        "blosc2 lz4, shuffle": blosc(blosc2.Codec.LZ4, blosc2.Filter.SHUFFLE),
        "blosc2 zstd, shuffle": blosc(blosc2.Codec.ZSTD, blosc2.Filter.SHUFFLE),
        "blosc2 zstd, bitshuffle": blosc(blosc2.Codec.ZSTD, blosc2.Filter.BITSHUFFLE),
    }


def timed(work: Callable[[], object]) -> float:
    """Seconds of a core, the median of the turns."""
    found = []
    for _ in range(TURNS):
        began = time.process_time()
        work()
        found.append(time.process_time() - began)
    return statistics.median(found)


def main(place: Path, count: int) -> None:
    """Print a line for each codec."""
    with tempfile.TemporaryDirectory() as packages:
        install = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target", packages, *CODECS]
        subprocess.run(install, check=True)
        sys.path.insert(0, packages)
        store = StoreReader(place)
        samples = [store[number] for number in range(min(count, len(store)))]
        blocks = [np.ascontiguousarray(array).reshape(-1) for one in samples for array in one[3:]]
        size = sum(block.nbytes for block in blocks)
        print(
            f"{len(samples)} samples of {Path(store.properties.model).name}, {size / 2**20:.0f} MiB of {blocks[0].dtype}"
        )
        print(f"{'':26}{'size':>8}{'write':>16}{'read':>16}")
        for name, codec in codecs().items():
            packed = [codec.pack(block) for block in blocks]
            assert all(np.array_equal(codec.unpack(one), block) for one, block in zip(packed, blocks, strict=True))
            pack = timed(lambda c=codec: [c.pack(block) for block in blocks])
            unpack = timed(lambda c=codec, p=packed: [c.unpack(one) for one in p])
            share = sum(map(len, packed)) / size
            print(f"{name:26}{share:7.1%}{size / pack / 2**20:10.0f} MiB/s{size / unpack / 2**20:10.0f} MiB/s")


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit("usage: python bench/compression.py STORE [SAMPLES]")
    main(Path(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 200)
