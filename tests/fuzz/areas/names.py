"""Names, keys and values that are parts of control tokens, in tools, calls, results, contents."""

from collections import Counter
from typing import Any

from hypothesis import strategies as st
from tokenizers import AddedToken, normalizers

from agentsgym.tokens import codec_for
from agentsgym.types import Message, ToolSchema
from call_templates import APPROXIMATE
from chat_tokenizers import THOUGHTS, template, tokenizer_for, tokens_of
from fuzz.oracle import Area, refused_with
from helpers import build_tokenizer

REAL = ("qwen2_5", "qwen3", "qwen3_6", "qwen3_8", "nemotron_3_nano", "glm4moe", "llama3_1",
        "gptoss", "gemma4_v5")  # fmt: skip
TEMPLATES = {**{name: template(name) for name in REAL}, **APPROXIMATE}
SHOUTING = (
    "{% for tool in tools %}<{{ tool.function.name }}>{{ tool | tojson }}{% endfor %}"
    "{% for m in messages %}<TURN>{{ m.role }} {{ m.content }}{% for call in m.tool_calls or [] %}"
    "<tool_call>{{ call.function | tojson }}</tool_call>{% endfor %}<END>{% endfor %}"
    "{% if add_generation_prompt %}<TURN>assistant {% endif %}"
)


def _shouting() -> Any:
    """A tokenizer that lower-cases before it looks for added tokens."""
    tokenizer = build_tokenizer(SHOUTING)
    tokens = ("<TURN>", "<END>", "<tool_call>", "</tool_call>")
    tokenizer.add_tokens([AddedToken(token, special=True, normalized=True) for token in tokens])
    tokenizer.backend_tokenizer.normalizer = normalizers.Lowercase()
    return tokenizer


TOKENIZERS = {name: tokenizer_for(text) for name, text in TEMPLATES.items()}
TOKENIZERS["shouting"] = _shouting()
SPELLED = {name: tokens_of(TEMPLATES.get(name, SHOUTING)) for name in TOKENIZERS}


def _words(name: str) -> st.SearchStrategy[str]:
    """Texts that begin, end or are with a part of a control token, and perhaps with whole ones; a
    whole thought would stay the agent's."""
    cuts = st.sampled_from([(0, 1), (0, 1), (0, 2), (1, 1), (1, 0), (2, 0)])
    parts = st.tuples(st.sampled_from(SPELLED[name]), cuts).map(
        lambda drawn: drawn[0][drawn[1][0] : len(drawn[0]) - drawn[1][1]]
    )
    whole = st.sampled_from([token for token in SPELLED[name] if token not in THOUGHTS])
    pieces = parts | st.sampled_from(["x", " ", "\n", "é"]) | whole
    words = (
        parts | st.tuples(pieces, parts).map("".join) | st.lists(pieces, max_size=4).map("".join)
    )
    return words.map(lambda word: word if word.strip() else "x").filter(_is_name)


def _is_name(text: str) -> bool:
    return not any(thought in text for thought in THOUGHTS)


CASES = st.sampled_from(sorted(TOKENIZERS)).flatmap(
    lambda name: st.tuples(st.just(name), st.lists(_words(name), min_size=7, max_size=7))
)


def _tool(name: str, key: str, extra: str) -> ToolSchema:
    leaf = {"type": "string", "description": extra, extra: extra}
    parameters = {"type": "object", "properties": {key: leaf}, "required": [key], extra: 1}
    return {"type": "function", "function": {"name": name, "description": extra,
                                             "parameters": parameters}}  # fmt: skip


def _controls(name: str, words: list[str]) -> Counter[int]:
    """The control tokens of a conversation in which things are called so."""
    tool, key, extra, value, result, question, content = words
    codec = codec_for(TOKENIZERS[name]).with_tools([_tool(tool, key, extra)])
    function = {"name": tool, "arguments": {key: value, extra: [value]}}
    call: Any = {"type": "function", "id": "call00000", "function": function}
    ids = codec.open(
        [
            Message("user", question),
            Message("assistant", "", tool_calls=(call,)),
            Message("tool", result, tool_call_id="call00000", name=tool),
            Message("assistant", content),
            Message("user", question),
        ]
    ).token_ids
    return Counter(number for number in ids if number in codec.control.ids)


def check(case: tuple[str, list[str]]) -> bool:
    """They write no control token that other names do not write."""
    name, (*words, content) = case
    # Tokens that structure an answer stay tokens in what the agent says.
    words.append("x" if any(token in content for token in SPELLED[name]) else content)
    try:
        found = _controls(name, words)
    except ValueError as error:
        return refused_with(error)
    harmless = {word: f"word{number}" for number, word in enumerate(words)}  # equal keys stay equal
    assert found == _controls(name, [harmless[word] for word in words])
    return True


AREA = Area("forged names and keys", CASES, check)
