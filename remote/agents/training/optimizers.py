"""What takes a step's gradients to the weights: AdamW for all of them, or Muon for the matrices between states and AdamW for the rest."""

import torch
from torch.optim import AdamW, Muon, Optimizer

from remote.agents.training.model import Drafter
from remote.protocol.run import TrainingConfig

_BETAS = (0.9, 0.95)
_HEAD = "lm_head.weight"


def optimizers(drafter: Drafter, config: TrainingConfig) -> dict[str, Optimizer]:
    """The optimizers of `drafter` by the name that a checkpoint has for their state; together they have each of its parameters once.

    Muon (Jordan et al. 2024, torch.optim.Muon) makes a matrix's step orthogonal. Its steps are scaled to the size of AdamW's (Liu et al.
    2025, "Muon is scalable for LLM training", arXiv:2502.16982), so that both go by one learning rate and one weight decay. The head, whose
    rows are tokens, and the norms stay AdamW's, as there.
    """
    matrices: list[torch.nn.Parameter] = []
    rest: list[torch.nn.Parameter] = []
    for name, parameter in drafter.named_parameters():
        by_muon = config.optimizer == "muon" and parameter.ndim == 2 and name != _HEAD
        (matrices if by_muon else rest).append(parameter)
    rate, decay = config.learning_rate, config.weight_decay
    made: dict[str, Optimizer] = {
        "optimizer": AdamW(rest, lr=rate, betas=_BETAS, weight_decay=decay, fused=True),
    }
    if matrices:
        made["muon"] = Muon(matrices, lr=rate, weight_decay=decay, adjust_lr_fn="match_rms_adamw")
    return made
