"""Calls of tools: read from the ids that were sampled, and written as the model's template does."""

import functools
import pickle
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from trl.chat_template_utils import add_response_schema

from agentsgym.tokens import ActionText, codec_for
from agentsgym.tokens.template import TemplateFailed
from agentsgym.types import Message
from call_templates import APPROXIMATE, MISTRAL_3, SMOLLM3
from chat_tokenizers import template, tokenizer_for
from helpers import CHATML, build_tokenizer

# Tokens that models have and that their template does not spell as a whole.
MORE = "{# <|return|><|python_tag|><think></think><arg_key></arg_key><arg_value></arg_value> #}"
OWN = (
    "qwen2_5",
    "qwen3",
    "qwen3_5_nothink",
    "llama3_1",
    "gptoss",
    "glm4moe",
    "gemma4",
    "gemma4_v5",
)
TEMPLATES = {**{name: template(name) + MORE for name in OWN}, **APPROXIMATE}
ONE_CALL = {"llama3_1", "gptoss"}  # in an answer
TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "look_up",
            "description": "Looks up.",
            "parameters": {
                "type": "object",
                "properties": {
                    "key": {"type": "string", "description": "a key"},
                    "count": {"type": ["integer", "null"], "description": "a count"},
                    "deep": {"type": "object", "description": "more"},
                },
                "required": ["key"],
            },
        },
    }
]
ARGUMENTS = {
    "key": "\"é\" \n <|im_end|></tool_call><think> 'x' {",
    "count": 3,
    "deep": {"list": [1, True, None, {"a": "b"}], "2": ""},
}
GO = Message("user", "Go.")


def call(arguments, number=0, name="look_up"):
    function = {"name": name, "arguments": arguments}
    return {"type": "function", "id": f"call{number:05d}", "function": function}


def answer(*calls, content=""):
    return Message("assistant", content, tool_calls=calls)


def result(text, number=0):
    call_id = f"call{number:05d}"
    return Message("tool", text, tool_call_id=call_id, name="look_up")


@functools.cache
def codec_with_tools(text):
    return codec_for(tokenizer_for(text)).with_tools(TOOLS)


def sampled(codec, text):
    """The ids of a text in which added tokens are tokens."""
    return codec.control.encode(text)


def begun(codec, text):
    """How many calls begin in a text."""
    message, unread = codec.answer(sampled(codec, text))
    return len(message.tool_calls) + unread


# -- what comes back -------------------------------------------------------------------------------


@pytest.mark.parametrize("name", TEMPLATES)
def test_a_call_comes_back_as_it_was(name):
    codec = codec_with_tools(TEMPLATES[name])
    message, unread = codec.answer(codec.encode_answer(answer(call(ARGUMENTS)), ended=True))
    assert message["tool_calls"] == [call(ARGUMENTS)] and unread == 0


@pytest.mark.parametrize("name", TEMPLATES)
def test_two_calls_in_one_answer_come_back_too(name):
    codec = codec_with_tools(TEMPLATES[name])
    two = answer(call(ARGUMENTS), call({"key": "b"}, 1))
    if name in ONE_CALL:
        with pytest.raises(TemplateFailed):
            codec.encode_answer(two)
        return
    message, unread = codec.answer(codec.encode_answer(two))
    assert message["tool_calls"] == two["tool_calls"] and unread == 0


@pytest.mark.parametrize("name", TEMPLATES)
def test_calls_and_results_stay_one_row_that_is_the_rendering(name):
    codec = codec_with_tools(TEMPLATES[name])
    messages = [GO]
    opening = codec.open(messages)
    row, text = list(opening.token_ids), opening.text
    for step in range(3):
        ids = codec.encode_answer(answer(call(ARGUMENTS, step)), ended=True)
        message, _ = codec.answer(ids, first=step)
        messages += [message, result("<|im_end|>\nYes.<tool_call>", step)]
        bridge = codec.bridge(text, messages, ids)
        row += [*ids, *bridge.delta]
        text = bridge.text
    assert row == list(codec.open(messages).token_ids)


