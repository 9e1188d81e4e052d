"""What a rollout worker does, without a cluster: tests/ray_cluster has the rest."""

import threading

import pytest

from agentsgym import DirectOutputAgent, SamplingParams
from agentsgym.envs import EnvPool
from agentsgym.generation.embedded.engine import EmbeddedEngine
from agentsgym.generation.vllm.engine import VLLMEngine
from agentsgym.rollout import play
from agentsgym.rollout.rollout_workers.player import (
    EnvParcel,
    Player,
    PlayerSetup,
    Served,
    unpacked_rollout,
)
from agentsgym.rollout.workers.env import pack
from agentsgym.types import RolloutRequest, session_seed
from completions_server import CompletionsServer
from moody import MoodyEnv, Unreadable

SHORT, GREEDY = SamplingParams(max_tokens=4), SamplingParams(max_tokens=5, temperature=0.0)
KEY = "sk-of-the-servers-77"


@pytest.fixture
def engine(tiny_llama, chat_tokenizer):
    server = CompletionsServer(EmbeddedEngine(tiny_llama, chat_tokenizer, capacity=1), key=KEY)
    made = VLLMEngine(server.url, chat_tokenizer, capacity=4, api_key=KEY)
    yield made
    made.close()
    server.close()


def setup_of(engine):
    return PlayerSetup(
        access=engine.access, tokenizer=engine.tokenizer, template_options={}, capacity=4
    )


def test_a_worker_plays_as_its_learner(engine, chat_tokenizer):
    """With two sets of sampling settings side by side, in an environment that it was sent."""
    env = MoodyEnv(chat_tokenizer, {})
    row = {"env_class_path": env.class_path, "env_config": {}, "task_data": {"length": 3}}
    asked = [RolloutRequest.of(row, g, 0, session_seed(0, g)) for g in range(6)]
    pool = EnvPool(chat_tokenizer, envs=[env])
    here = play(asked[:4], DirectOutputAgent(engine, SHORT), pool)
    here += play(asked[4:], DirectOutputAgent(engine, GREEDY), pool)

    setup = setup_of(engine)
    assert KEY not in repr(setup)
    player = Player(setup, Served(engine.weights))
    player.submit(asked[:4], SHORT, False, EnvParcel(env.class_path, {}, pack(env)))
    player.submit(asked[4:], GREEDY, False)
    found, idle = {}, 0.0
    while len(found) < len(asked):
        played = player.poll(10.0)
        found |= dict(played.rollouts)
        idle = played.idle
    there = [unpacked_rollout(found[r.session_id], {}, r.task_data) for r in asked]
    for rollout in (*there, *here):
        for step in rollout.episodes[0].steps:
            step.info.clear()  # it tells how many sessions were open
    assert there == here
    assert player.poll(0.2).idle >= idle + 0.2
    player.close()


class Ending(BaseException):
    """What is no fault of a trial."""


class EndingEnv(MoodyEnv):
    def _format_prompt(self, state, step):
        raise Ending("the playing ends")


def test_a_worker_tells_whatever_ends_its_playing(engine, chat_tokenizer):
    """Otherwise its learner would wait forever."""
    env = EndingEnv(chat_tokenizer, {})
    row = {"env_class_path": env.class_path, "env_config": {}, "task_data": {}}
    player = Player(setup_of(engine), Served())
    parcel = EnvParcel(env.class_path, {}, pack(env))
    player.submit([RolloutRequest.of(row, 0, 0, 1)], SHORT, False, parcel)
    with pytest.raises(Ending, match="the playing ends"):
        player.poll(10.0)
    player.close()


class ObjectsEnv(MoodyEnv):
    """Tells what cannot be sent, and what cannot be read where it is received."""

    def _step_episode(self, session_id, state, action):
        after, reward, done, info = super()._step_episode(session_id, state, action)
        return after, reward, done, {**info, "lock": threading.Lock(), "odd": Unreadable()}


def test_objects_in_info_are_shown_as_texts_as_here(engine, chat_tokenizer):
    env = ObjectsEnv(chat_tokenizer, {})
    row = {"env_class_path": env.class_path, "env_config": {}, "task_data": {"length": 1}}
    player = Player(setup_of(engine), Served(engine.weights))
    parcel = EnvParcel(env.class_path, {}, pack(env))
    player.submit([RolloutRequest.of(row, 0, 0, 1)], SHORT, False, parcel)
    [(_, data)] = player.poll(10.0).rollouts
    player.close()
    [step] = unpacked_rollout(data, {}, {}).episodes[0].steps
    assert "lock" in step.info["lock"] and "Unreadable" in step.info["odd"]
