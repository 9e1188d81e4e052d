"""Episodes in which an engine samples calls of tools: exact ids, masks, rewards and messages."""

import pytest

from agentsgym import DirectOutputAgent, MultistepEnv, ScriptedAgent, make
from agentsgym.evaluation.metrics import record, summarize
from agentsgym.types import Message
from agentsgym.types.tool_actions import NO_ACT, calling
from agentsgym.warm_start.tiny import build_tokenizer
from chat_tokenizers import template, tokenizer_for
from helpers import CountdownEnv
from rollout.doubles import PRICES, SayingEngine, SumEnv

BOTH = "\n".join([calling("price", item="tea"), calling("price", item="milk")])
# As the template would not write it: what was sampled must stay.
SPACED = [
    '<tool_call>{"name":"price",  "arguments":{"item":"tea"}}</tool_call>'
    '<tool_call>{"arguments":{"item":"milk"},"name":"price"}</tool_call>',
    "4",
]


def chatml():
    return tokenizer_for(template("qwen2_5"), "<|im_end|>")


def tiny():
    return build_tokenizer(["How much are both?"], 300, tools=True)


def saying(tokenizer, texts):
    return DirectOutputAgent(SayingEngine(tokenizer, texts))


def played(env, agent, task=None):
    rollout = env.run_trial([task or {}], agent).rollouts[0]
    assert rollout.error is None, rollout.error
    return rollout


@pytest.mark.parametrize("made", [chatml, tiny])
def test_a_row_has_the_sampled_ids_and_the_templates_text_for_the_results(made):
    tokenizer = made()
    env = SumEnv(tokenizer)
    rollout = played(env, saying(tokenizer, SPACED))
    (episode,), (row,) = rollout.episodes, rollout.rows

    def render(messages):
        return tokenizer.apply_chat_template(
            messages, tools=list(env.tool_schemas), tokenize=False, add_generation_prompt=True
        )

    end = tokenizer.decode([tokenizer.eos_token_id])
    after_end = render(episode.messages[:4]).rpartition("milk")[2].partition(end)[2]
    own = [[*tokenizer.encode(text), tokenizer.eos_token_id] for text in SPACED]
    parts = [
        (0, tokenizer.encode(render(episode.messages[:1]))),
        (1, own[0]),
        (0, tokenizer.encode(after_end)),
        (1, own[1]),
    ]
    assert row.token_ids.tolist() == [token for _, part in parts for token in part]
    assert row.agent_token_mask.tolist() == [mask for mask, part in parts for _ in part]
    assert row.sampled
    assert [step.reward for step in episode.steps] == [0.0, 1.0]
    batch = env.run_trial([{}], saying(tokenizer, SPACED))
    rewards = batch["per_token_rewards"][0]
    assert rewards[-len(own[1]) :] == pytest.approx([1 / len(own[1])] * len(own[1]))
    assert not any(rewards[: -len(own[1])])


@pytest.mark.parametrize("made", [chatml, tiny])
def test_a_text_agents_calls_are_written_as_the_template_writes_them(made):
    tokenizer = made()
    rollout = played(SumEnv(tokenizer), ScriptedAgent([BOTH, "4"]))
    (row,) = rollout.rows
    own = [tokenizer.decode(row.token_ids[span.start : span.stop]) for span in row.spans]
    again = played(SumEnv(tokenizer), saying(tokenizer, own))
    assert [e.messages for e in again.episodes] == [e.messages for e in rollout.episodes]
    ends = [span.stop for span in row.spans]
    (sampled,) = again.rows
    assert sampled.token_ids[: ends[0]].tolist() == row.token_ids[: ends[0]].tolist()


def test_a_model_that_writes_our_own_form_as_words_calls_nothing():
    tokenizer = chatml()
    rollout = played(SumEnv(tokenizer), saying(tokenizer, [BOTH]))
    (step,) = rollout.episodes[0].steps
    assert step.answer == Message("assistant", BOTH)
    assert step.info["metrics"]["tool_calls/attempted"] == 0


def test_metrics_of_calls_are_means_per_action():
    tokenizer = chatml()
    broken = '<tool_call>{"name": "price", "arguments": </tool_call>'
    unknown = '<tool_call>{"name": "cost", "arguments": {}}</tool_call>'
    rollout = played(SumEnv(tokenizer), saying(tokenizer, [broken, unknown, *SPACED]))
    figures = summarize([record(rollout)])
    names = ("attempted", "parsed", "executed", "failed")
    assert [figures[f"tool_calls/{name}"] for name in names] == [1.0, 0.75, 0.5, 0.25]
    assert figures["malformed"] == 0.25


