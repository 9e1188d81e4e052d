"""Whole rollouts in actors of a Ray cluster: the same as those of one process, also when an actor
or a node dies."""

import os
from dataclasses import replace
from pathlib import Path

import pytest
from nodes import at_number, free_cpus, ray, ray_folder

from agentsgym import DirectOutputAgent, SamplingParams
from agentsgym.envs import EnvPool, task_dataset
from agentsgym.generation.embedded.engine import EmbeddedEngine
from agentsgym.generation.vllm.engine import VLLMEngine
from agentsgym.rollout import play
from agentsgym.rollout.ray.source import ActorsFailed, RaySource
from agentsgym.training import GRPOEnvConfig, GRPOEnvTrainer
from agentsgym.types import RolloutRequest, session_seed
from completions_server import CompletionsServer
from helpers import random_llama
from misbehaving_env import MisbehavingEnv
from vllm_program import assert_gone

pytestmark = [pytest.mark.doors, pytest.mark.usefixtures("cluster")]

SMALL = {"num_cpus": 0.5}
SHORT = SamplingParams(max_tokens=4)
KEY = "sk-very-secret-key-123"


class FragileEnv(MisbehavingEnv):
    """Some tasks end the process that plays them."""

    def _format_prompt(self, state, step):
        if state.get("deadly"):
            os._exit(3)
        return super()._format_prompt(state, step)

    def _begin_episode(self, session_id, task_data, trial):
        state = super()._begin_episode(session_id, task_data, trial)
        return state | {"deadly": task_data.get("deadly")}


@pytest.fixture(scope="module")
def server(chat_tokenizer):
    """It samples one request at a time, so that answers do not depend on who asks beside it."""
    model = random_llama(chat_tokenizer, max_position_embeddings=4096).eval()
    engine = EmbeddedEngine(model, chat_tokenizer, capacity=1)
    made = CompletionsServer(engine, key=KEY, follow=True, length=4096)
    yield made
    made.close()


@pytest.fixture
def engine(server, chat_tokenizer):
    made = VLLMEngine(server.url, chat_tokenizer, capacity=12, api_key=KEY)
    yield made
    made.close()


@pytest.fixture
def source_of(engine):
    """Makes sources and ends them."""
    made = []

    def source(envs, workers=2, **options):
        options = {"resources": SMALL} | options
        ray_source = RaySource(engine, envs, SHORT, workers=workers, **options)
        made.append(ray_source)
        return ray_source

    yield source
    for one in made:
        one.close()


def requests_of(env, tasks, rollouts=2):
    row = {"env_class_path": env.class_path, "env_config": env.env_config}
    return [
        RolloutRequest.of(row | {"task_data": task}, g, i, session_seed(0, g, i))
        for g, task in enumerate(tasks)
        for i in range(rollouts)
    ]


def taken(source, requests):
    """The rollouts of requests, in their order."""
    source.submit(requests)
    by_session = {}
    while len(by_session) < len(requests):
        by_session |= {rollout.session_id: rollout for rollout in source.poll(60)}
    assert source.poll() == []
    return [by_session[request.session_id] for request in requests]


def without_info(rollouts):
    """Rollouts without what the environment told about its process."""
    for rollout in rollouts:
        for episode in rollout.episodes:
            for step in episode.steps:
                step.info.clear()
    return list(rollouts)


@pytest.mark.parametrize("workers", [1, 3])
def test_rollouts_do_not_depend_on_the_number_of_workers(
    source_of, engine, chat_tokenizer, workers
):
    env = MisbehavingEnv(chat_tokenizer, {"episodes_per_trial": 2, "carry": "full"})
    requests = requests_of(env, [{"length": k} for k in (2, 5, 3)], 4)
    pool = EnvPool(chat_tokenizer, envs=[env])
    agent = DirectOutputAgent(engine, SHORT)
    source = source_of(pool, workers)
    rollouts = taken(source, requests)
    pids = {s.info["pid"] for r in rollouts for e in r.episodes for s in e.steps}
    assert 1 <= len(pids) <= workers  # one may start when the others have played all
    assert without_info(rollouts) == without_info(play(requests, agent, pool))
    assert 1 <= source.figures["alive"] <= workers and source.figures["lost"] == 0


def test_an_evaluation_has_its_own_sampling(source_of, engine, chat_tokenizer):
    """And does not wait for what was submitted."""
    env = MisbehavingEnv(chat_tokenizer, {})
    pool = EnvPool(chat_tokenizer, envs=[env])
    greedy = SamplingParams(max_tokens=6, temperature=0.0)
    requests = requests_of(env, [{"length": k} for k in (8, 1, 9, 10)], 2)
    eval_requests = requests_of(env, [{"length": 12}])
    eval_requests = [replace(r, session_id=f"eval-{r.session_id}", seed=5) for r in eval_requests]
    here = play(requests, DirectOutputAgent(engine, SHORT), pool)
    apart = play(eval_requests, DirectOutputAgent(engine, greedy), pool)
    source = source_of(pool)
    source.submit(requests)
    assert without_info(source.play(eval_requests, greedy)) == without_info(apart)
    by_session = {}
    while len(by_session) < len(requests):
        by_session |= {rollout.session_id: rollout for rollout in source.poll(60)}
    assert without_info([by_session[r.session_id] for r in requests]) == without_info(here)
    assert source.poll() == [] and source.idle_seconds > 0


