"""A filled skeleton is the text that transformers renders, or there is none."""

import functools
import pickle
import random

import pytest

import chat_tokenizers
from agentsgym.tokens import codec_for
from agentsgym.tokens.skeleton import Skeletons
from agentsgym.tokens.template import ChatTemplate
from helpers import CHATML, build_tokenizer

PLAIN = ["yes", "is it red?", "go left, then right", "no"]
ODD = [" no ", "", "\n", "<think>hm</think>ok", "</think>", "a\n\n"]
FILLED = [
    "qwen2_5",
    "qwen3",
    "llama3",
    "gemma3",
    "phi3",
    "deepseekv3",
    "qwen3_5_think",
    "glm4moe",
    "lfm2_2_5",
]
LOOP = "{{% for m in messages %}}{{{{ m['role'] }}}}:{0};{{% endfor %}}"
LOOKS = [
    "{{ m['content'] | length }}",
    "{{ m['content'] | upper }}{{ m['content'] }}",
    "{{ m['content'][:3] }}",
    "{{ m['content'].split('e')[-1] }}",
    "{{ m['content'] | tojson }}",
    "{{ m['content'] | replace('e', 'x') }}",
    "{{ '%s!' % m['content'] | upper }}",
    "{{ ('%s' % m['content']) | length }}",
    "{{ '{}'.format(m['content']) | length }}",
    "{{ (m['content'] ~ 'x') | length }}",
    "{{ (m['content'] + 'x') | trim }}",
    "{{ ['x', m['content']] | join('-') }}",
    "{{ [m['content']] }}",
    "{{ {m['content']: 1} }}",
    "{{ m['content'] in 'is it yes or no' }}",
    "{{ m['content'] in ['yes'] }}",
    "{{ m['content'] < 'm' }}",
    "{{ m['content'] == messages[0]['content'] }}",
    "{{ 'a' if m['content'] else 'b' }}{{ m['content'] }}",
    "{{ 'a' if 'e' in m['content'] else 'b' }}{{ m['content'] }}",
    "{{ 'a' if m['content'].startswith('y') else 'b' }}{{ m['content'] }}",
    "{{ m['content'] | trim }}",
    "{{ m['content'].strip('o') }}",
    "{{ 'a' if m['content'] == 'yes' else m['content'] }}",
    "{% set t %}{{ m['content'] }}{% endset %}{{ t | length }}",
    "{% for c in m['content'] %}{{ c }}.{% endfor %}",
    "{% set ns = namespace(n='') %}{% set ns.n = m['content'] %}{{ ns.n | length }}",
    "{{ m | length }}{{ m.values() | list | join('+') }}",
    "{{ m['content'] is sequence }}{{ m['content'] | first }}",
    "{{ m['content'] * 2 }}",
    "{{ m['content'] | int(7) }}",
    "{{ m['content'] | default('none', true) }}",
]
MACROS = (
    "{% macro same(c) %}{{ c }}{% endmacro %}"
    "{% macro more(c) %}<{{ c }}>{% endmacro %}"
    "{% macro some() %}{{ varargs | length }}{{ varargs[0] }}{{ kwargs.c }}{% endmacro %}"
    "{% macro asks(c) %}{{ 'a' if 'e' in c else c }}{% endmacro %}"
)
WORDS = ["no", "yes", "y", "is it red?", "<b>", "", "count", "\ufdd20\ufdd3", " yes "]
# Ways from a content to a text that is not watched, or to an answer that is not noted.
HIDDEN = [
    "{% set t = m.values() | join(' ') %}{{ 'a' if 'yes' in t else 'b' }}",
    "{% set t = ' '.join(m.values()) %}{{ t[5:7] }}",
    "{% set t = messages | reverse | join(attribute='content') %}{{ 'a' if 'yes' in t else 'b' }}",
    "{{ 'yes' | trim(m.content) }}{{ m.content }}",
    "{% autoescape true %}{{ m.content }}{% endautoescape %}",
    "{% set ns = namespace() %}{% set ns.role = m.content %}{{ ns.role in 'is it yes or no' }}",
    "{{ {'role': m.content}.role not in 'is it yes or no' }}",
    "{{ 'a' if 'x' in m.content in ['yes'] else 'b' }}{{ m.content }}",
    "{{ m.content.number }}{{ m.content.of is defined }}",
    "{{ messages[m.content] is defined }}",
    "{{ 'a' if m.content else '\ufdd20\ufdd3' }}\ufdd2999\ufdd3",
    "{% set t = more(m.content) %}{{ t[1:-1] }}{{ 'a' if 'yes' in t else 'b' }}",
    "{% set t = more(m.content) %}{{ t | length }}",
    "{{ 'a' if more(m.content) == '<yes>' else 'b' }}",
    "{{ 'a' if more(m.content).startswith('<y') else 'b' }}",
    "{% set t = same(m.content) %}{{ 'a' if t == messages[0].content else t }}",
    "{% set t = same(m.content) ~ '' %}{{ t | length }}",
    "{{ some(m.content) | trim }}{{ 'a' if some(m.content, c=m.content) == '2yesyes' else 'b' }}",
    "{{ 'a' if asks(m.content) == 'a' else 'b' }}",
    "{{ 'a' if same('\ufdd2999\ufdd3') else 'b' }}{{ same('\ufdd2999\ufdd3') == 'x' }}",
    "{{ ('<b>' | safe) + m.content }}",
    "{{ m.content + ('x' | e) }}",
    "{% set n = namespace() %}{% set n.c = m.content %}"
    "{{ 'a' if '{0.c!s:.1}'.format(n) == 'y' else 'b' }}",
    "{{ 'a' if loop.previtem and '{0.previtem[content]!s:.1}'.format(loop) == 'y' else 'b' }}",
    "{% generation %}{% set known = true %}{% endgeneration %}"
    "{{ 'a' if known or 'e' not in m.content else 'b' }}",
    "{% macro called(c) %}{% generation %}{{ 'a' if varargs or 'e' not in c else 'b' }}"
    "{% endgeneration %}{% endmacro %}{{ called(m.content, 1) }}",
]


