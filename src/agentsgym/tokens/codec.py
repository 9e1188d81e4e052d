"""Encodes conversations as token ids and never re-encodes a sampled token.

`PlainCodec` is for tokenizers without a chat template. `TemplateCodec` finds out which text the
chat template puts between a sampled action and the next one, and detects a template that rewrites
history.
"""

import json
import logging
import re
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import cached_property, lru_cache
from posixpath import commonprefix
from typing import Any

from agentsgym.tokens.control import ControlTokens
from agentsgym.tokens.plain import (
    THESE_DO,
    Bridge,
    Marking,
    Opening,
    PlainCodec,
    alternates,
    end_of_text,
    message_key,
)
from agentsgym.tokens.speech import ActionText, sampled_answer
from agentsgym.tokens.template import (
    END_OF_THOUGHT,
    LOOK_UP,
    PROBE,
    ChatTemplate,
    TemplateFailed,
    calling,
    rewriting,
    template_source,
)
from agentsgym.tokens.tool_calls import CallReader
from agentsgym.types import Message, Tokenizer, ToolSchema
from agentsgym.types.messages import tool_call

logger = logging.getLogger(__name__)

_MOST_OPENINGS = 1024
_MOST_TOOLS = 64
_MOST_TEXT = 1 << 20  # characters of all of them together
# Answers and observations of the conversations on which a template is tried.
_PLAIN = ("A mouse?", " a\nb\n", "")
_THOUGHT = ("<think>\nhm\n</think>\n\nA horse.", "yes", "<think>a</think>b")
_READ = ("No.", "<tool_response>\nYes.\n</tool_response>", " \n", "Yes.")
_TURNS = 10


