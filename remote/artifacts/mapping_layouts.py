"""The layouts in which trainers keep a mapping, read from their sources:

- roost: five files and a manifest, see `mapping.py`;
- specforge 0.2.0 (`data/preprocessing.py`): `vocab_mapping.pt`, or `<cache key>.pt`, with both tensors by name;
- eagle (`traineagle3/cnets.py`): the same as `cache.pt`;
- speculators up to 0.8: `d2t.npy` and `t2d.npy`; 0.9: `d2t-<D>.npy` and `t2d-<D>.npy`;
- drafter: `d2t` and `t2d` among the tensors of an exported drafter's safetensors, as SGLang, vLLM and speculators load them;
- modelopt 0.47 (`torch/speculative/utils.py`): `d2t.pt` alone, by falling frequency and so not in ascending order.
"""

import re
from pathlib import Path
from typing import NamedTuple

from remote.artifacts.manifest import MANIFEST_NAME, read_manifest
from remote.artifacts.mapping import FILE_NAMES, FORMAT, META_NAME
from remote.artifacts.safetensors_file import open_safetensors
from remote.artifacts.torch_pickle import UnreadableTensor, read_saved
from remote.errors import NotFound, Precondition
from remote.protocol.mappings import MappingLayout, WrittenLayout

LAYOUTS: tuple[WrittenLayout, ...] = ("roost", "specforge", "speculators-0.8", "speculators-0.9", "modelopt", "eagle")

_SPECFORGE, _EAGLE, _MODELOPT = "vocab_mapping.pt", "cache.pt", "d2t.pt"
_SINGLE_FILES: dict[str, WrittenLayout] = {_EAGLE: "eagle", _MODELOPT: "modelopt", _SPECFORGE: "specforge"}
_SIZED = re.compile(r"(d2t|t2d)-(\d+)\.npy")


class MappingPlace(NamedTuple):
    """Where a mapping lies: its layout, the directory, and the names of its files there, which need not exist.

    Each of `offsets` and `masks` holds the files with that tensor; a file with both is in both.
    """

    layout: MappingLayout
    directory: Path
    offsets: tuple[str, ...]
    masks: tuple[str, ...]

    @property
    def names(self) -> tuple[str, ...]:
        """Every file of the layout."""
        if self.layout == "roost":
            return FILE_NAMES
        return tuple(dict.fromkeys((*self.offsets, *self.masks)))


def find_mapping(path: Path) -> MappingPlace:
    """The mapping in the directory `path`, or in the file; raises NotFound where there is none.

    What a manifest says goes first, else the names decide: anything that no other layout would have is taken for Roost's own.
    """
    if path.is_file():
        return _in_file(path)
    if not path.is_dir():
        raise NotFound(f"there is no mapping {path}", hint="name the directory that holds d2t.npy")
    named = _named_by_manifest(path)
    return layout_place(named, path, _sizes(path)) if named is not None else _named_by_files(path)


def _named_by_files(path: Path) -> MappingPlace:
    names = {entry.name for entry in path.iterdir()}
    if not names.isdisjoint(("d2t.npy", "t2d.npy")):
        bare = names.isdisjoint(("d2t.pt", "t2d.pt", META_NAME))
        return layout_place("speculators-0.8" if bare else "roost", path, [])
    if not names.isdisjoint(("t2d.pt", META_NAME)):
        return layout_place("roost", path, [])
    for name in sorted(names & _SINGLE_FILES.keys()):
        return layout_place(_SINGLE_FILES[name], path, [])
    if any(_SIZED.fullmatch(name) for name in names):
        return layout_place("speculators-0.9", path, _sizes(path))
    return _in_cache(path)


def _in_cache(path: Path) -> MappingPlace:
    """The one file of a directory in which SpecForge keeps mappings under the keys of its cache."""
    files = sorted(path.glob("*.pt"))
    if not files:
        return _in_drafter(path, sorted(path.glob("*.safetensors")))
    if len(files) > 1:
        raise Precondition(f"{path} holds {len(files)} .pt files", hint=f"name one: {files[0]}")
    return _in_file(files[0])