TEXT = st.text(st.characters(codec="utf-8", exclude_characters="\x00"), max_size=8)
PIECES = st.sampled_from(["</tool_call>", "<|im_end|>", '"', "\\", "\n", '<|"|>', "{", "}", "```"])
WORDS = st.lists(TEXT | PIECES, max_size=4).map("".join)
LEAVES = st.none() | st.booleans() | st.integers(-(10**12), 10**12) | WORDS
VALUES = st.recursive(
    LEAVES | st.floats(allow_nan=False, allow_infinity=False),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(WORDS, inner, max_size=3),
    max_leaves=6,
)
AS_JSON = ("qwen2_5", "llama3_1", "gptoss", "mistral_11", "deepseek_31")


@pytest.mark.parametrize("name", AS_JSON)
@settings(max_examples=15, deadline=None)
@given(arguments=st.dictionaries(WORDS, VALUES, max_size=3))
def test_any_arguments_come_back(name, arguments):
    codec = codec_with_tools(TEMPLATES[name])
    message, _ = codec.answer(codec.encode_answer(answer(call(arguments))))
    assert message["tool_calls"] == [call(arguments)]


PLAIN = st.text(st.characters(codec="ascii", categories=["L", "N", "P", "S"]), max_size=12)


@pytest.mark.parametrize("name", ["glm4moe", "qwen3_5_nothink", "gemma4_v5"])
@settings(max_examples=15, deadline=None)
@given(key=PLAIN, count=st.none() | st.integers(), deep=st.dictionaries(st.just("a"), PLAIN))
def test_arguments_without_quotes_have_the_types_of_the_tool(name, key, count, deep):
    codec = codec_with_tools(TEMPLATES[name])
    arguments = {"key": key, "count": count, "deep": deep}
    message, _ = codec.answer(codec.encode_answer(answer(call(arguments))))
    assert message["tool_calls"] == [call(arguments)]


# -- what is a call, and what is not ---------------------------------------------------------------

GOOD = '<tool_call>\n{"name": "look_up", "arguments": {"key": "a"}}\n</tool_call>'
ANSWERS = {
    "qwen2_5": [
        (f"Let me see.\n{GOOD}<|im_end|>", "Let me see.", 1, 1),
        (f"{GOOD}\n{GOOD}<|im_end|>", "", 2, 2),
        (GOOD.removesuffix("</tool_call>"), None, 0, 1),  # cut off
        (f"<tool_call>{{</tool_call>{GOOD}", "", 1, 2),
        ('<tool_call>{"name": "look_up", "arguments": "{}"}</tool_call>', None, 0, 1),
        ('<tool_call>{"name": "look_up", "arguments": {"a": NaN}}</tool_call>', None, 0, 1),
        ('<tool_call>{"name": "look_up", "arguments": {"a": 1e999}}</tool_call>', None, 0, 1),
        ('<tool_call>{"name": 1, "arguments": {}}</tool_call>', None, 0, 1),
        ('<tool_call>{"name": "x", "arguments": {}} and</tool_call>', None, 0, 1),
        ('<tool_call>{"name": "no_such", "arguments": {}}</tool_call>', "", 1, 1),
        (f"<tool_call>{'[' * 100_000}</tool_call>", None, 0, 1),
        (f"<think>{GOOD}</think>yes", None, 0, 0),
        (f"<think>{GOOD}", None, 0, 0),
        (f"<think>a</think>\n{GOOD}", "<think>a</think>", 1, 1),
        ("yes</tool_call>", None, 0, 0),
    ],
    "llama3_1": [
        ('{"name": "look_up", "parameters": {"key": "a"}}<|eot_id|>', "", 1, 1),
        (
            '<|python_tag|>{"name": "a", "parameters": {}}; {"name": "b", "parameters": {}}',
            "",
            1,  # more than the template shows
            2,
        ),
        ('{"name": "look_up", "parameters": {}} is what I call', None, 0, 1),
        ("<|python_tag|>print(1)", None, 0, 1),
        ('{"answer": 1}', None, 0, 0),
    ],
    "gptoss": [
        (
            "<|channel|>analysis<|message|>hm<|end|><|start|>assistant<|channel|>commentary"
            " to=functions.look_up <|constrain|>json<|message|>{}<|call|>",
            "",
            1,
            1,
        ),
        ("<|channel|>final<|message|>to=functions.look_up{}<|return|>", None, 0, 0),
        (" to=functions.look_up<|channel|>commentary json<|message|>{", None, 0, 1),
    ],
    "gemma4": [('<|tool_call>call:look_up{key:<|"|>{a:1}<|"|>}<tool_call|>', "", 1, 1)],
    "mistral_11": [('Yes.[TOOL_CALLS]look_up{"key": "[ARGS]"}</s>', "Yes.", 1, 1)],
    "deepseek_31": [("<｜tool▁call▁begin｜>look_up<｜tool▁sep｜>{}", None, 0, 1)],
}
CASES = [(name, *case) for name, cases in ANSWERS.items() for case in cases]


