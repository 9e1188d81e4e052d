"""A tree of what was read and answered, and the rollout that it makes, without an environment."""

from agentsgym.tokens import Tree
from agentsgym.types import Answer, Episode, Rollout, Step
from helpers import assistant


class Recorded:
    """Records what a test reads and answers."""

    def __init__(self, codec):
        self.tree = Tree(codec)
        self.steps = []

    def act(self, answer):
        self.tree.act(answer)
        node = self.tree.taken()
        self.steps.append(Step(len(self.steps), reward=0.0, done=False, **node.recorded))

    def rollout(self):
        """The rollout so far; what was read last gets no answer."""
        node = self.tree.unanswered()
        rest = node and Step(len(self.steps), reward=0.0, done=False, **node.recorded)
        episode = Episode(0, tuple(self.steps), 0.0, 1.0, "error", rest)
        return Rollout("", 0, 0, "", {}, {}, (episode,), **self.tree.tape())


def sampled(tokenizer, text, end=True, logprob=-0.5):
    """An answer that an engine sampled."""
    ids = tokenizer.encode(text, add_special_tokens=False) + [tokenizer.eos_token_id] * end
    return Answer(assistant(text), tuple(ids), (logprob,) * len(ids))