def _in_drafter(directory: Path, files: list[Path]) -> MappingPlace:
    """The mapping among the tensors of a drafter; raises NotFound where it has none."""
    held = {file.name: _tensors_of_mapping(file) for file in files}
    offsets = tuple(name for name, stems in held.items() if "d2t" in stems)
    masks = tuple(name for name, stems in held.items() if "t2d" in stems)
    if not offsets:
        raise NotFound(
            f"{directory} holds no mapping" + (": no tensor of its safetensors is a d2t" if files else ""),
            hint="name the directory that holds d2t.npy, a drafter with its own, or a trainer's file",
        )
    return MappingPlace("drafter", directory, offsets, masks)


def _tensors_of_mapping(file: Path) -> set[str]:
    return {name.removeprefix("model.") for name in open_safetensors(file).arrays} & {"d2t", "t2d"}


def layout_place(layout: WrittenLayout, directory: Path, sizes: list[int]) -> MappingPlace:
    """The files of `layout` in `directory`; `sizes` are those of the draft vocabularies whose names have them."""
    match layout:
        case "specforge":
            return MappingPlace(layout, directory, (_SPECFORGE,), (_SPECFORGE,))
        case "eagle":
            return MappingPlace(layout, directory, (_EAGLE,), (_EAGLE,))
        case "modelopt":
            return MappingPlace(layout, directory, (_MODELOPT,), ())
        case "speculators-0.8":
            return MappingPlace(layout, directory, ("d2t.npy",), ("t2d.npy",))
        case "speculators-0.9":
            if len(sizes) > 1:
                raise Precondition(
                    f"{directory} holds mappings of {', '.join(map(str, sizes))} tokens",
                    hint=f"name one: {directory / f'd2t-{sizes[0]}.npy'}",
                )
            size = sizes[0] if sizes else 0
            return MappingPlace(layout, directory, (f"d2t-{size}.npy",), (f"t2d-{size}.npy",))
        case "roost":
            return MappingPlace(layout, directory, ("d2t.npy", "d2t.pt"), ("t2d.npy", "t2d.pt"))


def size_in_name(name: str) -> int | None:
    """The size of the draft vocabulary that a file's name says."""
    found = _SIZED.fullmatch(name)
    return int(found[2]) if found else None


def _in_file(path: Path) -> MappingPlace:
    if path.suffix == ".npy":
        size = size_in_name(path.name)
        layout: WrittenLayout = "speculators-0.8" if size is None else "speculators-0.9"
        return layout_place(layout, path.parent, [] if size is None else [size])
    if path.suffix == ".safetensors":
        return _in_drafter(path.parent, [path])
    try:
        holds_both = isinstance(read_saved(path), dict)
    except UnreadableTensor as error:
        raise Precondition(f"{path} is no mapping: {error}", hint="name a mapping's directory or file") from error
    if not holds_both:
        return MappingPlace("modelopt", path.parent, (path.name,), ())
    layout = "eagle" if path.name == _EAGLE else "specforge"
    return MappingPlace(layout, path.parent, (path.name,), (path.name,))


def _sizes(directory: Path) -> list[int]:
    return sorted({size for entry in directory.iterdir() if (size := size_in_name(entry.name)) is not None})


def _named_by_manifest(directory: Path) -> WrittenLayout | None:
    if not (directory / MANIFEST_NAME).is_file():
        return None
    try:
        manifest = read_manifest(directory)
    except Precondition:
        return "roost"
    if manifest.format != FORMAT:  # a drafter of Roost's own, say
        return None
    named = manifest.properties.get("layout", "roost")
    known: list[WrittenLayout] = [layout for layout in LAYOUTS if layout == named]
    return known[0] if known else "roost"
