"""`agentsgym serve`: sessions, places, and what a client is told.

OpenEnv is imported by the tests only: it takes seconds, once in the process that runs this file.
"""

import json
import random
import urllib.error

import pytest

pytest.importorskip("openenv")

import websockets

from agentsgym import MultistepEnv, make, task_dataset
from agentsgym.envs import ConfigError
from agentsgym.integrations.openenv import make_app, serve
from agentsgym.rollout.stepping import SteppedTrial
from helpers import wait_until
from integrations.with_openenv.served_env import Connection, fetched, served

PLACE = "CAPACITY_REACHED"


class SecretEnv(MultistepEnv):
    """Tells its secret in all places that are not for the agent."""

    def _initialize_episode(self, session_id, task_data):
        if task_data["broken"]:
            raise RuntimeError(f"{task_data['secret']} is broken")
        return task_data["secret"]

    def _format_prompt(self, state, step):
        return "guess"

    def _step_episode(self, session_id, state, action):
        if action == "fail":
            raise RuntimeError(f"it was {state}")
        info = {"win": False, "anchor": state, "metrics": {state: 1.0}, "solution": state}
        return state, 0.0, action == "end", info

    def get_train_dataset(self):
        return task_dataset(self, [{"secret": "xyzzy", "broken": bad} for bad in (False, True)])

    def get_eval_dataset(self):
        raise RuntimeError("there is xyzzy in the way")


def strings_in(value):
    """All texts in a task, and the numbers that are long enough to be no coincidence."""
    if isinstance(value, dict | list):
        for item in value.values() if isinstance(value, dict) else value:
            yield from strings_in(item)
    elif isinstance(value, str) or (isinstance(value, int) and value >= 10_000):
        yield str(value)


def without_conversation(frame):
    """A message of the server without what the environment says to the agent."""
    data = json.loads(frame)
    seen = data["data"].get("observation", {})
    seen.pop("text", None), seen.pop("messages", None)
    return json.dumps(data)


def play_both(env, line, split, index, actions):
    """Play a task over a line and beside it natively; both must be equal all the way."""
    rows = env.get_eval_dataset() if split == "eval" else env.get_train_dataset()
    native = SteppedTrial(env, rows[index])
    reply = line.ask("reset", split=split, index=index)["data"]
    messages = []
    while True:
        seen = reply["observation"]
        messages = ([] if seen["new_conversation"] else messages) + seen["messages"]
        assert reply["done"] == native.over
        if native.over:
            return native.rollout, reply
        assert messages == native.messages and seen["text"] == messages[-1]["content"]
        action = actions(native)
        reply = line.ask("step", text=action)["data"]
        assert reply["reward"] == native.act(action)
        messages = [*messages, {"role": "assistant", "content": action}]


@pytest.mark.parametrize("name", ["Bandit", "TwentyQuestions"])
def test_a_game_is_played_as_natively_and_no_secret_is_told(name):
    env = make(name, None, {"max_steps_per_episode": 5})
    chance = random.Random(name)

    def action(trial):
        known = env.admissible_actions(env.active_states[trial.session_id])
        return chance.choice([*(known or ["5", "[up]"]), "nonsense"])

    with served(env) as url, Connection(url) as line:
        texts = [fetched(f"{url}/{page}") for page in ("schema", "metadata", "state", "health")]
        tasks = env.get_eval_dataset()["task_data"]
        for index, task in enumerate(tasks[:3]):
            rollout, end = play_both(env, line, "eval", index, action)
            assert end["metadata"]["reward"] == rollout.final_reward
            assert end["metadata"]["stop_reason"] == rollout.episodes[-1].stop_reason
            texts.append(json.dumps(line.state()))
            visible = " ".join(texts + [without_conversation(frame) for frame in line.frames])
            prompts = " ".join(m["content"] for e in rollout.episodes for m in e.messages)
            for text in strings_in(task):
                assert text not in visible or text in prompts
    wait_until(lambda: not env.active_states)


def test_a_trial_of_several_episodes_says_where_a_conversation_begins():
    config = {"episodes_per_trial": 3, "carry": "summary", "max_steps_per_episode": 2}
    env = make("TwentyQuestions", None, {**config, "system_prompt": "Play well."})
    with served(env) as url, Connection(url) as line:
        rollout, _ = play_both(env, line, "train", 4, lambda trial: "Is it an animal?")
        kinds = [json.loads(frame)["data"]["observation"]["asks_for"] for frame in line.frames]
        assert kinds.count("reflection") == 2 and kinds[-1] is None
    assert len(rollout.episodes) == 3


