"""Environments in actors of a Ray cluster: the same rollouts as in this process, also when an actor
or a node dies."""

import time

import pytest
from nodes import free_cpus

import agentsgym
from agentsgym import DirectOutputAgent, SamplingParams, ScriptedAgent
from agentsgym.envs import task_dataset
from agentsgym.generation.embedded.engine import EmbeddedEngine
from agentsgym.rollout.workers.pool import started_workers, stop_workers
from agentsgym.rollout.workers.ray_actor import RayWorker
from agentsgym.training import GRPOEnvConfig, GRPOEnvTrainer
from helpers import random_llama
from moody import MoodyEnv

pytestmark = [pytest.mark.ray, pytest.mark.usefixtures("cluster")]

ON_RAY = {"place": "ray", "workers": 3, "worker_resources": {"num_cpus": 0.5}}


@pytest.fixture(autouse=True)
def _end_actors():
    yield
    stop_workers()


@pytest.fixture
def engine_agent(tiny_llama, chat_tokenizer):
    engine = EmbeddedEngine(tiny_llama, chat_tokenizer, capacity=8)
    return DirectOutputAgent(engine, SamplingParams(max_tokens=4))


def told(batch):
    """All that a batch says, but for what the environment told about its process."""
    rows = [(r.token_ids.tolist(), r.spans) for r in batch.rows]
    return rows, batch["final_rewards"], batch["final_completion_messages"], batch["session_ids"]


def actors():
    return [worker for worker in started_workers() if isinstance(worker, RayWorker)]


def test_rollouts_with_tokens_are_those_of_the_process_itself(engine_agent, chat_tokenizer):
    tasks = [{"length": k} for k in (2, 5, 3)]
    config = {"episodes_per_trial": 2, "free_shots": 1, "carry": "full"}
    here = MoodyEnv(chat_tokenizer, config).run_trial(tasks, engine_agent, 4, seed=1)
    there = MoodyEnv(chat_tokenizer, config | ON_RAY).run_trial(tasks, engine_agent, 4, seed=1)
    assert told(there) == told(here)
    pids = {s.info["pid"] for r in there.rollouts for e in r.episodes for s in e.steps}
    assert len(pids) == 3


def test_twenty_questions_is_played_as_here():
    env = agentsgym.make("TwentyQuestions", None, {})
    tasks = [env.get_eval_dataset()[k]["task_data"] for k in range(8)]
    questions = ScriptedAgent(["Is it an animal?", "Is it a fruit?", "[apple]"] * 5)
    there = agentsgym.make("TwentyQuestions", None, ON_RAY)
    assert told(there.run_trial(tasks, questions)) == told(env.run_trial(tasks, questions))


def test_alfworld_is_played_as_here(tmp_path, monkeypatch):
    pytest.importorskip("alfworld", reason="needs the extra agentsgym[alfworld]")
    from agentsgym.envs.alfworld import TASK_TYPES, ExpertAgent
    from agentsgym.envs.alfworld.games import generated_tasks

    tasks = generated_tasks(tmp_path, "train", list(TASK_TYPES)[:3], 3)
    here = agentsgym.make("ALFWorld", None, {"place": "here"}, trust=True)
    there = agentsgym.make("ALFWorld", None, ON_RAY, trust=True)
    won = there.run_trial(tasks, ExpertAgent())
    assert told(won) == told(here.run_trial(tasks, ExpertAgent()))
    assert won["final_rewards"] == [1.0] * 3


def test_a_session_that_kills_its_actor_fails_alone():
    env = MoodyEnv(None, ON_RAY | {"workers": 1})
    script = ScriptedAgent(lambda messages: "die" if "step 1" in messages[-1]["content"] else "go")
    batch = env.run_trial([{"length": 2}], script)
    assert "the Ray actor died" in batch.rollouts[0].error
    assert not env.run_trial([{"length": 1}], ScriptedAgent(["go"])).rollouts[0].failed


