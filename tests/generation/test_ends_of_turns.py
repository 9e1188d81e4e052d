"""What ends a turn in the template in use ends generation, in every engine."""

from contextlib import closing

import httpx
import pytest

from agentsgym import DirectOutputAgent
from agentsgym.checks.tokens import check_tokens
from agentsgym.generation import EmbeddedEngine
from agentsgym.generation.plain import PlainEngine
from agentsgym.generation.serving.listening import ServerThread
from agentsgym.generation.vllm import VLLMEngine
from agentsgym.runs.serve_model import application
from agentsgym.tokens import codec_for
from agentsgym.types import SamplingParams
from chat_tokenizers import template, tokenizer_for
from helpers import CHATML, CountdownEnv, build_tokenizer, random_llama

SAMPLING = SamplingParams(max_tokens=250)
OTHER_TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "price",
            "description": "The price.",
            "parameters": {"type": "object", "properties": {"item": {"type": "string"}}},
        },
    }
]


def base_tokenizer(chat_template=CHATML):
    """As of a base model: `<|im_end|>` is a token, and the end of a text another one."""
    tokenizer = build_tokenizer(chat_template)
    tokenizer.eos_token = "<pad>"
    return tokenizer


@pytest.fixture(scope="module")
def model():
    made = random_llama(base_tokenizer()).eval()
    made.generation_config.eos_token_id = made.config.eos_token_id = 0
    return made


@pytest.fixture(params=["embedded", "plain", "server"])
def engine(request, model):
    tokenizer = base_tokenizer()
    if request.param != "server":
        yield {"embedded": EmbeddedEngine, "plain": PlainEngine}[request.param](model, tokenizer)
        return
    app, batcher = application(EmbeddedEngine(model, tokenizer), "m")
    with closing(batcher), closing(ServerThread(app)) as server:
        made = VLLMEngine(server.url, tokenizer)
        yield made
        made.close()


def actions(engine, env):
    batch = env.run_trial([{}] * 12, DirectOutputAgent(engine, SAMPLING))
    assert not any(rollout.error for rollout in batch.rollouts)
    return [
        (row.token_ids[span.start : span.stop].tolist(), rollout.episodes[0].steps[0].action)
        for rollout in batch.rollouts
        for row in rollout.rows
        for span in row.spans
    ]


@pytest.mark.parametrize("given", ["by the tokenizer", "by an option"])
def test_an_action_ends_where_its_template_ends_a_turn(engine, given):
    tokenizer = base_tokenizer(CHATML if given == "by the tokenizer" else None)
    options = None if given == "by the tokenizer" else {"chat_template": CHATML}
    end = tokenizer.convert_tokens_to_ids("<|im_end|>")
    env = CountdownEnv(None, {"max_steps_per_episode": 1}).with_tokenizer(tokenizer, options)
    said = actions(engine, env)
    assert sum(ids[-1] == end for ids, _ in said) >= 2
    assert not any(end in ids[:-1] for ids, _ in said)
    assert not any("<|im_end|>" in text for _, text in said)


def test_an_answer_to_a_chat_client_ends_there_too(model):
    app, batcher = application(EmbeddedEngine(model, base_tokenizer()), "m")
    with closing(batcher), closing(ServerThread(app)) as server:
        messages = [{"role": "user", "content": "Go."}]
        body = {"model": "m", "messages": messages, "max_tokens": 400}
        answers = [
            httpx.post(f"{server.url}/v1/chat/completions", json=body, timeout=60).json()
            for _ in range(8)
        ]
    assert "stop" in {answer["choices"][0]["finish_reason"] for answer in answers}


@pytest.mark.parametrize(
    ("name", "plain", "calling"),
    [
        ("qwen3", {"<|im_end|>"}, {"<|im_end|>"}),
        ("glm4moe", {"<|user|>"}, {"<|user|>", "<|observation|>"}),
        # Its <|end|> also ends a thought: <|return|>, its end of text, ends an answer.
        ("gptoss", set(), {"<|call|>"}),
    ],
)
def test_what_ends_an_answer_and_a_call_is_learned_from_the_template(name, plain, calling):
    tokenizer = tokenizer_for(template(name))
    codec = codec_for(tokenizer)
    assert set(tokenizer.convert_ids_to_tokens(codec.ends)) == plain
    assert set(tokenizer.convert_ids_to_tokens(codec.with_tools(OTHER_TOOLS).ends)) == calling


def test_the_report_names_what_stops_an_answer_and_that_nothing_does():
    fit = check_tokens(base_tokenizer())
    assert set(fit.check.stops) == {"<|im_end|>", "<pad>"} and fit.problems == ()
    said = dict(fit.lines())["end of a turn"]
    assert "<|im_end|>" in said and "<pad>" in said
    endless = base_tokenizer("{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}")
    endless.eos_token = None
    unfit = check_tokens(endless)
    assert unfit.check.stops == () and "nothing ends an answer" in unfit.problems[0]
