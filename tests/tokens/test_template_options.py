"""Arguments of the chat template reach every rendering."""

import pytest

from agentsgym import DirectOutputAgent, EnvPool, ScriptedAgent, make, register, task_dataset
from agentsgym.tokens import codec_for
from agentsgym.types import GenerationResult, Message
from helpers import CHATML, CountdownEnv, build_tokenizer

# As Qwen3's template does: without thinking, the answer begins after an empty thought.
THINKS = CHATML.replace(
    "assistant\n{% endif %}",
    "assistant\n{% if enable_thinking is defined and enable_thinking is false %}"
    "<think></think>{% endif %}{% endif %}",
)
OFF = {"enable_thinking": False}


@pytest.fixture(scope="module")
def tokenizer():
    return build_tokenizer(THINKS)


def test_options_reach_openings_and_bridges(tokenizer):
    codec = codec_for(tokenizer, OFF)
    messages = [Message("user", "Is it an animal?")]
    opening = codec.open(messages)
    assert tokenizer.decode(opening.token_ids).endswith("assistant\n<think></think>")
    messages += [Message("assistant", "No."), Message("user", "Yes.")]
    text = codec.bridge(opening.text, messages, (9,)).text
    assert text.count("<think></think>") == 1  # the template writes it before new answers only


class OptionsEnv(CountdownEnv):
    """To be registered under a name of its own."""


def test_options_reach_every_row_of_a_rollout(tokenizer):
    register("Options", OptionsEnv)
    rows = task_dataset(make("Options"), [{"rewards": [0.0, 1.0]}])
    env = EnvPool(tokenizer, template_options=OFF).get(rows[0])
    batch = env.run_trial([rows[0]["task_data"]], ScriptedAgent(["No.", "Yes."]))
    assert tokenizer.decode(batch.rows[-1].token_ids).count("<think></think>") == 1
    alone = make("Options", tokenizer)
    batch = alone.run_trial([rows[0]["task_data"]], ScriptedAgent(["No.", "Yes."]))
    assert "<think>" not in tokenizer.decode(batch.rows[-1].token_ids)


def test_options_reach_an_agent_that_is_asked_alone(tokenizer):
    class Echo:
        capacity = 1

        def __init__(self):
            self.tokenizer, self.seen = tokenizer, ()

        def submit(self, requests):
            (self.request,) = requests

        def poll(self):
            self.seen = self.request.token_ids
            return [GenerationResult(self.request.session_id, (9,), (0.0,), "x")]

        def release(self, session_ids):
            pass

    engine = Echo()
    agent = DirectOutputAgent(engine, template_options=OFF)
    agent.get_action([Message("user", "Yes?")], None)
    assert tokenizer.decode(engine.seen).endswith("<think></think>")


def test_a_template_of_the_callers_own_replaces_the_tokenizers(tokenizer):
    codec = codec_for(tokenizer, {"chat_template": "{{ messages[0]['content'] }}!"})
    ids = codec.open([Message("user", "Yes")]).token_ids
    assert tokenizer.decode(ids) == "Yes!"


def test_a_template_serves_a_tokenizer_that_has_none(plain_tokenizer):
    codec = codec_for(plain_tokenizer, {"chat_template": CHATML})
    ids = codec.open([Message("user", "Yes")]).token_ids
    assert plain_tokenizer.decode(ids).startswith("<|im_start|>user\nYes")


def test_an_option_that_no_template_reads_is_reported(tokenizer, caplog):
    codec_for(tokenizer, {"enable_thinkin": False, "enable_thinking": False})
    (record,) = caplog.records
    assert "'enable_thinkin'" in record.message and "'enable_thinking'" not in record.message


def test_options_without_a_template_are_reported(plain_tokenizer, caplog):
    codec_for(plain_tokenizer, OFF)
    assert "no chat template" in caplog.text


def test_an_option_that_is_the_codecs_own_is_refused(tokenizer):
    with pytest.raises(ValueError, match="'tokenize'"):
        codec_for(tokenizer, {"tokenize": True})


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{{ raise_exception('alternate, please') }}", "alternate, please"),
        ("{{ messages[0].name.first }}", "has no attribute"),
        ("{{ messages", "unexpected end of template"),
    ],
)
def test_a_template_that_fails_says_so(text, message):
    codec = codec_for(build_tokenizer(text))
    with pytest.raises(ValueError, match=f"cannot render it: .*{message}"):
        codec.open([Message("user", "Yes")])