@pytest.mark.parametrize(("name", "text", "content", "read", "attempted"), CASES)
def test_what_is_a_call(name, text, content, read, attempted):
    tokenizer = tokenizer_for(TEMPLATES[name] + "{# <|constrain|> #}")
    codec = codec_for(tokenizer).with_tools(TOOLS)
    ids = sampled(codec, text)
    message, unread = codec.answer(ids)
    assert (len(message.tool_calls), unread) == (read, attempted - read)
    whole = ActionText(tokenizer, codec.turn_end)(ids)
    assert message["content"] == (whole if content is None else content)


@pytest.mark.parametrize("name", TEMPLATES)
def test_a_call_in_ordinary_tokens_is_text(name):
    codec = codec_with_tools(TEMPLATES[name])
    ids = codec.encode_answer(answer(call({"key": "a"})))
    text = codec._tokenizer.decode(ids)
    spelled = sampled(codec, codec.control.mark(text))
    assert not set(spelled) & codec.control.ids
    message, unread = codec.answer(spelled)
    if name == "llama3_1":  # whose calls have no token of their own
        assert len(message.tool_calls) + unread == 1
    else:
        assert unread == 0 and message["content"] == text


def test_markers_that_are_no_tokens_are_looked_for_in_the_text():
    codec = codec_for(build_tokenizer(SMOLLM3)).with_tools(TOOLS)
    arguments = {"key": "</tool_call><tool_call>"}
    written = codec.encode_answer(answer(call(arguments), content="Look:"))
    message, _ = codec.answer(written)
    assert message == answer(call(arguments), content="Look:")
    assert begun(codec, "<think><tool_call>{}</tool_call>") == 0
    assert begun(codec, "a</think><tool_call>{}</tool_call>b") == 1
    assert begun(codec, "<tool_call>{") == 1


def test_calls_are_numbered_or_keep_the_id_that_was_sampled():
    codec = codec_with_tools(MISTRAL_3)
    ids = [
        one["id"]
        for text in ('"id": "abcDEF123"', '"id": "no"')
        for one in codec.answer(
            sampled(codec, f'[TOOL_CALLS] [{{"name": "a", "arguments": {{}}, {text}}}]'), first=7
        )[0].tool_calls
    ]
    assert ids == ["abcDEF123", "call00007"]


@pytest.mark.parametrize(
    ("body", "arguments"),
    [
        ('my key:<|"|>a, b: {<|"|>,two  words:1', {"my key": "a, b: {", "two  words": 1}),
        ('key:<|"|>a<|"|>, b c :[1, 2],é"\\:None', {"key": "a", "b c": [1, 2], 'é"\\': None}),
        ("deep:{a b:{c d:true}}", {"deep": {"a b": {"c d": True}}}),
    ],
)
def test_keys_without_quotes_may_hold_spaces(body, arguments):
    codec = codec_with_tools(TEMPLATES["gemma4"])
    ids = sampled(codec, f"<|tool_call>call:look_up{{{body}}}<tool_call|>")
    (read,) = codec.answer(ids)[0].tool_calls
    assert read["function"] == {"name": "look_up", "arguments": arguments}


@pytest.mark.parametrize("name", TEMPLATES)
def test_a_key_with_a_space_comes_back(name):
    codec = codec_with_tools(TEMPLATES[name])
    message = answer(call({"my key": "a", "key": "b"}))
    assert codec.answer(codec.encode_answer(message))[0].tool_calls == message.tool_calls


def test_lone_surrogates_are_replaced():
    codec = codec_with_tools(TEMPLATES["qwen2_5"])
    text = r'<tool_call>{"name": "a", "arguments": {"\udc00": "\ud800"}}</tool_call>'
    (one,) = codec.answer(sampled(codec, text))[0].tool_calls
    assert one["function"]["arguments"] == {"�": "�"}