def conversations(words, seed, longest=8):
    """Growing conversations, with a system message and without."""
    rng = random.Random(seed)
    for start in ([], [{"role": "system", "content": "Play."}]):
        messages = list(start)
        for _ in range(longest):
            messages.append({"role": "user", "content": rng.choice(words)})
            yield list(messages)
            messages.append({"role": "assistant", "content": rng.choice(words)})


def fills(template, words, seeds=(1, 2)):
    """How many conversations were filled, after another one of each shape was rendered; all of them
    must be what is rendered."""
    filled = 0
    for seed in (0, *seeds):
        for messages in conversations(words, seed):
            try:
                rendered = template._rendered(messages)
            except ValueError:
                continue
            text = template._skeletons.fill(messages)
            assert text in (None, rendered)
            template._skeletons.learn(messages, rendered)
            filled += text is not None
    return filled


@pytest.mark.parametrize("name", FILLED)
def test_known_templates_are_filled_with_ordinary_texts_and_never_wrongly(name):
    template = ChatTemplate(chat_tokenizers.tokenizer_for(chat_tokenizers.template(name)))

    assert fills(template, PLAIN) >= 16
    fills(template, PLAIN + ODD, seeds=(3, 4))


@pytest.mark.parametrize("look", LOOKS)
def test_a_template_that_looks_into_a_content_is_never_filled_wrongly(look):
    template = ChatTemplate(build_tokenizer(CHATML + LOOP.format(look)))
    fills(template, PLAIN + ODD, seeds=(1, 2, 3))


@pytest.mark.parametrize("look", LOOKS)
@pytest.mark.parametrize("macro", ["same", "more"])
def test_a_template_that_looks_at_what_a_macro_wrote_is_never_filled_wrongly(macro, look):
    looks = LOOP.format(look.replace("m['content']", f"{macro}(m['content'])"))
    template = ChatTemplate(build_tokenizer(CHATML + MACROS + looks))
    fills(template, PLAIN + ODD, seeds=(1,))


def test_macros_are_filled():
    loop = LOOP.format("{% set t = same(m['content']) | trim %}{{ more(t) }}{{ same(more(c=t)) }}")
    assert fills(ChatTemplate(build_tokenizer(MACROS + loop)), PLAIN) >= 16


@pytest.mark.parametrize("look", HIDDEN)
def test_what_one_conversation_taught_holds_for_every_other(look):
    template = ChatTemplate(build_tokenizer(CHATML + MACROS + LOOP.format(look)))
    told = [[user("no"), said("ok")], *([user(a), said(b)] for a in WORDS for b in WORDS)]
    for seed in range(4):
        template._skeletons = Skeletons(*template._fixed())
        for messages in told:
            rendered = template._rendered(messages)
            assert template._skeletons.fill(messages) in (None, rendered)
            template._skeletons.learn(messages, rendered)
        random.Random(seed).shuffle(told)


def user(content):
    return {"role": "user", "content": content}


