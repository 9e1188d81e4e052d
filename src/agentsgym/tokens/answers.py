"""The text of a sampled answer, with its thoughts, in the form of the model's family.

A scripted answer is then what an engine would return, and not only what an environment reads of it.
"""

from agentsgym.tokens.control import added_tokens
from agentsgym.tokens.speech import BLOCKS, CHANNEL, MESSAGE
from agentsgym.types import Tokenizer

_OPEN, _CLOSE = "<think>", "</think>"


def thoughts_are_off(prompt: str) -> bool:
    """Whether the end of a prompt, the generation prompt, already holds an empty thought."""
    return prompt.rstrip().endswith((_CLOSE, *(close for _, close in BLOCKS)))


def sampled_answer(tokenizer: Tokenizer, prompt: str, answer: str, thought: str = "") -> str:
    """What a model of this tokenizer samples after `prompt` to give `answer`, with a thought before
    it if `thought` is not empty; without the end of turn.

    Of gpt-oss these are messages in channels, of Gemma 4 a block between two special tokens, of
    most others a block `<think>`, which the generation prompt may have opened.
    """
    known = {text for text, _ in added_tokens(tokenizer)}
    if MESSAGE in known:
        return _in_messages(answer, thought, CHANNEL in known)
    if prompt.rstrip().endswith(_OPEN):
        return f"{thought}\n{_CLOSE}\n\n{answer}"
    if not thought:
        return answer
    for first, last in BLOCKS:
        if first in known and last in known:
            head = "thought\n" if first == "<|channel>" else ""
            return f"{first}{head}{thought}{last}{answer}"
    return f"{_OPEN}\n{thought}\n{_CLOSE}\n\n{answer}"


def _in_messages(answer: str, thought: str, channels: bool) -> str:
    """A message with the thought and one with the answer, in channels or to recipients."""
    mine, yours = (
        (f"{CHANNEL}analysis", f"{CHANNEL}final") if channels else (" to=self", " to=user")
    )
    before = f"{mine}{MESSAGE}{thought}<|end|><|start|>assistant" if thought else ""
    return f"{before}{yours}{MESSAGE}{answer}"
