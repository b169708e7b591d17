"""A store that a run is given in place of extracting one: imported, or another run's."""

from collections.abc import Iterator
from pathlib import Path

import msgspec

from remote.artifacts.chat_template import hash_chat_template, hash_tokenizer
from remote.artifacts.hidden_states import FORMAT, VERSION, StoreProperties
from remote.artifacts.manifest import MANIFEST_NAME, hash_file, read_manifest
from remote.errors import NotFound, Precondition
from remote.paths import resolve_path
from remote.pipeline.inputs import Target
from remote.pipeline.reuse import Absent, Outdated, Reuse, inspect
from remote.protocol.run import RunConfig

ANOTHER_STORE = "Name a store of this target as extraction.source, or leave it out to extract one."
"""What to do where a given store cannot be learned from."""


def describe_given_store(run: RunConfig, target: Target, root: Path) -> str | None:
    """The hash of the manifest of the store that `run` names, None where it extracts its own.

    Raises NotFound where there is none, Precondition with every difference where it is not one of this target and these layers.
    """
    if run.extraction.source is None:
        return None
    store = resolve_path(root, run.extraction.source)
    if not (store / MANIFEST_NAME).is_file():
        raise NotFound(f"there is no finished store at {store}", hint=ANOTHER_STORE)
    manifest = read_manifest(store)
    if (manifest.format, manifest.version) != (FORMAT, VERSION):
        raise Precondition(
            f"{store} is {manifest.format} version {manifest.version}, no store of states", hint=ANOTHER_STORE
        )
    properties = msgspec.convert(manifest.properties, StoreProperties)
    if differences := list(_differences(run, target, properties)):
        raise Precondition(f"the store {store} does not fit this run: {'; '.join(differences)}", hint=ANOTHER_STORE)
    return hash_file(store / MANIFEST_NAME)


def inspect_given_store(store: Path, *, thorough: bool) -> Reuse:
    """Whether a store that was given is as its manifest says, whatever it was made of."""
    try:
        found = inspect(store, read_manifest(store).fingerprint, thorough=thorough)
    except Precondition as error:
        return Outdated(error.info.message)
    return Outdated(f"{store} is unfinished") if isinstance(found, Absent) else found


def _differences(run: RunConfig, target: Target, properties: StoreProperties) -> Iterator[str]:
    model = Path(target.path)
    if properties.layer_ids != list(run.extraction.layer_ids):
        yield f"it holds layers {properties.layer_ids}, extraction.layer_ids names {list(run.extraction.layer_ids)}"
    if properties.hidden_size != target.hidden_size:
        yield f"its states are {properties.hidden_size} wide, those of the target {target.hidden_size}"
    elif properties.target_config_sha256 != hash_file(model / "config.json"):
        yield f"it was extracted from a model with another config.json than {model} has"
    if properties.tokenizer_sha256 != hash_tokenizer(model):
        yield f"its ids come from another tokenizer than that of {model}"
    if properties.chat_template_sha256 != hash_chat_template(model, run.target.chat_template_kwargs):
        yield f"its conversations were read through another chat template than that of {model}"
    if not properties.samples:
        yield "it holds no samples"