def test_a_format_that_is_unknown_is_read_by_the_tokenizers_own_response_template():
    text = template("lfm2_2_5") + "{# its own #}"
    tokenizer = tokenizer_for(text, "<pad>")
    with pytest.raises(ValueError, match="a format that is known"):
        codec_for(tokenizer).with_tools(TOOLS)
    tokenizer.chat_template = template("lfm2_2_5")
    add_response_schema(tokenizer)
    codec = codec_for(tokenizer).with_tools(TOOLS)
    spelled = "<|tool_call_start|>[look_up(key='a', count=2)]<|tool_call_end|>"
    message, _ = codec.answer(sampled(codec, spelled))
    assert message == answer(call({"key": "a", "count": 2}))
    assert begun(codec, codec.control.mark(spelled)) == 0
    assert codec.answer(sampled(codec, "no"))[0].content == "no"


# -- which templates -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (None, "without a chat template"),
        (CHATML, "does not show tools"),
        (template("cohere2"), "does not show tools"),
        (template("deepseekv3"), "does not show tools"),
        (template("gemma3"), "does not show calls of tools"),
        ("{{ tools }}" + CHATML, "does not show calls of tools"),
        (SMOLLM3.replace("{{ m.content }}", "{{ m.content if m.role != 'tool' }}"), "results"),
    ],
)
def test_a_template_without_tools_is_refused_with_the_families_that_work(text, reason):
    codec = codec_for(build_tokenizer(text))
    assert codec.with_tools([]) is codec
    with pytest.raises(ValueError, match=reason) as refused:
        codec.with_tools(TOOLS)
    assert all(name in str(refused.value) for name in ("Qwen", "Llama 3", "Mistral", "Granite"))


def test_a_codec_with_tools_is_made_once_and_can_be_pickled():
    codec = codec_for(build_tokenizer(SMOLLM3))
    with_tools = codec.with_tools(TOOLS)
    assert codec.with_tools(pickle.loads(pickle.dumps(TOOLS))) is with_tools
    ids = with_tools.encode_answer(answer(call({"key": "a"})))
    again = pickle.loads(pickle.dumps(with_tools))
    assert again.answer(ids) == with_tools.answer(ids)
    assert "look_up" in with_tools.open([GO]).text and "look_up" not in codec.open([GO]).text


@pytest.mark.parametrize("name", [*TEMPLATES, "cohere2", "muse_glimmer", "phi3", "deepseekv3"])
def test_answers_without_calls_are_what_they_were(name):
    tokenizer = tokenizer_for(TEMPLATES.get(name) or template(name))
    codec = codec_for(tokenizer)
    for text in (" yes\n", "<think>\na\n</think>\n\nb", "", '{"a": 1}'):
        ids = sampled(codec, text) + codec.turn_end
        whole = ActionText(tokenizer, codec.turn_end)(ids)
        assert codec.answer(ids)[0] == Message("assistant", whole)


# -- what follows an answer ------------------------------------------------------------------------

QWEN = TEMPLATES["qwen2_5"]
SPACED = '<tool_call>{"name":"look_up","arguments":{"key":"a"}}</tool_call>'


def after(codec, messages, ids, new, text=None):
    opening = codec.open(messages[: -new - 1])
    bridge = codec.bridge(opening.text if text is None else text, messages, ids, new)
    return None if bridge.delta is None else codec._tokenizer.decode(bridge.delta)


@pytest.mark.parametrize(
    ("ending", "begins"), [("<|im_end|>", "\n<|im_start|>"), ("", "<|im_end|>\n<|im_start|>")]
)
def test_only_the_text_after_an_answer_is_encoded(ending, begins):
    codec = codec_with_tools(QWEN)
    ids = sampled(codec, SPACED + ending)
    messages = [GO, codec.answer(ids)[0], result("Yes.")]
    response = "user\n<tool_response>\nYes.\n</tool_response><|im_end|>\n<|im_start|>assistant\n"
    assert after(codec, messages, ids, 1) == begins + response