@pytest.mark.parametrize("workers", [1, 2])
def test_a_trial_that_kills_its_workers_fails_alone(source_of, chat_tokenizer, workers):
    """The others are played again."""
    env = FragileEnv(chat_tokenizer, {})
    requests = requests_of(env, [{"length": 3, "deadly": True}] + [{"length": 3}] * 3, 1)
    source = source_of(EnvPool(chat_tokenizer, envs=[env]), workers)
    rollouts = taken(source, requests)
    assert [rollout.failed for rollout in rollouts] == [True] + [False] * 3
    assert "3 actors were lost while they played it; the last: " in rollouts[0].error
    assert "the last: an actor died (Actor" in rollouts[0].error
    assert source.figures["lost"] == 3 and source.figures["replayed"] >= 2


def test_rollouts_of_a_lost_node_are_played_elsewhere(
    source_of, engine, server, chat_tokenizer, lose_a_node, monkeypatch
):
    env = MisbehavingEnv(chat_tokenizer, {"episodes_per_trial": 2, "carry": "full"})
    pool = EnvPool(chat_tokenizer, envs=[env])
    requests = requests_of(env, [{"length": k} for k in (6, 7, 5)], 8)
    here = without_info(play(requests, DirectOutputAgent(engine, SHORT), pool))
    source = source_of(pool, workers=4)
    taken(source, requests_of(env, [{"length": 1}] * 8, 1))
    while source.figures["alive"] < 4:
        assert source.poll(0.1) == []
    monkeypatch.setattr(server, "fault", at_number(40, lose_a_node))
    source.submit(requests)
    rollouts = []
    while len(rollouts) < len(requests):
        rollouts += source.poll(60)
    there = {rollout.session_id: rollout for rollout in without_info(rollouts)}
    assert [there[request.session_id] for request in requests] == here
    assert source.figures["lost"] >= 1 and source.figures["replayed"] >= 1


def test_resources_that_no_node_has_are_named(source_of, chat_tokenizer, monkeypatch):
    monkeypatch.setattr("agentsgym.rollout.ray.source.START_SECONDS", 3.0)
    env = MisbehavingEnv(chat_tokenizer, {})
    source = source_of(EnvPool(chat_tokenizer, envs=[env]), resources={"simulator": 1})
    source.submit(requests_of(env, [{"length": 1}]))
    with pytest.raises(ActorsFailed, match=r"reserves \{.simulator.: 1\} could not be started"):
        source.poll()


def test_a_worker_that_cannot_begin_says_why_and_nothing_of_the_key(
    source_of, server, chat_tokenizer
):
    env = MisbehavingEnv(chat_tokenizer, {})
    source = source_of(EnvPool(chat_tokenizer, envs=[env]))
    server.die()
    try:
        source.submit(requests_of(env, [{"length": 1}]))
        with pytest.raises(ActorsFailed, match="no vLLM server answers"):
            source.poll()
    finally:
        server.start()
    logs = Path(ray_folder()).rglob("*")
    assert not [path for path in logs if path.is_file() and KEY.encode() in path.read_bytes()]


def test_nothing_stays_when_a_source_is_closed(source_of, chat_tokenizer):
    env = MisbehavingEnv(chat_tokenizer, {})
    source = source_of(EnvPool(chat_tokenizer, envs=[env]))
    requests = requests_of(env, [{"length": 2}])
    first = taken(source, requests)
    pids = {s.info["pid"] for r in first for e in r.episodes for s in e.steps}
    source.submit(requests)
    source.close()
    assert source.figures["alive"] == 0
    assert_gone(pids)
    assert free_cpus() == ray().cluster_resources()["CPU"]
    with pytest.raises(RuntimeError, match="closed"):
        source.submit(requests)


def test_weights_change_while_workers_play_ahead(server, chat_tokenizer, tmp_path, monkeypatch):
    monkeypatch.setenv("SERVER_KEY", KEY)
    env = MisbehavingEnv(chat_tokenizer, {})
    played = []
    trainer = GRPOEnvTrainer(
        random_llama(chat_tokenizer),
        GRPOEnvConfig(
            output_dir=str(tmp_path),
            engine={"urls": [server.url], "key_env": "SERVER_KEY"},
            ray={"workers": 2, "resources": SMALL},
            max_staleness=1,
            max_steps=3,
            per_device_train_batch_size=8,
            num_generations=4,
            max_action_tokens=4,
            learning_rate=5e-3,
            logging_steps=1,
            report_to="none",
            use_cpu=True,
            gradient_checkpointing=False,
            save_strategy="no",
            disable_tqdm=True,
        ),
        task_dataset(env, [{"length": 4}] * 6),
        processing_class=chat_tokenizer,
        envs=[env],
        rollout_sink=lambda rollouts, info: played.extend(rollouts),
    )
    trainer.train()
    trainer.collector.engine.close()
    steps = [entry for entry in trainer.state.log_history if "reward" in entry]
    assert len(steps) == 3 and steps[-1]["staleness/max"] <= 1
    assert [rollout.error for rollout in played] == [None] * 24
    assert {rollout.policy_version for rollout in played} > {0}