def test_a_hung_actor_is_replaced():
    env = MoodyEnv(None, ON_RAY | {"workers": 1, "worker_timeout": 2.0})
    batch = env.run_trial([{"length": 1}], ScriptedAgent(["hang"]))
    assert "no answer within 2 seconds" in batch.rollouts[0].error


def test_an_actor_that_no_node_has_room_for_is_named(monkeypatch):
    monkeypatch.setattr("agentsgym.rollout.workers.worker.START_SECONDS", 3.0)
    env = MoodyEnv(None, ON_RAY | {"workers": 1, "worker_resources": {"simulator": 1}})
    began = time.monotonic()
    batch = env.run_trial([{"length": 1}] * 4, ScriptedAgent(["go"]))
    assert time.monotonic() - began < 2 * 3.0, "each session and each try waited on its own"
    for rollout in batch.rollouts:
        assert "reserves {'simulator': 1} could not be started" in rollout.error


def test_sessions_of_a_lost_node_are_replayed_elsewhere(lose_a_node):
    tasks = [{"length": k} for k in (4, 5, 6, 7)]
    config = {"episodes_per_trial": 2, "carry": "full"}
    words = ["a", "bc", "def", "ghij"]
    seen = []

    def say(messages):
        seen.append(len(seen))
        if len(seen) == 20:
            lose_a_node()
        return words[len(messages) % 4]

    here = MoodyEnv(None, config).run_trial(
        tasks, ScriptedAgent(lambda messages: words[len(messages) % 4])
    )
    there = MoodyEnv(None, config | ON_RAY).run_trial(tasks, ScriptedAgent(say))
    assert len(seen) > 20 and told(there) == told(here)


def test_an_environment_is_stored_once_and_nothing_stays(engine_agent, chat_tokenizer):
    import ray

    from agentsgym.rollout.workers import ray_actor

    before = dict(ray_actor._STORED)
    env = MoodyEnv(chat_tokenizer, ON_RAY)
    env.run_trial([{"length": 2}] * 6, engine_agent, 2)
    env.run_trial([{"length": 3}] * 6, engine_agent, 2)
    assert len(ray_actor._STORED) == len(before) + 1 and not env.active_states
    del env
    assert ray_actor._STORED.keys() == before.keys()
    stop_workers()
    assert not any(worker._running() for worker in actors())
    assert free_cpus() == ray.cluster_resources()["CPU"]


def test_a_training_survives_a_node_that_is_lost_in_a_step(
    lose_a_node, chat_tokenizer, tmp_path, monkeypatch
):
    """Loss and rewards of every step are those of a training in this process."""
    here = steps_of_a_training(chat_tokenizer, tmp_path / "here", {})
    asked = []
    submit = EmbeddedEngine.submit

    def lose_one(self, requests):
        asked.extend(requests)
        if len(asked) >= 32 + 10 and len(asked) - len(requests) < 32 + 10:
            lose_a_node()  # in the second step, whose 32 actions are not all played
        submit(self, requests)

    monkeypatch.setattr(EmbeddedEngine, "submit", lose_one)
    there = steps_of_a_training(chat_tokenizer, tmp_path / "there", ON_RAY)
    assert [s["reward"] for s in there] == [s["reward"] for s in here]
    for step, alike in zip(there, here, strict=True):  # who is sampled together changes the floats
        assert step == pytest.approx(alike, rel=1e-4, abs=1e-6)
    assert len(here) == 3 and all(step["grad_norm"] > 0.1 for step in here)
    assert len(asked) == 3 * 32


def steps_of_a_training(tokenizer, folder, config):
    """What is logged of three steps of 32 actions, which begin with the same model."""
    env = MoodyEnv(tokenizer, config)
    trainer = GRPOEnvTrainer(
        random_llama(tokenizer),
        GRPOEnvConfig(
            output_dir=str(folder),
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
        processing_class=tokenizer,
        envs=[env],
    )
    trainer.train()
    keys = ("loss", "reward", "reward_std", "grad_norm")
    return [{key: e[key] for key in keys} for e in trainer.state.log_history if "reward" in e]
