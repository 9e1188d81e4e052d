"""An embedded engine over a copy of the trained model, in this process."""

import copy

import torch

from agentsgym.generation.embedded.engine import EmbeddedEngine


class CopyEngine(EmbeddedEngine):
    """May sample while the original is trained; takes weights with no request open."""

    can_generate_ahead = True

    def __init__(self, model, tokenizer, **options):
        super().__init__(copy.deepcopy(model), tokenizer, **options)
        self.versions = []

    def update_weights(self, update):
        assert not self._requests
        with torch.no_grad():
            pairs = zip(self.model.parameters(), update.model.parameters(), strict=True)
            for ours, trained in pairs:
                ours.copy_(trained)
        self.reset()
        self.policy_version = update.version
        self.versions.append(update.version)
