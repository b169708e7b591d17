"""An SGLang 0.5.23 plugin that writes the hidden states of our own requests to a spool directory.

SGLang captures them itself (`--enable-return-aux-hidden-states`) and leaves them on the device for in-process consumers:
`hidden_states` [rows, L * H] and the post-norm `last_hidden_states` [rows, H] (`srt/layers/logits_processor.py`). A hook after
`ModelRunner.forward` copies the rows of requests named `roost-…`, joins the chunks of a chunked prefill by position, and hands
whole requests to a writer thread (`roost_capture_spool`). Without `ROOST_CAPTURE_SPOOL` all that the plugin does is to let no full disk break what
prints to the log.
"""

import os

from . import steady_log

_BATCH = "sglang.srt.model_executor.forward_batch_info.ForwardBatch.init_new"
_FORWARD = "sglang.srt.model_executor.model_runner.ModelRunner.forward"


def register() -> None:
    """The plugin's entry point, called by SGLang in each of its processes."""
    steady_log.install()
    if not os.environ.get("ROOST_CAPTURE_SPOOL"):
        return
    # Imported here: torch and SGLang exist only inside the engine, and the plugin is also found by processes that lack a spool.
    from roost_capture_spool import Setting  # noqa: PLC0415
    from sglang.srt.plugins.hook_registry import HookRegistry, HookType  # noqa: PLC0415

    from .hook import CaptureHook  # noqa: PLC0415

    setting = Setting.from_environment()
    assert setting is not None, "there is a spool"
    hook = CaptureHook(setting)
    HookRegistry.register(_BATCH, hook.note_prompts, HookType.AFTER)
    HookRegistry.register(_FORWARD, hook.take, HookType.AFTER)
