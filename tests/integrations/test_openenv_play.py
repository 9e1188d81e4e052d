"""OpenEnvEnv against a server that speaks OpenEnv's protocol; needs no OpenEnv. The tests with its
package are in tests/integrations.with_openenv."""

import json
import random
import threading

import pytest
import yaml

from agentsgym import DirectOutputAgent, EnvPool, SamplingParams, ScriptedAgent, make
from agentsgym.envs import ConfigError, settings
from agentsgym.generation import EmbeddedEngine
from agentsgym.generation.http import Refused
from agentsgym.generation.settings import MissingKey
from agentsgym.rollout import run
from agentsgym.runs import load_run
from agentsgym.runs.suites import Suite, check_names
from agentsgym.runs.trust import check_stored
from helpers import wait_until
from integrations.number_server import NumberServer, observation


def client(server, tokenizer=None, **settings):
    fields = {"action_field": "guess", "observation_field": "hint"}
    return make("OpenEnv", tokenizer, {"base_url": server.url, **fields, **settings})


def play(server, *actions, task=None, **settings):
    env = client(server, **settings)
    (rollout,) = env.run_trial([task or {"seed": 3}], ScriptedAgent(list(actions))).rollouts
    assert not env.active_states
    return rollout


def number(seed):
    return random.Random(seed).randrange(10**9) % 1000


def test_a_game_is_played_and_its_connection_ends():
    with NumberServer() as server:
        rollout = play(server, "1", "two", str(number(3)), first_prompt="Guess.")
        wait_until(lambda: not server.live)
    steps = rollout.episodes[0].steps
    assert [step.reward for step in steps] == [0.125, 0.0, 1.0]
    assert [step.malformed for step in steps] == [False, True, False]
    assert steps[0].observation == f"Guess.\n\nA number, {number(3)} or so."
    assert steps[1].observation == "higher" and "a whole number" in steps[2].observation
    assert rollout.final_reward == 1.125 and rollout.episodes[0].stop_reason == "done"


def test_an_action_that_the_server_refuses_is_malformed():
    with NumberServer() as server:
        rollout = play(server, "one", str(number(3)))
        whole = play(server, '{"guess": "1"}', "[1]", "{", action_json=True, error_allowance=5)
    assert [step.malformed for step in rollout.episodes[0].steps] == [True, False]
    assert "Input should be a whole number" in rollout.episodes[0].steps[1].observation
    assert [step.malformed for step in whole.episodes[0].steps[:3]] == [False, True, True]


def test_fields_that_are_not_there_are_an_error_that_names_the_setting():
    with NumberServer() as server:
        rollout = play(server, "1", observation_field="text")
    assert "['hint', 'metadata']" in rollout.error and "observation_field" in rollout.error


def test_tasks_are_seeds_or_numbers_of_a_split():
    with NumberServer() as server:
        env = client(server, train_tasks=3, eval_split="test")
        assert env.get_train_dataset()["task_data"] == [{"seed": k} for k in range(3)]
        tasks = env.get_eval_dataset()["task_data"]
        assert tasks == [{"split": "test", "index": k} for k in range(32)]
        assert (
            env.check_task({}) and env.check_task({"a": object()}) and not env.check_task(tasks[0])
        )


def test_a_server_that_ignores_the_seed_is_refused():
    with NumberServer(seeded=False) as server:
        env = client(server)
        with pytest.raises(Refused, match="with two different observations"):
            env.get_train_dataset()
        batch = env.run_trial([{"seed": 1}, {"seed": 2}], ScriptedAgent(["1"]))
        assert all("play different ones" in rollout.error for rollout in batch.rollouts)
        assert len(server.resets) == 2  # it is asked once


def test_no_more_sessions_are_opened_than_the_server_has_places(tiny_llama, chat_tokenizer):
    with NumberServer() as server:
        env = client(server, chat_tokenizer, sessions=3, max_steps_per_episode=2, error_allowance=9)
        engine = EmbeddedEngine(tiny_llama, chat_tokenizer, capacity=16)
        agent = DirectOutputAgent(engine, SamplingParams(max_tokens=3))
        batch = env.run_trial([{"seed": k} for k in range(10)], agent)
        assert [rollout.error for rollout in batch.rollouts] == [None] * 10
        assert all(len(rollout.episodes[0].steps) == 2 for rollout in batch.rollouts)
        # A session that has ended may still be there when the next one comes.
        assert 1 < server.peak <= 6
        wait_until(lambda: not server.live)


def test_a_session_waits_for_a_place():
    with NumberServer(places=1) as server:
        other = client(server)._server
        line, _ = other.begin({"seed": 1})
        threading.Timer(0.4, other.leave, [line]).start()
        rollout = play(server, str(number(3)))
        assert rollout.error is None and server.refused > 1


def test_a_server_that_stays_full_fails_the_session():
    with NumberServer(places=1) as server:
        other = client(server)._server
        line, _ = other.begin({"seed": 1})
        rollout = play(server, "1", patience=0.2)
        assert "no place became free within 0.2 s" in rollout.error
        other.leave(line)


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        ("vanish", "ended the connection"),
        ("silent", "no answer within 0.3 s"),
        ("error", "EXECUTION_ERROR: it broke"),
        ("{}", "none of OpenEnv"),
        ("[" * 10_000, "none of OpenEnv"),
        ('{"type": "error", "data": 3}', "none of OpenEnv"),
        ('{"type": "observation", "data": {"observation": [1]}}', "none of OpenEnv"),
        ('{"type": "observation", "data": {"observation": {"failed": true}}}', "failed in this"),
        (
            '{"type": "observation", "data": {"observation": {"hint": ""}, "reward": "x"}}',
            "reward must be",
        ),
    ],
    ids=lambda text: text[:60],
)
def test_a_faulty_server_fails_the_session(fault, message):
    with NumberServer(fault=fault) as server:
        rollout = play(server, "1", timeout=0.3)
        assert message in rollout.error
        assert len(rollout.episodes[0].steps) == 1


