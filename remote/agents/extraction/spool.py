"""What the capture plugin leaves in its spool, checked before it is believed."""

import json
import time
from pathlib import Path
from typing import NamedTuple, cast

import numpy as np

from remote.agents.room import Shortage, free_at
from remote.artifacts.hidden_states import Sample
from remote.artifacts.safetensors_file import TAG_OF_DTYPE, open_safetensors
from remote.artifacts.store_check import fault_of_states
from remote.artifacts.store_plan import Planned
from remote.errors import Precondition, WorkFailed
from remote.protocol.run import Dtype

_OLDEST_MARKER_S = 60.0
_DTYPE_OF_TAG: dict[str, Dtype] = {tag: cast("Dtype", dtype) for dtype, tag in TAG_OF_DTYPE.items()}


def check_ready(spool: Path, layer_ids: list[int]) -> dict[str, str]:
    """Engine name and version from the plugin's ready marker; raises Precondition when it is missing or captures other layers."""
    markers = sorted(spool.glob("ready-rank*.json"))
    if not markers:
        raise Precondition(f"no capture plugin is ready at {spool}", hint="start the server with capture")
    marker = json.loads(markers[0].read_bytes())
    if marker["layer_ids"] != layer_ids:
        raise Precondition(
            f"the server captures layers {marker['layer_ids']}, the run asks for {layer_ids}",
            hint="start the server again with this run's extraction.layer_ids",
        )
    return {"engine": marker["engine"], "engine_version": marker["engine_version"]}


def raise_plugin_error(spool: Path) -> None:
    """Raise WorkFailed with the plugin's own words when it has failed."""
    for path in sorted(spool.glob("error-rank*.json")):
        detail = json.loads(path.read_bytes()).get("error", "no reason given")
        raise WorkFailed(f"the capture plugin failed: {detail}", hint="the server's log has the traceback")


def find_waiting(spool: Path) -> Shortage | None:
    """What the capture plugin waits for room for; None when it does not, or has not said so for a minute."""
    for path in sorted(spool.glob("waiting-rank*.json")):
        if time.time() - path.stat().st_mtime > _OLDEST_MARKER_S:
            continue
        try:
            told = json.loads(path.read_bytes())
        except ValueError:  # read while it was overwritten
            continue
        if told:
            wanted = Path(told["path"])
            return Shortage(wanted, free_at(wanted), int(told["bytes_needed"]), 1, str(told["refusal"]))
    return None


class Spooled(NamedTuple):
    """A checked request: its sample, and the dtype of its states."""

    sample: Sample
    dtype: Dtype


def read_spooled(path: Path, item: Planned, layers: int) -> Spooled:
    """The states of one request, still in the file; raises WorkFailed when a row is missing, of another token, not finite or
    all zero.
    """
    tensors = open_safetensors(path)
    hidden, final = tensors.arrays["hidden_states"], tensors.arrays["final_hidden_states"]
    count = len(item.input_ids)
    if hidden.shape[:2] != (count, layers) or final.shape[0] != count:
        raise _bad(f"{hidden.shape[0]} rows of {hidden.shape[1]} layers instead of {count} of {layers}")
    if not np.array_equal(tensors.arrays["input_ids"], item.input_ids):
        raise _bad("states of other tokens than were sent")
    if (fault := fault_of_states(hidden, final)) is not None:
        raise _bad(fault)
    sample = Sample(item.sample_id, item.input_ids, item.loss_mask, hidden, final)
    return Spooled(sample, _DTYPE_OF_TAG[tensors.tags["hidden_states"]])


def _bad(what: str) -> WorkFailed:
    return WorkFailed(f"the engine gave {what}", hint="the capture is not to be trusted; see the server's log")
