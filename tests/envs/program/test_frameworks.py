"""Agents of other frameworks as programs: which rows their calls give, with a scripted model."""

import gc
import importlib.util
import json
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import anthropic
import openai
import pytest
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode, tools_condition

from agentsgym import DirectOutputAgent
from agentsgym.types import SamplingParams
from chat_tokenizers import template, tokenizer_for
from envs.program.programs import TOKENIZER as QWEN
from envs.program.programs import program
from rollout.doubles import SayingEngine

END = "<|im_end|>"
EXAMPLES = Path(__file__).parents[3] / "examples" / "program"
TASK = {
    "ages": {"Ann": 31, "Bob": 27},
    "question": "How old are Ann and Bob together?",
    "answer": "58",
}


def example(name):
    spec = importlib.util.spec_from_file_location(name, EXAMPLES / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


langgraph_agent, smolagents_agent = example("langgraph_agent"), example("smolagents_agent")


def call(tool, /, **arguments):
    body = json.dumps({"name": tool, "arguments": arguments})
    return f"<tool_call>\n{body}\n</tool_call>"


ANN, BOB, SUM = call("lookup", name="Ann"), call("lookup", name="Bob"), call("add", a=31, b=27)


def played(function, *answers, tokenizer=QWEN, delay=0.0, **config):
    """The rollout of a program whose model gives these answers."""
    engine = SayingEngine(tokenizer, answers, delay)
    agent = DirectOutputAgent(engine, SamplingParams(max_tokens=999))
    env = program(function, tokenizer, **{"time_limit": 30.0, **config})
    (rollout,) = env.run_trial([TASK], agent).rollouts
    assert rollout.error is None and not engine.texts
    return rollout


def rows_of(rollout, tokenizer=QWEN):
    """Why each row begins, and the answers that were sampled in it."""
    return [
        (row.begins, [_sampled(tokenizer, row, span) for span in row.spans]) for row in rollout.rows
    ]


def _sampled(tokenizer, row, span):
    text = tokenizer.decode(row.token_ids[span.start : span.stop])
    assert text.endswith(END) and span.length == len(tokenizer.encode(text))
    return text.removesuffix(END)


# -- LangGraph -----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["qwen2_5", "qwen3"])
def test_a_langgraph_agent_that_calls_tools_is_one_row(name):
    tokenizer = tokenizer_for(template(name), END)
    rollout = played(langgraph_agent.run, ANN, BOB, SUM, "58", tokenizer=tokenizer)
    assert rollout.final_reward == 1.0
    assert rows_of(rollout, tokenizer) == [("episode", [ANN, BOB, SUM, "58"])]
    assert [step.observation for step in rollout.episodes[0].steps][1:] == ["31", "27", "58"]


def chat_model(client, **options):
    return ChatOpenAI(
        model=client.model, base_url=client.base_url, api_key=client.api_key, **options
    )


@tool
def lookup(name: str) -> str:
    """Look up how old somebody is."""
    return str(TASK["ages"][name])


def graph_of(model, *tools):
    """The usual graph of a model and its tools."""
    model = model.bind_tools(tools)
    graph = StateGraph(MessagesState)
    graph.add_node("agent", lambda state: {"messages": [model.invoke(state["messages"])]})
    graph.add_node("tools", ToolNode(tools, handle_tool_errors=True))
    graph.add_edge(START, "agent")
    graph.add_conditional_edges("agent", tools_condition)
    graph.add_edge("tools", "agent")
    return graph.compile()


def asked(graph, *messages):
    """What a graph answers last."""
    return graph.invoke({"messages": list(messages)})["messages"][-1].content


def test_a_wrong_call_is_answered_with_its_error_and_the_row_goes_on():
    wrong = [call("lookup", name="Zoe"), call("lookup", who="Ann"), call("dig"), "<tool_call>\n{"]
    rollout = played(langgraph_agent.run, *wrong)
    assert rows_of(rollout) == [("episode", wrong)] and rollout.final_reward == 0.0
    _, *errors = [step.observation for step in rollout.episodes[0].steps]
    assert all("rror" in error for error in errors)


@pytest.mark.parametrize("options", [{"streaming": True}, {"use_responses_api": True}])
def test_langchain_sends_back_what_it_streamed_or_got_as_items(options):
    def play(task, client):
        graph = graph_of(chat_model(client, **options), lookup)
        asked(graph, ("system", "Look it up."), ("user", "Ann, and Bob?"))
        return 1.0

    answers = [f" Well\n{ANN}", f"{ANN}\n{BOB}", " They are\n31 and 27. "]
    assert rows_of(played(play, *answers)) == [("episode", answers)]


def test_a_subgraph_has_a_row_of_its_own():
    def play(task, client):
        helper = graph_of(chat_model(client), lookup)

        @tool
        def ask_helper(question: str) -> str:
            """Ask somebody who knows."""
            return asked(helper, ("system", "You help."), ("user", question))

        agent = graph_of(chat_model(client), ask_helper)
        return float(asked(agent, ("user", task["question"])) == "58")

    first, second = call("ask_helper", question="Ann?"), call("ask_helper", question="Bob?")
    rollout = played(play, first, ANN, "31", second, BOB, "27", "58")
    assert rollout.final_reward == 1.0
    assert rows_of(rollout) == [
        ("episode", [first, second, "58"]),
        ("conversation", [ANN, "31"]),
        ("conversation", [BOB, "27"]),
    ]
    assert [span.key for span in rollout.rows[0].spans] == [(0, 0), (0, 3), (0, 6)]


# -- smolagents ----------------------------------------------------------------------------------

FINAL = call("final_answer", answer="58")


def test_smolagents_rewrites_each_call_as_text_so_each_is_a_row():
    """Its history has `Calling tools: […]` as text of the assistant in place of the call."""
    rollout = played(smolagents_agent.run, ANN, BOB, SUM, FINAL)
    assert rollout.final_reward == 1.0
    assert rows_of(rollout) == [
        ("episode", [ANN]),
        ("history", [BOB]),
        ("history", [SUM]),
        ("history", [FINAL]),
    ]
    prompt = QWEN.decode(rollout.rows[1].token_ids)
    assert "assistant\nCalling tools:\n[{'id': 'call00000', 'type': 'function'" in prompt
    assert "Observation:\n31" in prompt


# -- clients -------------------------------------------------------------------------------------


def ask_openai(client, **options):
    api = openai.OpenAI(base_url=client.base_url, api_key=client.api_key, **options)
    asked = [{"role": "user", "content": "Go?"}]
    return api.chat.completions.create(model="any", messages=asked).choices[0].message.content


def ask_anthropic(client, **options):
    api = anthropic.Anthropic(base_url=client.anthropic_url, api_key=client.api_key, **options)
    asked = [{"role": "user", "content": "Go?"}]
    return api.messages.create(model="any", messages=asked, max_tokens=99).content[0].text


@pytest.mark.parametrize("ask", [ask_openai, ask_anthropic])
def test_a_client_that_tries_again_after_its_timeout_makes_one_step(ask):
    def play(task, client):
        return float(ask(client, timeout=0.3, max_retries=5) == "Go.")

    rollout = played(play, "Go.", delay=0.7)
    assert rollout.final_reward == 1.0 and rows_of(rollout) == [("episode", ["Go."])]


def test_a_call_whose_client_left_before_the_episode_ended_logs_no_error(caplog):
    def leave(client):
        with pytest.raises(openai.APITimeoutError):
            ask_openai(client, timeout=0.2, max_retries=0)

    def play(task, client):
        with ThreadPoolExecutor() as pool:
            first = pool.submit(ask_openai, client)
            time.sleep(0.1)
            pool.submit(leave, client).result()
            first.result()
        return 1.0  # where the call left before the server knew of it

    rollout = played(play, "Go.", delay=0.6, max_steps_per_episode=1)
    assert rows_of(rollout) == [("episode", ["Go."])]
    time.sleep(0.2)
    gc.collect()
    assert not caplog.records


def test_anthropics_tool_runner_is_one_row():
    @anthropic.beta_tool
    def lookup(name: str) -> str:
        """Look up how old somebody is."""
        return str(TASK["ages"][name])

    def play(task, client):
        api = anthropic.Anthropic(base_url=client.anthropic_url, api_key=client.api_key)
        runner = api.beta.messages.tool_runner(
            model="any",
            max_tokens=99,
            tools=[lookup],
            messages=[{"role": "user", "content": task["question"]}],
        )
        return float(runner.until_done().content[0].text == "58")

    answers = [f"First both.\n{ANN}\n{BOB}", ANN, "58"]
    rollout = played(play, *answers)
    assert rollout.final_reward == 1.0 and rows_of(rollout) == [("episode", answers)]


LOOKUP = {"name": "lookup", "description": "An age.", "parameters": {"type": "object"}}


def chat_turn(api, talk):
    done = api.chat.completions.create(
        model="any", messages=talk, tools=[{"type": "function", "function": LOOKUP}]
    )
    return _goes_on(talk, done.choices[0].message)


def streamed_turn(api, talk):
    tools = [{"type": "function", "function": LOOKUP}]
    with api.chat.completions.stream(model="any", messages=talk, tools=tools) as stream:
        return _goes_on(talk, stream.get_final_completion().choices[0].message)


def _goes_on(talk, message):
    calls = message.tool_calls or ()
    talk += [message, *({"role": "tool", "tool_call_id": c.id, "content": "31"} for c in calls)]
    return bool(calls)


def response_turn(api, talk):
    tools = [{"type": "function", **LOOKUP}]
    output = api.responses.create(model="any", input=talk, tools=tools).output
    calls = [item.call_id for item in output if item.type == "function_call"]
    answer = {"type": "function_call_output", "output": "31"}
    talk += [*output, *({**answer, "call_id": call_id} for call_id in calls)]
    return bool(calls)


@pytest.mark.parametrize("turn", [chat_turn, streamed_turn, response_turn])
def test_openais_own_objects_come_back_as_the_answers_that_they_were(turn):
    def play(task, client):
        api = openai.OpenAI(base_url=client.base_url, api_key=client.api_key)
        talk = [{"role": "user", "content": "Ann?"}]
        while turn(api, talk):
            pass
        return 1.0

    odd = call("lookup", name='Ünö "q" \n x', n=1.5, z=[1e20, None])
    answers = [f" Hm. \n{ANN}\n{BOB}", odd, " 31 "]
    assert rows_of(played(play, *answers)) == [("episode", answers)]