def test_nothing_that_a_client_can_ask_names_the_secret():
    env = SecretEnv()
    with served(env) as url, Connection(url) as line:
        for reset in (
            {"index": 0},
            {"index": 1},
            {"split": "eval"},
            {"split": "xyz"},
            {"index": 2},
        ):
            line.ask("reset", **reset)
        line.ask("reset", index=0)
        line.state()
        line.ask("step", text="a")
        line.ask("step", txt="a")
        line.ask("step", text=["a"])
        line.ask("reset", seed="many")
        line.ask("nonsense")
        end = line.ask("step", text="fail")
        assert end["data"]["done"] and end["data"]["observation"]["failed"]
        assert end["data"]["metadata"]["reward"] is None and "NaN" not in line.frames[-1]
        line.ask("step", text="a")
        pages = ["openapi.json", "schema", "metadata", "state", "health"]
        texts = [fetched(f"{url}/{page}") for page in pages]
        texts.append(fetched(f"{url}/reset", {"index": 0}))
        texts += line.frames
        assert "xyzzy" not in " ".join(texts)
    wait_until(lambda: not env.active_states)


def test_a_client_brings_no_task_of_its_own():
    env = make("TwentyQuestions")
    with served(env) as url, Connection(url) as line:
        line.ask("reset", index=0, task_data={"solution": "zebra"})
        answer = line.ask("step", text="[zebra]")["data"]
        assert answer["observation"]["win"] is False


def test_a_seed_names_a_task():
    env = make("TwentyQuestions")
    with served(env) as url, Connection(url) as line:
        again = 1 + len(env.get_train_dataset())
        played = [answers(line, seed) for seed in (1, 2, 1, again)]
        assert played[0] == played[2] == played[3] != played[1]


def answers(line, seed):
    line.ask("reset", seed=seed)
    questions = ("Is it an animal?", "Is it bigger than a dog?", "Can you eat it?", "Can it fly?")
    replies = [line.ask("step", text=question)["data"] for question in questions]
    return [answer["observation"]["text"] for answer in replies]


def test_a_client_beyond_the_places_is_refused_until_one_is_free():
    env = make("Bandit")
    with served(env, sessions=2) as url, Connection(url) as first:
        assert first.ask("reset", index=0)["type"] == "observation"
        with Connection(url) as second:
            second.ask("reset", index=0)
            with Connection(url) as third:
                refused = third.hear()
                assert refused["data"]["code"] == PLACE and refused["data"]["max_sessions"] == 2
        wait_until(lambda: len(env.active_states) == 1)
        with Connection(url) as fourth:
            assert fourth.ask("reset", index=0)["type"] == "observation"


@pytest.mark.doors
def test_a_silent_session_ends_and_its_place_is_free():
    env = make("Bandit")
    with served(env, sessions=1, idle_seconds=0.5) as url, Connection(url) as silent:
        silent.ask("reset", index=0)
        wait_until(lambda: not env.active_states)
        for question in ({"kind": "step", "text": "A"}, {"kind": "reset", "index": 0}):
            answer = silent.ask(**question)["data"]
            assert "nothing came for too long" in answer["message"]
        with Connection(url) as other:
            assert other.ask("reset", index=0)["type"] == "observation"


def test_bad_messages_end_no_session():
    env = make("Bandit")
    with served(env) as url, Connection(url) as line:
        assert "reset the environment" in line.ask("step", text="a")["data"]["message"]
        line.ask("reset", index=0)
        assert line.ask("step")["data"]["code"] == "VALIDATION_ERROR"
        for bad in ({"index": -1}, {"index": True}, {"index": "0"}, {"index": 10**6}):
            assert line.ask("reset", **bad)["data"]["code"] == "EXECUTION_ERROR"
        line.ask("reset", index=0)
        assert line.ask("step", text="nonsense")["data"]["observation"]["malformed"]


@pytest.mark.parametrize("headers", [{"Host": "evil.example"}, {"Origin": "http://evil.example"}])
def test_pages_of_others_are_refused(headers):
    with served(make("Bandit")) as url:
        with pytest.raises(urllib.error.HTTPError, match="403"):
            fetched(f"{url}/health", headers=headers)
        if "Origin" in headers:
            with pytest.raises(websockets.InvalidStatus, match="403"):
                Connection(url, origin=headers["Origin"])


def test_with_a_token_all_requests_need_it():
    with served(make("Bandit"), token="sesame-7") as url:
        for headers in ({}, {"Authorization": "Bearer other"}):
            with pytest.raises(urllib.error.HTTPError, match="403"):
                fetched(f"{url}/schema", headers=headers)
            with pytest.raises(websockets.InvalidStatus, match="403"):
                Connection(url, additional_headers=headers)
        right = {"Authorization": "Bearer sesame-7"}
        assert "properties" in fetched(f"{url}/schema", headers=right)
        with Connection(url, additional_headers=right) as line:
            assert line.ask("reset", index=0)["type"] == "observation"


def test_what_cannot_be_served_is_named():
    class Own(SecretEnv):
        def _run_complete_episode(self, session_id, agent):
            return {}

    with pytest.raises(ConfigError, match="cannot be served"):
        make_app(Own())
    with pytest.raises(ConfigError, match="others can reach the server"):
        serve(SecretEnv(), host="0.0.0.0")
