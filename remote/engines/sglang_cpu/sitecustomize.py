"""Lets PyPI's torchvision be imported beside a CPU build of torch.

Its compiled part does not load there, so `import torchvision` fails on "operator torchvision::nms does not exist". Declaring
the operators, which no text model calls, is enough. Python imports this module at start when its directory is on PYTHONPATH.
"""

import importlib.abc
import importlib.machinery
import sys
from collections.abc import Sequence
from types import ModuleType

_OPERATORS = [
    "nms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
    "qnms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
    *(
        f"{name}(Tensor a) -> Tensor"
        for name in (
            "roi_align",
            "_roi_align_backward",
            "ps_roi_align",
            "_ps_roi_align_backward",
            "roi_pool",
            "_roi_pool_backward",
            "ps_roi_pool",
            "_ps_roi_pool_backward",
            "qroi_align",
            "deform_conv2d",
            "_deform_conv2d_backward",
        )
    ),
]


class _DeclareOperators(importlib.abc.MetaPathFinder):
    """Declares the operators when torchvision is about to be imported, then steps aside."""

    library: object = None

    def find_spec(
        self,
        fullname: str,
        path: Sequence[str] | None = None,  # noqa: ARG002 - the interface of a finder
        target: ModuleType | None = None,  # noqa: ARG002
    ) -> importlib.machinery.ModuleSpec | None:
        if fullname == "torchvision":
            sys.meta_path.remove(self)
            import torch  # noqa: PLC0415 - costs a second and is needed only now

            library = torch.library.Library("torchvision", "DEF")
            for operator in _OPERATORS:
                library.define(operator)
            _DeclareOperators.library = library  # the declarations live as long as the library object
        return None


sys.meta_path.insert(0, _DeclareOperators())