class AskedEnv(MultistepEnv):
    """An author's own environment with a tool: the price of tea is 3."""

    tool_schemas = SumEnv().tool_schemas

    def _initialize_episode(self, session_id, task_data):
        return []

    def _format_prompt(self, state, step):
        return state or "How much is tea?"

    def _step_episode(self, session_id, state, action):
        prices = [(one["name"], PRICES[one["arguments"]["item"]]) for one in action.calls]
        results = [Message("tool", str(price), name=name) for name, price in prices]
        info = {"text": action.text, "unread": action.unread, "tokens": action.token_ids}
        return results, float(action.text == "3"), not results, info


@pytest.mark.parametrize("workers", [0, 1])
def test_an_authors_environment_with_tools_gets_the_answer(workers):
    tokenizer = chatml()
    broken = '<tool_call>{"name": </tool_call>'
    texts = [f"Hm.{broken}<tool_call>{calling('price', item='tea')}</tool_call>", "3"]
    env = AskedEnv(tokenizer, {"workers": workers})
    (first, last) = played(env, saying(tokenizer, texts)).steps
    assert (first.info["text"], first.info["unread"]) == ("Hm.", 1)
    assert first.info["tokens"] == [*tokenizer.encode(texts[0]), tokenizer.eos_token_id]
    assert (last.observation, last.info["text"], last.reward) == ("3", "3", 1.0)
    (first, last) = played(env, ScriptedAgent(["Hm.\n" + calling("price", item="tea"), "3"])).steps
    assert (first.info["text"], first.info["tokens"]) == ("Hm.", None)
    assert (last.observation, last.reward) == ("3", 1.0)


# -- action_form: tool -----------------------------------------------------------------------------

ACT = {"action_form": "tool"}


def act(action):
    return f'<tool_call>{{"name": "act", "arguments": {{"action": "{action}"}}}}</tool_call>'


def countdown(*texts, **config):
    tokenizer = chatml()
    env = CountdownEnv(tokenizer, {**ACT, **config})
    return played(env, saying(tokenizer, texts), {"rewards": [0.0, 0.0, 1.0]})


def test_the_argument_of_act_is_the_action_and_the_observation_its_result():
    rollout = countdown(act("a"), act("b"), act("c"))
    (episode,) = rollout.episodes
    assert [step.action for step in episode.steps] == ["a", "b", "c"]
    assert [step.observation for step in episode.steps] == [
        "Is it an animal?",
        "The number is 1",
        "The number is 2",
    ]
    assert [message["role"] for message in episode.messages] == [
        *("user", "assistant", "tool", "assistant", "tool", "assistant")
    ]
    assert episode.messages[4]["tool_call_id"] == "call00001"
    assert rollout.final_reward == 1.0


@pytest.mark.parametrize(
    ("said", "answers"),
    [("a", ["user"]), (act("a") * 2, ["tool", "tool"]), ("<tool_call>{</tool_call>", ["user"])],
)
def test_anything_but_one_call_does_nothing_and_is_malformed(said, answers):
    rollout = countdown(said, act("a"), act("b"), act("c"), malformed_penalty=0.25)
    (episode,) = rollout.episodes
    assert [step.malformed for step in episode.steps] == [True, False, False, False]
    assert [step.reward for step in episode.steps] == [-0.25, 0.0, 0.0, 1.0]
    told = episode.messages[2 : 2 + len(answers)]
    assert [message["role"] for message in told] == answers
    assert {message["content"] for message in told} == {NO_ACT}


@pytest.mark.parametrize("carry", ["none", "full", "summary"])
@pytest.mark.parametrize("name", ["Mastermind", "TwentyQuestions"])
def test_known_players_play_as_with_plain_text(name, carry):
    trial = {"episodes_per_trial": 2, "free_shots": 1, "carry": carry}
    plain = make(name, None, trial)
    with_calls = make(name, chatml(), trial | ACT)
    task = plain.get_eval_dataset()[0]["task_data"]
    one, other = (played(env, env.optimal_agent(), task) for env in (plain, with_calls))

    def steps(rollout):
        return [
            (step.action, step.observation, step.reward, step.kind)
            for episode in rollout.episodes
            for step in episode.steps
        ]

    assert steps(other) == steps(one)
    calls = [
        call
        for episode in other.episodes
        for message in episode.messages
        for call in message.get("tool_calls", ())
    ]
    assert len(calls) == sum(step[3] == "action" for step in steps(one))
