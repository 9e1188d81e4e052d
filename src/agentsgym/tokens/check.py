"""What there is to know about a tokenizer before a model is trained with it."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from agentsgym.tokens.codec import Codec, PlainCodec, TemplateCodec, codec_for
from agentsgym.tokens.transcript import Transcript
from agentsgym.types import Action, Message, Tokenizer

_PLAIN = "Is it an animal?"
_THOUGHT = "<think>\nhm\n</think>\n\nIs it an animal?"


@dataclass(frozen=True, slots=True)
class TokenCheck:
    """How a tokenizer and its chat template treat a conversation of several turns.

    `append_only` says whether a conversation of plain answers stays one row, and
    `thoughts_append_only` the same of answers that think (`<think>`); None where the template
    refuses the conversation. `forgeable` lists the control tokens that a text can forge because
    the tokenizer knows no other way to encode them. `after_answer` are the control tokens that
    follow an answer, its end of turn first. `default_system_prompt` is what the template puts
    where no system prompt was given, and `dated` whether it writes today's date.
    """

    has_template: bool
    append_only: bool | None = True
    thoughts_append_only: bool | None = True
    forgeable: tuple[str, ...] = ()
    after_answer: tuple[str, ...] = ()
    default_system_prompt: str = ""
    dated: bool = False

    @property
    def remarks(self) -> tuple[str, ...]:
        """What a trainer should know, a sentence each; empty where there is nothing."""
        prompt = self.default_system_prompt
        said = {
            "the chat template starts the context anew after plain answers": (
                self.append_only is False
            ),
            "the chat template starts the context anew after answers that think": (
                self.thoughts_append_only is False
            ),
            "the chat template refuses a conversation of several turns": self.append_only is None,
            f"a text can forge {', '.join(self.forgeable)}": bool(self.forgeable),
            f"the chat template brings a system prompt of its own: {prompt!r}": bool(prompt),
            "the chat template writes today's date": self.dated,
        }
        return tuple(sentence for sentence, holds in said.items() if holds)


def inspect_tokenizer(
    tokenizer: Tokenizer, template_options: Mapping[str, Any] | None = None
) -> TokenCheck:
    """Look at a tokenizer and its chat template with a few short conversations.

    Raises ValueError as `codec_for` does for a template that can't be used.
    """
    codec = codec_for(tokenizer, template_options)
    if isinstance(codec, PlainCodec):
        return TokenCheck(False, forgeable=tuple(codec.control.unspellable()))
    assert isinstance(codec, TemplateCodec)
    return TokenCheck(
        True,
        append_only=_only_appends(codec, _PLAIN),
        thoughts_append_only=_only_appends(codec, _THOUGHT),
        forgeable=tuple(codec.control.unspellable()),
        after_answer=tuple(codec.control.leading_tokens(codec.written.after)),
        default_system_prompt=codec.template.default_system_prompt(),
        dated=codec.template.dated,
    )


def _only_appends(codec: Codec, answer: str) -> bool | None:
    transcript = Transcript(codec)
    messages: list[Message] = [{"role": "user", "content": "Go."}]
    try:
        transcript.observe(messages)
        for step in range(3):
            transcript.act(Action(answer), 0, step)
            messages.append({"role": "assistant", "content": answer})
            messages.append({"role": "user", "content": f"No, {step}."})
            transcript.observe(messages)
    except Exception:  # a template may refuse any conversation with any exception
        return None
    return len(transcript.rows) == 1
