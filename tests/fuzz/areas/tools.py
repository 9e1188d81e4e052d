"""What a model may sample where it has tools: calls, parts of calls, words like calls."""

import functools
from typing import Any

from hypothesis import strategies as st

from agentsgym import DirectOutputAgent, tool
from agentsgym.types import GenerationResult
from agentsgym.types.tool_actions import calling
from agentsgym.warm_start.tiny import build_tokenizer
from chat_tokenizers import template, tokenizer_for
from fuzz.areas.sessions import RAISED
from fuzz.oracle import Area
from helpers import CountdownEnv
from rollout.doubles import SumEnv, TextEngine

TEMPLATES = ("qwen2_5", "qwen3", "llama3_1", "glm4moe", "gptoss", "tiny")
OWN_FORM = "\n".join([calling("price", item="tea"), calling("act", action="x")])
CRASHES = tuple(
    f'<tool_call>{{"name": "{name}", "arguments": {{"kind": {kind}}}}}</tool_call>'
    for name in ("crash", "crash_later")
    for kind in range(len(RAISED))
)
PIECES = (
    '<tool_call>\n{"name": "price", "arguments": {"item": "tea"}}\n</tool_call>',
    '<tool_call>{"name": "act", "arguments": {"action": "go"}}</tool_call>',
    '{"name": "price", "parameters": {"item": "milk"}}',
    '<tool_call>{"name": "price", "arguments": {"item": 3, "more": [null]}}</tool_call>',
    '<tool_call>{"name": "none", "arguments": {}}</tool_call>',
    "<tool_call>price\n<arg_key>item</arg_key>\n<arg_value>tea</arg_value>\n</tool_call>",
    '<|channel|>commentary to=functions.price<|message|>{"item": "tea"}<|call|>',
    '<tool_call>{"name": "price", "arguments": ' + "[" * 2000,
    *("<tool_call>", "</tool_call>", "<think>", "</think>", "<|im_end|>", "<|im_start|>"),
    *(OWN_FORM, "4", "ok", "\n", "ä\ud83c", '"}}', "", "<|eot_id|>", "<|python_tag|>"),
)


async def crash_later(kind: int) -> str:
    """Raises in the loop of async tools."""
    raise RAISED[kind]("broken")


class _CrashingEnv(SumEnv):
    """Has tools that raise what no tool should."""

    tools = (crash_later,)

    @tool
    def crash(self, state: Any, kind: int) -> str:
        """Raises."""
        raise RAISED[kind]("\ud800 broken \x1b[2J")


@functools.cache
def tokenizer_of(name: str) -> Any:
    if name == "tiny":
        return build_tokenizer(PIECES[:3], 400, tools=True)
    ends = {"llama3_1": "<|eot_id|>", "glm4moe": "<|user|>", "gptoss": "<|return|>"}
    return tokenizer_for(template(name), ends.get(name, "<|im_end|>"))


class _Engine(TextEngine):
    """Says texts in the tokens that spell them, cut after so many; then "4"."""

    def __init__(self, tokenizer: Any, texts: list[str], most: int) -> None:
        super().__init__(tokenizer)
        self.said: list[tuple[int, ...]] = []
        self._texts, self._most = list(texts), most

    def answer(self, request: Any) -> GenerationResult:
        text = self._texts.pop(0) if self._texts else "4"
        encoded = self.tokenizer.encode(text.encode("utf-8", "replace").decode())
        ids = tuple([*encoded, self.tokenizer.eos_token_id][: self._most])
        self.said.append(ids)
        ending = "stop" if len(ids) == len(encoded) + 1 else "length"
        return GenerationResult(request.session_id, ids, (-1.0,) * len(ids), "", ending)


def check(case: tuple[str, bool, int, list[str]]) -> bool:
    """The rollout is whole: its rows hold the sampled ids in their order, each once, and every call
    that was read has its result, none was read out of words."""
    name, acts, most, texts = case
    tokenizer = tokenizer_of(name)
    engine = _Engine(tokenizer, texts, most)
    config = {"max_steps_per_episode": 4, "error_allowance": 4}
    env = CountdownEnv(tokenizer, {**config, "action_form": "tool"}) if acts else None
    env = env or _CrashingEnv(tokenizer, config)
    (rollout,) = env.run_trial([{"rewards": [0.0] * 9}], DirectOutputAgent(engine)).rollouts
    assert rollout.error is None, rollout.error
    spans = sorted(
        (span.key, tuple(row.token_ids[span.start : span.stop].tolist()))
        for row in rollout.rows
        for span in row.spans
    )
    assert [ids for _, ids in spans] == engine.said
    (episode,) = rollout.episodes
    calls = [call["id"] for one in episode.messages for call in one.get("tool_calls", ())]
    results = [one["tool_call_id"] for one in episode.messages if one["role"] == "tool"]
    assert len(set(calls)) == len(calls)
    assert results == calls[: len(results)]
    open_calls = len(episode.messages[-1].get("tool_calls", ()))
    assert len(results) == len(calls) - open_calls
    for step in episode.steps if not acts else ():
        assert step.info["metrics"]["tool_calls/parsed"] == len(step.answer.tool_calls)
    return True


AREA = Area(
    "tools",
    st.tuples(
        st.sampled_from(TEMPLATES),
        st.booleans(),
        st.sampled_from((4, 40, 4000)),
        st.lists(st.lists(st.sampled_from(PIECES + CRASHES), max_size=4).map("".join), max_size=4),
    ),
    check,
)
