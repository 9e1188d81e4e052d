"""The context is what the template renders, at a cost that does not grow where it only appends."""

import pickle
import random

import pytest

from agentsgym.tokens import codec_for
from agentsgym.tokens.template import LOOK_UP
from agentsgym.types import Message
from call_templates import SMOLLM3
from chat_tokenizers import ALL, template, tokenizer_for
from helpers import CHATML, DROPS_THOUGHT, assistant, build_tokenizer, user

TEXTS = [
    *("yes", " no ", "", "\n", "a\n\nb ", "<answer>x</answer>", "<tool_response>x</tool_response>"),
    *("<think>hm</think>ok", "<think>\nlong\n</think>\n\nanswer", "</think>"),
]
# Templates whose text for a message depends on more than opening, last answer and new message.
LOOKS_AROUND = [
    "{% for m in messages %}{{ loop.index0 ~ m['content'] }}{% endfor %}",
    "{% for m in messages %}{% if not loop.last %}{{ m['content'] }}{% endif %}{% endfor %}"
    "{{ messages[-1]['content'] }}",
    "{% for m in messages %}{{ m['content'] + messages[-1]['role'] }}{% endfor %}",
    "{% for m in messages %}{{ m['content'] }}{{ messages | length }}{% endfor %}",
    "{% for m in messages %}{{ m['role'] }}{% endfor %}"
    "{% for m in messages %}{{ m['content'] }}{% endfor %}",
    "{% set ns = namespace(n=0) %}{% for m in messages %}{% set ns.n = ns.n + 1 %}"
    "{{ m['content'] }}{{ ns.n }}{% endfor %}",
    CHATML + "{{ messages[-3].content if messages | length > 2 }}",
    DROPS_THOUGHT,
]


def turns(texts, seed, count=6):
    """Growing conversations, each one turn longer."""
    rng = random.Random(seed)
    messages = [Message("system", "Play.")] if seed % 2 else []
    messages.append(user(rng.choice(texts)))
    for _ in range(count):
        yield messages
        messages = [*messages, assistant(rng.choice(texts)), user(rng.choice(texts))]


def check_contexts(tokenizer, texts, seed):
    """At each turn the codec's context is the whole conversation as the template renders it."""
    codec = codec_for(tokenizer)
    context = None
    for messages in turns(texts, seed):
        try:
            whole = codec.open(messages).text
        except ValueError:  # the template refuses the conversation
            return
        context = whole if context is None else codec.bridge(context, messages, (9,)).text
        assert context == whole


@pytest.mark.parametrize("name", ALL)
def test_a_context_is_what_the_template_of_a_model_renders(name):
    tokenizer = tokenizer_for(template(name))
    check_contexts(tokenizer, TEXTS[:-3], 0)
    check_contexts(tokenizer, TEXTS, 1)


@pytest.mark.parametrize("text", LOOKS_AROUND)
def test_a_context_is_what_an_odd_template_renders(text):
    for seed in range(4):
        check_contexts(build_tokenizer(text), TEXTS, seed)


def rendered_lengths(text, texts, count):
    """The numbers of messages that are rendered at each turn, once the template has been tried."""
    codec = codec_for(tokenizer_for(text))
    conversations = list(turns(texts, 0, count))
    context = codec.open(conversations[0]).text
    for messages in conversations[1:4]:
        context = codec.bridge(context, messages, (9,)).text
    lengths = []
    render = codec.template.render

    def counted(messages, **options):
        lengths[-1].append(len(messages))
        return render(messages, **options)

    codec.template.render = counted
    for messages in conversations[4:]:
        lengths.append([])
        context = codec.bridge(context, messages, (9,)).text
    return dict(enumerate(lengths, 4))


@pytest.mark.parametrize("text", [CHATML, template("llama3"), template("qwen2_5")])
def test_a_turn_costs_the_same_at_any_length_but_where_it_has_doubled(text):
    lengths = rendered_lengths(text, ["yes", "no"], 40)
    assert [turn for turn, counts in lengths.items() if counts != [3]] == [4, 8, 16, 32]


def test_what_no_trial_showed_begins_a_row_when_the_length_has_doubled():
    late = "{% if messages | length > 30 %}Late.{% endif %}"
    codec = codec_for(build_tokenizer(late + CHATML))
    conversations = list(turns(["yes"], 0, 40))
    context = codec.open(conversations[0]).text
    broken = []
    for turn, messages in enumerate(conversations[1:], 1):
        bridge = codec.bridge(context, messages, (9,))
        context = bridge.text
        if bridge.delta is None:
            broken.append((turn, bridge.rewrites))
    assert broken == [(16, "earlier")]
    assert context.startswith("Late.")


def test_codecs_can_be_pickled():
    codec = codec_for(build_tokenizer(CHATML))
    opened = codec.open([user("yes")])
    assert pickle.loads(pickle.dumps(codec)).open([user("yes")]) == opened


def test_what_is_kept_of_conversations_is_bounded_in_size():
    codec = codec_for(tokenizer_for(SMOLLM3))
    for number in range(90):
        tools = [{**LOOK_UP, "function": {**LOOK_UP["function"], "name": f"t{number % 3}"}}]
        codec.with_tools(tools).open([user(f"{number} " * 8_000)])
    assert len(pickle.dumps(codec)) < 6_000_000
