"""What a run's extraction would write, exactly: its conversations are tokenized, and nothing is sent."""

from collections.abc import Mapping
from pathlib import Path

from remote.agents.extraction.filling import DiskPlan, describe_plan
from remote.agents.extraction.samples import read_samples
from remote.artifacts.chat_template import ChatTemplate
from remote.artifacts.hidden_states import StoreProperties
from remote.errors import UsageError
from remote.pipeline import stages
from remote.pipeline.config import load_run
from remote.pipeline.fingerprints import UNDECIDED
from remote.pipeline.inputs import describe_target
from remote.pipeline.stages import UNKNOWN_URL, Blueprint
from remote.protocol.progress import ExtractionPlanned


def plan_extraction(document: str, overrides: Mapping[str, str], *, root: Path) -> ExtractionPlanned:
    """The plan of the extraction of the run file `document`; raises UsageError, NotFound or Precondition where an input is wrong."""
    run = load_run(document, overrides)
    if run.extraction.source is not None:
        raise UsageError(
            f"{run.name} extracts nothing: it learns from the store {run.extraction.source}",
            hint="`roost extraction verify` looks at that; leave extraction.source out to plan an extraction",
        )
    spec = stages.extraction(Blueprint.draw(run, root, UNDECIDED), UNKNOWN_URL)
    target = describe_target(Path(spec.target_model))
    template = ChatTemplate(Path(spec.target_model), spec.chat_template_kwargs)
    samples = read_samples(Path(spec.conversations), template, max_samples=spec.max_samples, max_length=spec.max_length)
    properties = StoreProperties(
        model=spec.target_model,
        layer_ids=spec.capture.layer_ids,
        hidden_size=target.hidden_size,
        dtype=run.engine.dtype,
        final_norm="post_norm",
        target_config_sha256=target.fingerprint,
        tokenizer_sha256=template.tokenizer_sha256,
        chat_template_sha256=template.sha256,
        engine=run.engine.name,
        engine_version="",
    )
    disk = DiskPlan(Path(spec.store), samples.plan, properties, spec.extraction.shard_bytes)
    return describe_plan(samples, disk, template.decode)
