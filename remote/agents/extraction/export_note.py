"""The note beside exported files: of which layers of which model they are, which neither trainer's files say themselves.

It lies at the top as JSON, which SpecForge (`.ckpt` only) and speculators (`hs_<i>.safetensors` by number) pass over.
"""

from pathlib import Path
from typing import Literal

import msgspec

from remote.artifacts.atomic import write_atomic
from remote.artifacts.hidden_states import StoreProperties
from remote.artifacts.manifest import MANIFEST_NAME, hash_file
from remote.errors import Precondition
from remote.protocol.specs import StoreLayout

NOTE_NAME = "roost-export.json"
VERSION = 1


class ExportNote(msgspec.Struct, frozen=True, kw_only=True):
    """What the files of an export are; `final_norm` is that of the files, not of the store."""

    version: int = VERSION
    layout: StoreLayout
    samples: int
    layer_ids: list[int]
    layer_id_meaning: str
    final_norm: Literal["post_norm", "pre_norm"]
    hidden_size: int
    dtype: str
    model: str
    target_config_sha256: str
    tokenizer_sha256: str
    chat_template_sha256: str
    store_manifest_sha256: str


def norm_of(layout: StoreLayout) -> Literal["post_norm", "pre_norm"]:
    """Whether a trainer's files have the final state after or before the target's last norm."""
    return "post_norm" if layout == "specforge" else "pre_norm"


def write_note(directory: Path, layout: StoreLayout, store: Path, properties: StoreProperties) -> None:
    """Say what the files in `directory` are, which were exported from `store`."""
    note = ExportNote(
        layout=layout,
        samples=properties.samples,
        layer_ids=properties.layer_ids,
        layer_id_meaning=properties.layer_id_meaning,
        final_norm=norm_of(layout),
        hidden_size=properties.hidden_size,
        dtype=properties.dtype,
        model=properties.model,
        target_config_sha256=properties.target_config_sha256,
        tokenizer_sha256=properties.tokenizer_sha256,
        chat_template_sha256=properties.chat_template_sha256,
        store_manifest_sha256=hash_file(store / MANIFEST_NAME),
    )
    write_atomic(directory / NOTE_NAME, msgspec.json.format(msgspec.json.encode(note), indent=2) + b"\n")


def read_note(directory: Path) -> ExportNote | None:
    """The note beside exported files, None where there is none; raises Precondition for one that cannot be read."""
    path = directory / NOTE_NAME
    try:
        note = msgspec.json.decode(path.read_bytes(), type=ExportNote)
    except FileNotFoundError:
        return None
    except (msgspec.DecodeError, OSError) as error:
        raise Precondition(f"{path} cannot be read: {error}", hint="export again, or remove it") from error
    if note.version != VERSION:
        raise Precondition(f"{path} is of version {note.version}, not {VERSION}", hint="use the newer Roost")
    return note


def require_as_noted(note: ExportNote, layout: StoreLayout, samples: int, properties: StoreProperties) -> None:
    """Raise Precondition that lists everything in which an import contradicts the note."""
    told = {
        "its layout is {}": (note.layout, layout),
        "its samples are {}": (note.samples, samples),
        "its layer ids are {}": (note.layer_ids, properties.layer_ids),
        "its states are {} wide": (note.hidden_size, properties.hidden_size),
        "its states are {}": (note.dtype, properties.dtype),
        "its final states are {}": (note.final_norm, properties.final_norm),
        "its target is {} by the hash of config.json": _hashes(note, properties, "target_config_sha256"),
        "its tokenizer is {} by its hash": _hashes(note, properties, "tokenizer_sha256"),
        "its chat template with its variables is {} by its hash": _hashes(note, properties, "chat_template_sha256"),
    }
    wrong = [f"{words.format(was)}, not {now}" for words, (was, now) in told.items() if was != now]
    if wrong:
        raise Precondition(
            f"{NOTE_NAME} beside the files, which were exported from a store of {note.model}, says otherwise: {'; '.join(wrong)}",
            hint="import it as it was exported: --layer-ids, --model and --template are to be those of the store",
        )


def _hashes(note: ExportNote, properties: StoreProperties, name: str) -> tuple[str, str]:
    was, now = getattr(note, name), getattr(properties, name)
    return (was[:12], now[:12]) if was != now else ("", "")
