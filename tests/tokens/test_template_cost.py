"""A stranger's chat template can't take the machine."""

import time

import pytest

from agentsgym.tokens import codec_for, template_cost
from agentsgym.tokens.template_cost import TemplateRefused, check_cost
from agentsgym.training.warm_start.tiny import CHAT_TEMPLATE
from chat_tokenizers import ALL, template
from helpers import CHATML, DROPS_THOUGHT, build_tokenizer

DIGITS = "['a','b','c','d','e','f','g','h','i','j']"
LOOPS = "".join(f"{{% for v{i} in {DIGITS} %}}" for i in range(9)) + "a" + "{% endfor %}" * 9
DOUBLED = "{% set a = 'aaaaaaaaaa' %}" + "{% set a = a + a %}" * 40
TAKES_ALL = {
    "power": "{{ 'a' * 10 ** 10 }}",
    "number": "{{ 'a' * 9999999999 }}",
    "product": "{{ 'a' * 99999 * 99999 }}",
    "loops": LOOPS,
    "ranges": "{% for a in range(9999) %}{% for b in range(9999) %}{% endfor %}{% endfor %}",
    "doubled": DOUBLED,
    "format": "{{ '%1999999d' % 1 }}" * 40,
    "joined": "{% set a = 'a' * 9999 %}{% set a = a.join(a) %}{{ a.join(a) }}",
    "later": "{% if messages | length == 7 %}" + LOOPS + "{% endif %}",
}


@pytest.fixture(autouse=True)
def little_patience(monkeypatch):
    monkeypatch.setattr(template_cost, "_CPU_SECONDS", 1)


QUICK = ("power", "number", "doubled", "later")


@pytest.mark.parametrize(
    "name", [n if n in QUICK else pytest.param(n, marks=pytest.mark.slow) for n in TAKES_ALL]
)
def test_a_template_that_takes_the_machine_is_refused(name):
    start = time.monotonic()
    with pytest.raises(TemplateRefused, match="the chat template is refused"):
        codec_for(build_tokenizer(CHATML + TAKES_ALL[name]))
    assert time.monotonic() - start < 50


@pytest.mark.parametrize("name", ["qwen3", "gemma4_v5", "gptoss_training", "idefics3"])
def test_templates_of_models_pass_the_trial(name):
    check_cost(template(name), {"enable_thinking": False})


@pytest.mark.slow
@pytest.mark.parametrize("name", ALL)
def test_every_template_of_trl_passes_the_trial(name):
    check_cost(template(name), {})


@pytest.mark.parametrize("text", [CHATML, CHAT_TEMPLATE, DROPS_THOUGHT, template("llama3")])
def test_plain_templates_need_no_process(text, monkeypatch):
    monkeypatch.setattr(template_cost, "_tried", lambda *_: pytest.fail("tried in a process"))
    check_cost(text + " ", {})  # not one that was looked at before


def test_a_rendering_that_outgrows_its_conversation_ends_its_session_only():
    text = CHATML + "{% if 'boom' in messages[-1]['content'] %}" + "{{ 'a' * 999999 }}" * 9
    codec = codec_for(build_tokenizer(text + "{% endif %}"))
    assert codec.open([{"role": "user", "content": "hm"}]).token_ids
    with pytest.raises(ValueError, match="wrote 9000045 characters"):
        codec.open([{"role": "user", "content": "boom"}])