def test_several_new_messages_of_any_roles():
    codec = codec_with_tools(QWEN)
    ids = sampled(codec, SPACED + "<|im_end|>")
    given = Message("assistant", "Mine.")
    system = Message("system", "Be brief.")
    messages = [GO, codec.answer(ids)[0], result("Yes."), given, system, GO, GO]
    shown = after(codec, messages, ids, 5)
    parts = ("Yes.", "assistant\nMine.<|im_end|>", "system\nBe brief.", "user\nGo.", "user\nGo.")
    at = [shown.find(part) for part in parts]
    assert -1 not in at and at == sorted(at)
    whole = codec.open(messages).text
    assert whole.endswith(shown) and shown.startswith("\n<|im_start|>user\n<tool_response>")


def test_thoughts_are_kept_among_calls_and_dropped_by_the_next_question():
    codec = codec_with_tools(TEMPLATES["qwen3"])
    ids = sampled(codec, f"<think>\nhm\n</think>\n\n{GOOD}<|im_end|>")
    messages = [GO, codec.answer(ids)[0], result("a")]
    assert after(codec, messages, ids, 1).startswith("\n<|im_start|>user\n<tool_response>")
    text = codec.open([GO]).text
    dropped = codec.bridge(text, [*messages, GO], ids, 2)
    assert dropped.delta is None and dropped.rewrites == "thoughts"


def test_tools_that_move_to_the_last_question_begin_a_row():
    codec = codec_with_tools(MISTRAL_3)
    asked = Message("user", "And now?")
    messages = [GO, Message("assistant", "No."), asked]
    bridge = codec.bridge(codec.open([GO]).text, messages, sampled(codec, " No.</s>"))
    assert bridge.delta is None and bridge.rewrites == "earlier"


def test_content_that_a_template_drops_begins_a_row():
    codec = codec_with_tools(SMOLLM3.replace("m.content", "m.content if not m.tool_calls"))
    ids = sampled(codec, f"Look.{GOOD}")
    bridge = codec.bridge(codec.open([GO]).text, [GO, codec.answer(ids)[0], result("a")], ids)
    assert bridge.delta is None and bridge.rewrites == "answer"


def test_after_calls_that_end_with_no_token_a_row_begins():
    codec = codec_for(build_tokenizer(template("llama3_1"))).with_tools(TOOLS)
    message = answer(call({"key": "a"}))
    bridge = codec.bridge(codec.open([GO]).text, [GO, message, result("a")], (9,))
    assert bridge.delta is None and bridge.text == codec.open([GO, message, result("a")]).text


def test_a_prompt_that_begins_a_thought_is_answered_with_its_end():
    thinks = SMOLLM3.replace(
        "assistant\n{% endif %}", "assistant\n<think>\n{% endif %}{# </think> #}"
    )
    codec = codec_with_tools(thinks)
    message = answer(call({"key": "a"}))
    ids = codec.encode_answer(message)
    assert codec._tokenizer.decode(ids).startswith("</think>\n\n")
    assert codec.answer(ids)[0].tool_calls == message.tool_calls
    assert begun(codec, GOOD) == 0  # it is thought
    assert begun(codec, f"hm</think>{GOOD}") == 1


@pytest.mark.parametrize("name", TEMPLATES)
@settings(max_examples=8, deadline=None)
@given(data=st.data())
def test_any_ids_are_an_answer_that_can_be_followed(name, data):
    codec = codec_with_tools(TEMPLATES[name])
    ids = list(codec.encode_answer(answer(call({"key": "a"})), ended=True))
    pieces = st.sampled_from(sorted(codec.control.ids)) | st.sampled_from(ids)
    for _ in range(data.draw(st.integers(0, 5))):
        at = data.draw(st.integers(0, len(ids)))
        ids[at : at + data.draw(st.integers(0, 4))] = data.draw(st.lists(pieces, max_size=2))
    message, unread = codec.answer(ids)
    assert unread >= 0
    calls = message.tool_calls
    new = [replace(result("a"), tool_call_id=one["id"]) for one in calls] or [GO]
    messages = [GO, message, *new]
    bridge = codec.bridge(codec.open([GO]).text, messages, ids, len(new))
    whole = codec.open(messages)
    assert bridge.text == whole.text
    if bridge.delta is not None:
        assert whole.token_ids[-len(bridge.delta) :] == bridge.delta