def test_a_connection_that_ends_at_its_reset_is_tried_again():
    with NumberServer(drops=3) as server:
        rollout = play(server, str(number(3)))
        assert rollout.error is None and rollout.final_reward == 1.0 and server.drops == 0
    with NumberServer(drops=100) as server:
        assert "ended the connection" in play(server, "1").error
        assert server.drops == 95
        wait_until(lambda: not server.live)


@pytest.mark.parametrize("scheme", ["http", "ws"])
def test_a_server_cannot_send_us_elsewhere(scheme):
    with NumberServer() as inside:
        elsewhere = f"{inside.url}/ws".replace("http", scheme, 1)
        with NumberServer(redirect=elsewhere) as server:
            rollout = play(server, "1")
        assert "redirects are not followed" in rollout.error
        assert inside.contacts == 0


def test_a_token_is_sent(monkeypatch):
    monkeypatch.setenv("NUMBERS_TOKEN", "sesame-42")
    with NumberServer() as server:
        play(server, str(number(3)), key_env="NUMBERS_TOKEN")
        assert {h["Authorization"] for h in server.headers} == {"Bearer sesame-42"}
        monkeypatch.delenv("NUMBERS_TOKEN")
        with pytest.raises(MissingKey, match="set the environment variable NUMBERS_TOKEN"):
            client(server, key_env="NUMBERS_TOKEN")


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"base_url": "file:///etc/passwd"},
        {"base_url": "http://me:secret@there"},
        {"base_url": "http://there/?key=1"},
        {"base_url": "http://there", "workers": 1},
    ],
)
def test_bad_settings_are_refused(settings):
    with pytest.raises(ConfigError, match="OpenEnv: "):
        make("OpenEnv", None, settings)


# -- whose servers are contacted ------------------------------------------------------------------


@pytest.fixture
def nothing_given(monkeypatch):
    monkeypatch.setattr(settings, "_OWN", set())


def row(**config):
    config = {"action_field": "guess", "observation_field": "hint", **config}
    return {"env_class_path": "OpenEnv", "env_config": config, "task_data": {"seed": 1}}


def test_a_row_makes_us_contact_no_server(nothing_given, monkeypatch):
    monkeypatch.setenv("MY_TOKEN", "sesame-42")
    path = "agentsgym.integrations.openenv.env.OpenEnvEnv"
    with NumberServer() as mine, NumberServer() as theirs:
        strange = [row(base_url=theirs.url), {**row(base_url=theirs.url), "env_class_path": path}]
        for each in strange:
            with pytest.raises(ConfigError, match="a row may only repeat"):
                run([each], ScriptedAgent(["1"]))
        own = client(mine)
        rows = own.get_train_dataset()
        assert run([rows[0]], ScriptedAgent([str(number(0))]))["final_rewards"] == [1.0]
        for each in [*strange, row(base_url=mine.url, key_env="MY_TOKEN")]:
            with pytest.raises(ConfigError, match="a row may only repeat"):
                EnvPool().get(each)
        EnvPool(envs=[client(theirs)]).get(strange[0])
        assert theirs.contacts == 0


def test_a_suite_makes_us_contact_no_server():
    game = {"name": "numbers", "env": "OpenEnv", "tasks": 1}
    suite = Suite(name="s", games=[{**game, "env_config": {"base_url": "http://there"}}])
    with pytest.raises(ConfigError, match="base_url=http://there"):
        check_names(suite)


def test_the_run_of_another_makes_us_contact_no_server(tmp_path):
    settings = {"base_url": "http://there:1", "key_env": "MY_TOKEN"}
    written = {"name": "theirs", "env": "OpenEnv", "env_config": settings}
    (tmp_path / "config.yaml").write_text(yaml.safe_dump(written))
    stored = load_run(tmp_path)
    with pytest.raises(ConfigError, match=r"env_config\.base_url=http://there:1"):
        check_stored(stored, training=False)
    here = {"env_config.base_url": "http://here:1"}
    with pytest.raises(ConfigError, match=r"env_config\.key_env"):
        check_stored(load_run(tmp_path, here), here, training=False)
    both = {f"env_config.{key}": value for key, value in settings.items()}
    check_stored(load_run(tmp_path, both), both, training=False)


@pytest.mark.parametrize(
    ("said", "problem"),
    [
        ({"win": "false"}, "info['win'] must be True or False"),
        ({"stop_reason": 3}, "info['stop_reason'] must be str"),
        ({"done": "false"}, "its answer is none of OpenEnv"),
        ({"reward": "1.0"}, "reward must be a finite number"),
    ],
    ids=str,
)
def test_what_a_server_says_is_read_as_strictly_as_any_environment(said, problem):
    outer = {name: said.pop(name) for name in ("done", "reward") if name in said}
    answer = observation("right", 1.0, True)
    answer["data"] = {**answer["data"], **outer}
    answer["data"]["observation"] |= said
    with NumberServer(fault=json.dumps(answer)) as server:
        assert problem in play(server, "1", "2").error
