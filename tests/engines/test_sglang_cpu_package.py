"""What SGLang finds when it looks for kernels on a CPU."""

import os
import subprocess
import sys

from remote.engines.paths import SGLANG_CPU


def run(code: str) -> "subprocess.CompletedProcess[str]":
    environment = {**os.environ, "PYTHONPATH": str(SGLANG_CPU)}
    return subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=False)


def test_kernels_that_are_not_here_import_and_say_so_when_called():
    done = run("from sgl_kernel import topk_softmax_cpu; topk_softmax_cpu(1)")
    assert "NotImplementedError: sgl_kernel.topk_softmax_cpu is not in Roost's CPU stand-in" in done.stderr


def test_cuda_names_are_absent_as_sglangs_guards_expect():
    done = run("from sgl_kernel import rmsnorm")
    assert "ImportError" in done.stderr


def test_amx_kernels_are_not_claimed_whatever_the_processor():
    done = run("import torch, sgl_kernel; print(hasattr(torch.ops.sgl_kernel, 'convert_weight_packed'))")
    assert done.stdout.strip() == "False", done.stderr


def test_attention_is_found_as_an_operator():
    done = run("import torch, sgl_kernel; print(torch.ops.sgl_kernel.decode_attention_cpu.__module__)")
    assert done.stdout.strip() == "sgl_kernel.attention", done.stderr


def test_operators_of_torchvision_are_declared_when_it_is_imported_and_not_before():
    code = (
        "import sys; assert 'torch' not in sys.modules\n"
        "try: import torchvision\n"
        "except ModuleNotFoundError: pass\n"
        "import torch; print(torch.ops.torchvision.nms.default._schema.name)"
    )
    done = run(code)
    assert done.stdout.strip() == "torchvision::nms", done.stderr