def said(content):
    return {"role": "assistant", "content": content}


def test_a_skeleton_is_used_only_after_it_gave_a_text_that_was_rendered():
    skeletons = Skeletons("{{ 'a' if messages[0].content else 'b' }}", {})
    skeletons.learn([user("")], "b")
    assert skeletons.fill([user("yes")]) is None
    skeletons.learn([user("yes")], "a")
    assert skeletons.fill([user("no")]) == "a"
    assert skeletons.fill([user("")]) is None


@pytest.mark.parametrize(
    "text", ["\ufdd20\ufdd3", "{{ '\\ufdd20\\ufdd3' }}", "{{ messages[0].role }}"]
)
def test_no_template_and_no_role_can_write_what_stands_for_a_content(text):
    skeletons = Skeletons(text + "{{ messages[0].content }}", {})
    mark = {"role": "\ufdd20\ufdd3", "content": "\ufdd20\ufdd3"}
    skeletons.learn([mark], 2 * mark["content"])
    assert skeletons.fill([mark | {"content": "yes"}]) in (None, mark["role"] + "yes")


def test_generation_blocks_are_filled():
    block = "{% generation %}{{ m['content'] }}{% endgeneration %}"
    assert fills(ChatTemplate(build_tokenizer(LOOP.format(block))), PLAIN) >= 16


def test_messages_with_more_than_role_and_content_are_rendered():
    template = ChatTemplate(build_tokenizer(CHATML + "{{ messages[0].name }}"))
    template.render([user("yes")])
    for name in ("Ann", "Bob"):
        assert template.render([user("yes") | {"name": name}]).endswith(name)


def test_roles_may_be_searched():
    text = CHATML + "{{ 'a' if messages[-1].role in ['user', 'tool'] else 'b' }}"
    assert fills(ChatTemplate(build_tokenizer(text)), PLAIN) >= 16


def test_a_template_is_rendered_once_for_each_length_of_a_conversation(monkeypatch):
    tokenizer = chat_tokenizers.tokenizer_for(chat_tokenizers.template("qwen2_5"))
    template = ChatTemplate(tokenizer)
    rendered = []
    inner = template._rendered
    monkeypatch.setattr(template, "_rendered", lambda ms: rendered.append(len(ms)) or inner(ms))

    for seed in range(5):
        for messages in conversations(PLAIN, seed):
            template.render(messages)

    assert sorted(rendered) == list(range(1, 17))  # odd lengths without a system message


def test_a_method_of_the_users_own_is_always_called():
    tokenizer = build_tokenizer(CHATML)

    class Trimming(type(tokenizer)):
        def apply_chat_template(self, messages, **options):
            messages = [m | {"content": m["content"].strip()} for m in messages]
            return super().apply_chat_template(messages, **options)

    tokenizer.__class__ = Trimming
    template = ChatTemplate(tokenizer)
    for text in ("yes", " yes "):
        assert "yes<" in template.render([{"role": "user", "content": text}])
        assert " yes" not in template.render([{"role": "user", "content": text}])


def test_a_wrapper_around_the_method_of_transformers_is_always_called(monkeypatch):
    tokenizer = build_tokenizer(CHATML)
    inner = type(tokenizer).apply_chat_template

    @functools.wraps(inner)
    def trimmed(self, messages, **options):
        return inner(self, [m | {"content": m["content"].strip()} for m in messages], **options)

    monkeypatch.setattr(type(tokenizer), "apply_chat_template", trimmed)
    template = ChatTemplate(tokenizer)
    for text in ("yes", " yes "):
        assert "\nyes<" in template.render([user(text)])


def test_a_skeleton_that_differs_from_the_rendering_is_dropped_for_good():
    skeletons = Skeletons(CHATML, {})
    messages = [{"role": "user", "content": "yes"}]
    skeletons.learn(messages, "another text")
    assert skeletons.fill(messages) is None


def test_a_template_that_reads_the_clock_is_rendered_each_time():
    skeletons = Skeletons("{{ strftime_now('%S') }}" + CHATML, {})
    messages = [{"role": "user", "content": "yes"}]
    skeletons.learn(messages, "12<|im_start|>user\nyes<|im_end|>\n<|im_start|>assistant\n")
    assert skeletons.fill(messages) is None


def test_codecs_with_skeletons_can_be_pickled():
    codec = codec_for(build_tokenizer(CHATML))
    messages = [{"role": "user", "content": "yes"}]
    opened = codec.open(messages)
    again = pickle.loads(pickle.dumps(codec))
    assert again.open(messages) == opened