class TemplateCodec(Marking):
    """Encodes the text that the tokenizer's chat template adds (its deltas).

    **Templates that append.** Rendering the whole conversation at each step would cost more with
    every step. If a template appends, only the opening (the messages before the first answer), the
    last answer and the new message are rendered, and what follows the opening in that text is
    appended to the row. The result equals a full rendering if the template never changes what it
    wrote before, and if what it writes does not depend on the messages in between. Both are
    checked once per template and roles of the opening, on a conversation of ten turns with texts
    that templates are known to look for, and, before the first conversation with thoughts, on one
    that has some. If any step differs, every step is rendered in full. As a further check each
    conversation is rendered in full whenever its length has doubled.
    """

    def __init__(
        self,
        tokenizer: Tokenizer,
        template_options: Mapping[str, Any] | None = None,
        *,
        special_tokens_meant: bool = False,
    ) -> None:
        self._tokenizer = tokenizer
        self._options = dict(template_options or {})
        self._with_tools: dict[str, TemplateCodec] = {}
        self.template = ChatTemplate(tokenizer, template_options)
        self.control = ControlTokens(tokenizer, self.template)
        self.turn_end = self._turn_end() or end_of_text(tokenizer)
        self._verbatim = special_tokens_meant
        self._appends: dict[tuple[str, ...], bool] = {}
        self._named = ""  # the tools, of which one cache has all openings
        self._opened: dict[tuple[Any, ...], tuple[Opening, list[Message]]] = {}

    def open(self, messages: Sequence[Message]) -> Opening:
        """Render `messages` with the generation prompt and encode the text."""
        return self._opening(messages)[0]

    def with_tools(self, tools: Sequence[ToolSchema]) -> "TemplateCodec":
        """The codec whose template gets these tools; the codec itself if there are none. Raises
        ValueError if the template does not show tools, calls and results."""
        if not tools:
            return self
        key = json.dumps(list(tools), default=str)
        known = self._with_tools.get(key)
        if known is None:
            if self._tools_fault:
                raise ValueError(self._tools_fault)
            shown = tools if self._verbatim else self.control.mark_texts(list(tools))
            options = {**self._options, "tools": list(shown)}
            known = TemplateCodec(self._tokenizer, options, special_tokens_meant=self._verbatim)
            known._opened, known._named = self._opened, key
            if len(self._with_tools) >= _MOST_TOOLS or _too_much(self._with_tools, key):
                self._with_tools.clear()
            self._with_tools[key] = known
        return known

    @cached_property
    def _tools_fault(self) -> str:
        """Why the template cannot be used with tools; "" if it can."""
        probing = ChatTemplate(self._tokenizer, {**self._options, "tools": [LOOK_UP]})
        what = probing.unshown()
        if not what and self._calls.format is None:
            own = getattr(self._tokenizer, "response_template", None)
            what = "" if own else "calls in a format that is known"
        return f"the chat template does not show {what}; {THESE_DO}" if what else ""

    @cached_property
    def _calls(self) -> CallReader:
        ends = {*self.turn_end, *end_of_text(self._tokenizer)}
        text = ActionText(self._tokenizer, ends)
        tools = self._options.get("tools") or ()
        written, prompt = self.template.written_call, self.template.written.at_end
        return CallReader(self._tokenizer, text, written, prompt, tools)

    @cached_property
    def ends(self) -> tuple[int, ...]:
        """Ids at which an answer ends, with and without calls, if the template writes them there.
        Those that stand within an answer too, as gpt-oss's after a thought, do not end it."""
        prompt = self.template.written.at_end
        thinking = sampled_answer(self._tokenizer, prompt, PROBE, PROBE)
        closing = {*self.turn_end[-1:]}
        with suppress(TemplateFailed):
            after = self._after_calls(calling(), 1) if self._options.get("tools") else ""
            closing.update(number for _, number in self.control.leading(after.lstrip())[:1])
        return tuple(sorted(closing - {*self.control.encode(thinking)}))

    @property
    def call_families(self) -> str:
        """Families of models that write calls as this template does."""
        known = self._calls.format
        return known.families if known else "the tokenizer's response template"

    def answer(self, token_ids: Sequence[int], first: int = 0) -> tuple[Message, int]:
        """Sampled ids as a message: content, and the calls of tools in the model's own format,
        numbered from `first`; of several only the first one if the template cannot show more. And
        how many more were begun."""
        message, unread = self._calls(token_ids, first)
        more = len(message.tool_calls) - 1
        if more > 0 and not self._shows_several:
            return replace(message, tool_calls=message.tool_calls[:1]), unread + more
        return message, unread

    @cached_property
    def _shows_several(self) -> bool:
        return self.template.shows_calls(2)

    def encode_answer(self, message: Message, *, ended: bool = False) -> tuple[int, ...]:
        """Token ids of a text agent's answer, as the template writes its calls of tools; with the
        end of its turn if `ended`. Raises TemplateFailed."""
        if not message.tool_calls:
            return self.encode_action(message.content) + (self.turn_end if ended else ())
        calls = message.tool_calls
        answered = [Message("user", "Go."), self._marked(message)]
        results = [
            Message(role="tool", content="", tool_call_id=call["id"], name=call["function"]["name"])
            for call in calls
        ]
        before = self.template.render(answered[:1])
        whole = self.template.render([*answered, *results])
        after = self._after_calls([*answered, *results], len(results))
        written = whole[_kept(before, whole) : len(whole) - len(after)]
        if self._calls.thinks and END_OF_THOUGHT not in written:
            written = f"{END_OF_THOUGHT}\n\n{written}"
        closing = self.control.leading(self._after_calls(answered, 0, prompt=False))
        ending = "".join(token for token, _ in (closing if ended else closing[:-1]))
        ids = self.control.encode(written + ending)
        read, unread = self.answer(ids)
        if len(read.tool_calls) + unread != len(calls):
            raise TemplateFailed("the chat template does not write all calls of an answer")
        return ids

    def bridge(
        self,
        text: str,
        messages: Sequence[Message],
        action_ids: Sequence[int],
        new: int = 1,
    ) -> Bridge:
        """The template's text between an action and the next one. The action is the answer
        `messages[-new - 1]`; the messages after it are new, of any roles.

        `text` is the context as it was rendered before that action. History counts as rewritten if
        the template now renders that context differently, or does not render the action as the
        agent wrote it (ignoring white space around it, and how it writes calls of tools). A
        template that drops earlier `<think>` blocks does so.
        """
        plain = new == 1 and alternates(messages)
        tail, now = self._appended(text, messages) if plain else (None, "")
        if tail is None:
            known = [*map(self._marked, messages)]
            tail, now = self._tail(text, known, new)
        if tail is None:
            was = text + known[-new - 1].content
            return Bridge(None, now, rewriting(was, now, known, new))
        if action_ids:  # the end of turn that was sampled is there already
            tail = self.control.without_leading(tail, action_ids[-1])
        return Bridge(self.control.encode(tail), now)

    def _appended(self, text: str, messages: Sequence[Message]) -> tuple[str | None, str]:
        """As `_tail`, without the messages between opening and action; no tail if it has to be
        found in full."""
        first = next(i for i, message in enumerate(messages) if message.role == "assistant")
        turns = (len(messages) - first) // 2
        opening = messages[:first]
        thinks = END_OF_THOUGHT in text or END_OF_THOUGHT in messages[-2].content
        roles = tuple([message.role for message in opening])
        if not turns & (turns - 1) or not self._only_appends(roles, thinks):
            return None, ""
        head, beginning = self._opening(opening)
        tail, now = self._tail(head.text, [*beginning, *map(self._marked, messages[-2:])])
        return tail, text + now[len(head.text) :]

    def _only_appends(self, roles: tuple[str, ...], thinks: bool) -> bool:
        """Whether the template appends to conversations that begin with messages of these roles,
        and what it appends depends on opening, answer and new message alone."""
        key = (*roles, str(thinks))
        if key not in self._appends:
            try:
                self._appends[key] = all(
                    self._appends_in(roles, answers) for answers in (_PLAIN, _THOUGHT)[: 1 + thinks]
                )
            except TemplateFailed:
                self._appends[key] = False
        return self._appends[key]

    def _appends_in(self, roles: tuple[str, ...], answers: Sequence[str]) -> bool:
        """The same of a conversation with these answers."""
        messages = [Message(role, "Go.") for role in roles]
        opening = tuple(messages)
        head = text = self.template.render(opening)
        for turn in range(_TURNS):
            messages.append(Message("assistant", answers[turn % len(answers)]))
            messages.append(Message("user", _READ[turn % len(_READ)]))
            tail, now = self._tail(text, messages)
            alone, after = self._tail(head, [*opening, *messages[-2:]])
            if tail is None or tail != alone or now != text + after[len(head) :]:
                return False
            text = now
        return True

    def _tail(self, text: str, messages: Sequence[Message], new: int = 1) -> tuple[str | None, str]:
        """The text after the action `messages[-new - 1]` (None: history was rewritten), and the
        whole conversation as it is rendered now. All messages are marked."""
        now = self.template.render(messages)
        answer = messages[-new - 1]
        action = answer.content
        plain = new == 1 and messages[-1].role == "user" and not answer.tool_calls
        around = self._around_user if plain else []
        if around:
            tail = around[1] + messages[-1].content + around[2]
            if len(now) == len(text) + len(action) + len(tail) and now == text + action + tail:
                return tail, now
        return self._probed_tail(text, now, messages, new), now

    def _probed_tail(
        self, text: str, now: str, messages: Sequence[Message], new: int
    ) -> str | None:
        """The text after the action, found by rendering again with a probe as the action, or as the
        arguments of its last call."""
        answer = messages[-new - 1]
        content = answer.content.strip()
        try:
            if answer.tool_calls:
                head, tail = text, self._after_calls(messages, new)
            else:
                head, tail = self._probed(messages, new)
        except TemplateFailed:
            return None
        if head != text or not now.startswith(head) or not now.endswith(tail):
            return None
        middle = now[len(head) : len(now) - len(tail)]
        kept = content in middle if answer.tool_calls else middle.strip() == content
        return tail if kept else None

    def _after_calls(self, messages: Sequence[Message], new: int, *, prompt: bool = True) -> str:
        """The text after the calls of the answer that `new` messages follow, from its end of turn
        on. Raises TemplateFailed."""
        _, tail = self._probed(messages, new, prompt=prompt)
        closer = self._calls.closer
        end = tail.find(closer) + len(closer) if closer in tail else len(tail)
        end = end if closer else self.control.first(tail)
        if prompt and end == len(tail):
            raise TemplateFailed("the chat template writes no token after calls")
        return tail[end:]

    def _probed(
        self, messages: Sequence[Message], new: int, *, prompt: bool = True
    ) -> tuple[str, str]:
        """The conversation, rendered with a probe in place of the answer that `new` messages
        follow, or of the arguments of its last call: the text before and after the probe. Raises
        TemplateFailed if the template does not write it."""
        at = len(messages) - new - 1
        probe = Message("assistant", PROBE)
        if calls := messages[at].tool_calls:
            last = tool_call(calls[-1]["id"], calls[-1]["function"]["name"], {PROBE: 0})
            probe = replace(messages[at], tool_calls=(*calls[:-1], last))
        text = self.template.render([*messages[:at], probe, *messages[at + 1 :]], prompt=prompt)
        head, shown, tail = text.rpartition(PROBE)
        if not shown:
            raise TemplateFailed("the chat template does not write an answer")
        return head, tail

    @cached_property
    def _around_user(self) -> list[str]:
        """The text that a template usually writes before and after a user's message that follows
        an action. It is a guess: callers compare it with the actual rendering."""
        return self.template.parts_around(["user", "assistant", "user"])[1:]

    def _opening(self, messages: Sequence[Message]) -> tuple[Opening, list[Message]]:
        """`messages` and the generation prompt, rendered and encoded; and the messages, marked.
        The rollouts of a group begin alike."""
        key = (self._named, *map(message_key, messages))
        known = self._opened.get(key)
        if known is None:
            beginning = [*map(self._marked, messages)]
            text = self.template.render(beginning)
            known = Opening(self.control.encode(text), text), beginning
            kept = (opening.text for opening, _ in self._opened.values())
            if len(self._opened) >= _MOST_OPENINGS or _too_much(kept, text):
                self._opened.clear()
            self._opened[key] = known
        return known

    def _turn_end(self) -> tuple[int, ...]:
        """The first control token that the template writes after an answer, and white space before
        it."""
        text = self.template.written.after
        start = len(text) - len(text.lstrip())
        closing = self.control.leading(text[start:])
        return self.control.encode(text[:start] + closing[0][0]) if closing else ()


