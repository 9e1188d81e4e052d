"""Deltas of local templates are those that the whole conversation gives."""

import random

import pytest

from agentsgym.tokens import TemplateCodec
from agentsgym.tokens.locality import is_local, reads_first_message
from agentsgym.training.warm_start.tiny import CHAT_TEMPLATE
from helpers import CHATML, DROPS_THOUGHT, build_tokenizer

SMOLLM2 = (
    "{% for message in messages %}{% if loop.first and messages[0]['role'] != 'system' %}"
    "{{ '<|im_start|>system\nYou are SmolLM<|im_end|>\n' }}{% endif %}"
    "{{'<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' + '\n'}}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
QUOTES_THE_FIRST = CHATML.replace(
    "m['content']",
    "(messages[0]['content'] if m['role'] == 'user' and not loop.first else '') + m['content']",
)
TRIMS = CHATML.replace("m['content']", "m['content'] | trim")
LOCAL = [CHATML, SMOLLM2, CHAT_TEMPLATE, DROPS_THOUGHT, TRIMS, QUOTES_THE_FIRST]

NOT_LOCAL = [
    # counts messages
    "{% for m in messages %}{{ loop.index0 ~ m['content'] }}{% endfor %}",
    "{% for m in messages %}{% if not loop.last %}{{ m['content'] }}{% endif %}{% endfor %}",
    # looks at others
    "{% for m in messages %}{{ m['content'] + messages[-1]['role'] }}{% endfor %}",
    "{% for m in messages[1:] %}{{ m['content'] }}{% endfor %}",
    "{% for m in messages %}{{ messages | length }}{% endfor %}",
    "{% for m in messages %}{{ loop['index'] }}{% endfor %}",
    "{% for m in messages if m['role'] == 'user' %}{{ m['content'] }}{% endfor %}",
    # writes all first parts, then all second ones
    "{% for m in messages %}{{ m['role'] }}{% endfor %}"
    "{% for m in messages %}{{ m['content'] }}{% endfor %}",
    "{% for i in 'ab' %}{% for m in messages %}{{ m['content'] }}{% endfor %}{% endfor %}",
    # carries state
    "{% set ns = namespace(n=0) %}{% for m in messages %}{% set ns.n = ns.n + 1 %}"
    "{{ ns.n }}{% endfor %}",
    "{% for m in messages %}{% break %}{% endfor %}",
    # asks for something outside
    "{% for m in messages %}{{ now() }}{% endfor %}",
    # no loop, no template, broken
    "{{ messages[0]['content'] }}",
    "{% for m in messages %}",
    None,
    {"default": CHATML},
]


@pytest.mark.parametrize("template", LOCAL)
def test_local_templates_are_recognized(template):
    assert is_local(template)


@pytest.mark.parametrize("template", NOT_LOCAL)
def test_where_in_doubt_a_template_is_not_local(template):
    assert not is_local(template)


@pytest.mark.parametrize("template", LOCAL)
@pytest.mark.parametrize("system", [False, True])
def test_short_rendering_equals_the_whole(template, system):
    tokenizer = build_tokenizer(template)
    short, whole = TemplateCodec(tokenizer), TemplateCodec(tokenizer)
    assert short._local
    whole._local = False
    whole._around = {"user": None}  # two renderings of everything, always
    rng = random.Random(0)
    words = ["yes", " no ", "<think>hm</think>ok", "", "\n", "<|im_end|>", "agent", "a\n\nb "]
    messages = [{"role": "system", "content": "Play."}] if system else []
    messages.append({"role": "user", "content": "Begin."})
    text = short.open(messages).text
    for _ in range(40):
        messages.append({"role": "assistant", "content": rng.choice(words)})
        messages.append({"role": "user", "content": rng.choice(words)})
        ids = (tokenizer.eos_token_id,) if rng.random() < 0.5 else (9,)
        bridge = short.bridge(text, messages, ids)
        assert bridge == whole.bridge(text, messages, ids)
        text = bridge.text


def test_a_delta_costs_the_same_at_any_turn():
    tokenizer = build_tokenizer(CHATML)
    codec = TemplateCodec(tokenizer)
    rendered = []
    render = codec.template.render
    codec.template.render = lambda messages: rendered.append(len(messages)) or render(messages)
    messages = [{"role": "user", "content": "Begin."}]
    text = codec.open(messages).text
    for turn in range(30):
        messages.append({"role": "assistant", "content": "yes"})
        messages.append({"role": "user", "content": f"line {turn}"})
        text = codec.bridge(text, messages, (9,)).text
    assert max(rendered) <= 3
    assert len(rendered) <= 30 + 4


def test_who_looks_at_the_first_message():
    assert [reads_first_message(template) for template in LOCAL] == [
        False,
        True,
        False,
        False,
        False,
        True,
    ]


@pytest.mark.parametrize("template", LOCAL)
def test_what_is_remembered_is_what_a_fresh_codec_gives(template):
    tokenizer = build_tokenizer(template)
    old = TemplateCodec(tokenizer)
    rng = random.Random(1)
    for game in range(30):
        messages = [{"role": "user", "content": rng.choice(["Begin.", "Go."])}]
        fresh = TemplateCodec(tokenizer)
        text = fresh.open(messages).text
        assert old.open(messages) == fresh.open(messages)
        for _ in range(6):
            messages.append({"role": "assistant", "content": rng.choice(["yes", " no", "a b"])})
            messages.append({"role": "user", "content": rng.choice(["more", "stop?"])})
            ids = (tokenizer.eos_token_id,) if game % 2 else (9,)
            fresh = TemplateCodec(tokenizer)
            bridge = fresh.bridge(text, messages, ids)
            assert old.bridge(text, messages, ids) == bridge
            text = bridge.text


def test_a_turn_seen_before_is_not_rendered_again():
    tokenizer = build_tokenizer(CHATML)
    codec = TemplateCodec(tokenizer)
    messages = [{"role": "user", "content": "Begin."}]
    text = codec.open(messages).text
    for _ in range(3):
        messages.append({"role": "assistant", "content": "yes"})
        messages.append({"role": "user", "content": "more"})
        text = codec.bridge(text, messages, (9,)).text
    codec.template = codec.control._tokenizer = None  # neither rendered nor encoded
    messages[0] = {"role": "user", "content": "Another game."}
    assert codec.bridge(text, messages, (9,)).delta
