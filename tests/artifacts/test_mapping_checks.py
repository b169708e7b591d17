"""A mapping beside its target, a drafter and a store."""

import json
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file

from remote.artifacts.hidden_states import FORMAT
from remote.artifacts.manifest import Manifest, hash_file, write_manifest
from remote.artifacts.mapping_checks import Companions, validate_against
from remote.errors import NotFound
from tests.artifacts.small_mappings import IDS, VOCAB_SIZE, write_small


@pytest.fixture
def mapping(tmp_path: Path) -> Path:
    write_small(tmp_path / "mapping")
    return tmp_path / "mapping"


def target(place: Path, *, vocab_size: int = VOCAB_SIZE, end: int = 2, special: tuple[int, ...] = (2,)) -> Path:
    place.mkdir()
    (place / "config.json").write_text(json.dumps({"text_config": {"vocab_size": vocab_size}}))
    (place / "generation_config.json").write_text(json.dumps({"eos_token_id": [end]}))
    (place / "tokenizer.json").write_text(
        json.dumps({"added_tokens": [{"id": token, "special": True, "content": f"<{token}>"} for token in special]})
    )
    return place


def found(mapping: Path, **companions: Path) -> dict[str, str]:
    report = validate_against(mapping, Companions(**companions))
    assert report.valid != any(finding.severity == "error" for finding in report.findings)
    return {finding.code: finding.severity for finding in report.findings}


def test_a_target_of_another_size_is_an_error(mapping: Path, tmp_path: Path) -> None:
    assert found(mapping, target_model=target(tmp_path / "same")) == {}
    assert found(mapping, target_model=target(tmp_path / "other", vocab_size=65)) == {"target-vocab-size": "error"}
    (tmp_path / "same/config.json").write_text("{")
    assert found(mapping, target_model=tmp_path / "same") == {"target-unreadable": "error"}
    with pytest.raises(NotFound):
        validate_against(mapping, Companions(target_model=tmp_path / "nowhere"))


def test_a_vocabulary_without_the_end_of_an_answer_is_warned_about(mapping: Path, tmp_path: Path) -> None:
    codes = found(mapping, target_model=target(tmp_path / "m", end=3, special=(2, 3, 4)))
    assert codes == {"end-missing": "warning", "special-missing": "info"}


def test_a_drafter_with_another_vocabulary_is_an_error(mapping: Path, tmp_path: Path) -> None:
    d2t, t2d = np.load(mapping / "d2t.npy"), np.load(mapping / "t2d.npy")
    drafter = tmp_path / "drafter"
    drafter.mkdir()
    assert found(mapping, drafter=drafter) == {"drafter-unreadable": "error"}
    save_file({"d2t": d2t, "t2d": t2d}, drafter / "model.safetensors")
    assert found(mapping, drafter=drafter) == {}
    save_file({"d2t": d2t + np.arange(len(IDS))}, drafter / "model.safetensors")
    assert found(mapping, drafter=drafter) == {"drafter-mapping-differs": "error"}
    save_file({"model.d2t": d2t.astype(np.int32), "t2d": t2d}, drafter / "model.safetensors")
    assert found(mapping, drafter=drafter) == {"drafter-mapping-differs": "error"}
    save_file({"fc.weight": np.zeros(2, np.float32)}, drafter / "model.safetensors")
    assert found(mapping, drafter=drafter) == {"drafter-mapping-missing": "error"}


def store(place: Path, format_: str = FORMAT, **properties: str) -> Path:
    place.mkdir()
    write_manifest(
        place,
        Manifest(
            format=format_,
            version=1,
            fingerprint="f",
            inputs={},
            producer="p",
            created_at=0.0,
            files=[],
            properties=properties,
        ),
    )
    return place


def test_a_store_that_it_was_not_built_from_is_named(mapping: Path, tmp_path: Path) -> None:
    other = store(tmp_path / "other", model="m")
    assert found(mapping, store=other) == {"store-differs": "warning"}
    manifest = json.loads((mapping / "manifest.json").read_text())
    manifest["inputs"]["store"] = hash_file(other / "manifest.json")
    (mapping / "manifest.json").write_text(json.dumps(manifest))
    assert found(mapping, store=other) == {}
    model = target(tmp_path / "m")
    assert found(mapping, store=other, target_model=model) == {"store-tokenizer": "error"}
    assert "store-unreadable" in found(mapping, store=store(tmp_path / "drafter", "roost-drafter"))