Codec = PlainCodec | TemplateCodec
"""Encodes conversations that alternate between observations and actions. `turn_end` has the tokens
with which the agent ends its turn; where no template writes them, the end-of-text token."""


def warn_rewritten(codec: Codec | None) -> None:
    """Warn, once for each template, that the template's rewriting of history began a new row."""
    _warn_rewritten(codec.template.source if isinstance(codec, TemplateCodec) else None)


@lru_cache(maxsize=64)
def _warn_rewritten(template: str | None) -> None:
    logger.warning(
        "The chat template rewrites earlier turns, and each time it does, a new row begins. The "
        "result is exact, but the whole context is read again each time; `template_breaks` and "
        "`rows_per_rollout` in the metrics count it. chat_template='training' (GRPOEnvConfig) "
        "uses TRL's training template, which only appends, if TRL has one for this model."
    )


def _too_much(kept: Iterable[str], more: str) -> bool:
    """Whether texts are too long to be kept together."""
    return sum(map(len, kept)) + len(more) > _MOST_TEXT


def _kept(before: str, whole: str) -> int:
    """The length of a prompt, as far as it stands before an answer and ends with a whole token."""
    kept = len(commonprefix([before, whole]))
    begun = re.search(r"[<\[][^<>\[\]\s]*$", whole[:kept]) if kept < len(before) else None
    return begun.start() if begun else kept


def codec_for(
    tokenizer: Tokenizer,
    template_options: Mapping[str, Any] | None = None,
    *,
    special_tokens_meant: bool = False,
) -> Codec:
    """The codec for a tokenizer.

    `template_options` are extra arguments for its chat template, as `apply_chat_template` takes
    them (`{"enable_thinking": False}`); the key `"chat_template"` replaces the template. Special
    tokens written in a message become ordinary text, so that no text can forge a turn; with
    `special_tokens_meant` this applies to the assistant's messages only.
    """
    options = dict(template_options or {})
    if tokenizer.chat_template or template_source(tokenizer, options):
        return TemplateCodec(tokenizer, options, special_tokens_meant=special_tokens_meant)
    if options:
        logger.warning("This tokenizer has no chat template, so template options have no effect.")
    return PlainCodec(tokenizer, special_tokens_meant=special_tokens_meant)
