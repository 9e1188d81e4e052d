"""`agentsgym.integrations.trl` in TRL's own GRPOTrainer, beside GRPOEnvTrainer."""

import copy
import json
from types import SimpleNamespace

import pytest
import torch
from transformers import TrainerCallback
from trl import GRPOConfig, GRPOTrainer

from agentsgym import GRPOEnvConfig, GRPOEnvTrainer, register
from agentsgym.generation.settings import EngineSettings
from agentsgym.integrations.trl import (
    RolloutFunc,
    SeveralRows,
    episode_reward,
    prompt_dataset,
    rollout_func,
)
from agentsgym.rollout import EveryRolloutFailed
from helpers import DigitEnv, random_llama
from integrations.trl_ranks import OPTIONS, FlakyEnv


class Gradient(TrainerCallback):
    """Keeps the gradient of the first optimizer step, and stops there."""

    flat = None

    def on_pre_optimizer_step(self, args, state, control, model=None, **_):
        if self.flat is None:
            grads = [p.grad.flatten() for p in model.parameters() if p.grad is not None]
            self.flat = torch.cat(grads).clone()


class Recorder:
    """A rollout function that keeps what it returned."""

    def __init__(self, inner):
        self.inner, self.outputs = inner, []

    def __call__(self, prompts, trainer):
        self.outputs.append(self.inner(prompts, trainer))
        return self.outputs[-1]


OURS_TOO = {"scale_rewards": "group", "max_grad_norm": 0.0}


@pytest.fixture
def trainers(tmp_path, chat_tokenizer, monkeypatch):
    """Returns functions that make TRL's trainer and ours on the same weights and tasks."""
    # TRL's head computes in tiles of 32,768 columns, however small the vocabulary is.
    monkeypatch.setattr("trl.trainer.utils._CHUNKED_LOGPROB_CHUNK_SIZE", 512, raising=False)
    model = random_llama(chat_tokenizer)

    def trl(env, func=rollout_func, evaluated=None, **options):
        own = OPTIONS | OURS_TOO | {"output_dir": str(tmp_path / "trl")}
        return GRPOTrainer(
            copy.deepcopy(model),
            episode_reward,
            GRPOConfig(**own | options),
            prompt_dataset(env.get_train_dataset()),
            evaluated,
            chat_tokenizer,
            rollout_func=func,
        )

    def ours(env, sink, **options):
        own = OPTIONS | OURS_TOO | {"output_dir": str(tmp_path / "ours"), "max_action_tokens": 4}
        del own["max_completion_length"]
        return GRPOEnvTrainer(
            copy.deepcopy(model),
            GRPOEnvConfig(**own | options),
            env.get_train_dataset(),
            None,
            chat_tokenizer,
            rollout_sink=sink,
        )

    return SimpleNamespace(trl=trl, ours=ours, model=model)


def first_steps(trainers, env, **options):
    """What both trainers played, and their first gradients."""
    played, record, gradients = [], Recorder(rollout_func), (Gradient(), Gradient())
    theirs = trainers.trl(env, record, **options)
    ours = trainers.ours(env, lambda rollouts, info: played.extend(rollouts), **options)
    for trainer, gradient in zip((theirs, ours), gradients):
        trainer.add_callback(gradient)
        trainer.train()
    return theirs, record.outputs[0], played, *(gradient.flat for gradient in gradients)


def apart(first, second):
    return float((first - second).norm() / second.norm())


def test_tokens_and_the_first_gradient_are_those_of_our_trainer(trainers, chat_tokenizer):
    register("Digit", DigitEnv)
    env = DigitEnv(chat_tokenizer)
    trainer, output, played, theirs, ours = first_steps(trainers, env)
    assert len(played) == 16 and len({len(ids) for ids in output["completion_ids"]}) > 1
    for number, rollout in enumerate(played):
        (row,) = rollout.rows
        begin = row.prompt_length
        end = row.spans[-1].stop
        assert output["prompt_ids"][number] == row.token_ids[:begin].tolist()
        assert output["completion_ids"][number] == row.token_ids[begin:end].tolist()
        assert output["env_mask"][number] == row.agent_token_mask[begin:end].tolist()
        assert output["logprobs"][number] == row.logprobs[begin:end].tolist()
        assert output["episode_reward"][number] == rollout.final_reward
        assert output["step_rewards"][number] == [s.reward for s in rollout.episodes[0].steps]
    assert ours.norm() > 1e-3 and apart(theirs, ours) < 1e-5
    logged = trainer.state.log_history[0]
    wins = [rollout.episodes[0].win for rollout in played]
    assert logged["win_rate"] == sum(wins) / 16 and logged["stop/done"] == sum(wins) / 16
    assert logged["reward"] == logged["rewards/episode_reward/mean"]


def test_a_failed_rollout_is_masked_and_has_no_reward(trainers, chat_tokenizer):
    register("Flaky", FlakyEnv)
    record = Recorder(rollout_func)
    trainer = trainers.trl(FlakyEnv(chat_tokenizer), record)
    trainer.train()
    (output,) = record.outputs
    failed = [number for number, reward in enumerate(output["episode_reward"]) if reward is None]
    assert 0 < len(failed) < 16
    for number in failed:
        assert output["env_mask"][number] == [0] and output["won"][number] is None
        assert len(output["completion_ids"][number]) == len(output["logprobs"][number]) == 1
    rewards = [reward for reward in output["episode_reward"] if reward is not None]
    logged = trainer.state.log_history[0]
    assert logged["reward"] == pytest.approx(sum(rewards) / len(rewards))
    assert logged["failed"] == len(failed) / 16


@pytest.mark.parametrize(
    ("config", "why"),
    [
        ({"episodes_per_trial": 2, "carry": "none"}, "carry='none'"),
        ({"episodes_per_trial": 2, "carry": "summary"}, "carry='summary'"),
        ({"context_limit": 400}, "context_limit=400"),
    ],
)
def test_trials_of_several_rows_are_refused_before_anything_is_played(
    trainers, chat_tokenizer, config, why
):
    class UnplayedEnv(DigitEnv):
        def _initialize_episode(self, session_id, task_data):
            raise AssertionError("nothing is to be played")

    register("Unplayed", UnplayedEnv)
    env = UnplayedEnv(chat_tokenizer, config)
    with pytest.raises(SeveralRows, match=rf"env_config\.{why} gives .*GRPOEnvTrainer"):
        trainers.trl(env).train()


def test_rows_that_a_template_broke_are_refused():
    from agentsgym.integrations.trl import token_sequence
    from of_rows import Drawn, rollout_of

    rows = [Drawn([1, 2], [(0, k, 1, 2)], begins=b) for k, b in enumerate(("episode", "template"))]
    with pytest.raises(SeveralRows, match="step 1 of episode 0 because the chat template rewrote"):
        token_sequence(rollout_of(rows=rows), 2)


def test_an_evaluation_plays_its_tasks_with_the_same_noise_each_time(trainers, chat_tokenizer):
    register("Digit", DigitEnv)
    env, record = DigitEnv(chat_tokenizer), Recorder(rollout_func)
    tasks = prompt_dataset(env.get_eval_dataset().select(range(2)))
    sizes = {"num_generations_eval": 2, "per_device_eval_batch_size": 4}
    trainer = trainers.trl(env, record, tasks, **sizes)
    logged = trainer.evaluate()
    first, record.outputs = record.outputs, []
    trainer.model.eval()
    record([row["prompt"] for row in tasks for _ in range(2)], trainer)
    assert sum(len(output["won"]) for output in first) == 2 * len(tasks)
    assert (
        first == record.outputs and first[0]["completion_ids"][0] != first[0]["completion_ids"][1]
    )
    wins = [win for output in first for win in output["won"]]
    assert logged["eval_win_rate"] == pytest.approx(sum(wins) / len(wins))


def test_what_trl_cannot_pass_on_is_refused(trainers, chat_tokenizer):
    env = DigitEnv(chat_tokenizer)
    with pytest.raises(ValueError, match=r"min_p=0\.1 does not reach agentsgym's engines"):
        trainers.trl(env, min_p=0.1).train()
    trainer = trainers.trl(env)
    trainer.train_dataset = trainer.train_dataset.map(lambda _: {"prompt": "Hello"})
    with pytest.raises(ValueError, match=r"prompt 0 is no task: 'Hello'; .*prompt_dataset"):
        trainer.train()
    with pytest.raises(ValueError, match="also give the trainer rollout_func"):
        episode_reward(["a"], ["b"])


def test_training_ends_if_every_rollout_fails(trainers, chat_tokenizer):
    class BrokenEnv(DigitEnv):
        def _initialize_episode(self, session_id, task_data):
            raise RuntimeError("no such file")

    register("Broken", BrokenEnv)
    with pytest.raises(EveryRolloutFailed, match="no such file"):
        trainers.trl(BrokenEnv(chat_tokenizer)).train()


def test_prompts_may_be_messages_and_settings_are_heeded(trainers, chat_tokenizer):
    register("Digit", DigitEnv)
    env, func = DigitEnv(chat_tokenizer), rollout_func
    trainer = trainers.trl(env, func)
    texts = list(prompt_dataset(env.get_train_dataset()))[:2]
    assert json.loads(texts[0]["prompt"])["env_class_path"] == "Digit"
    plain = [text["prompt"] for text in texts]
    chat = [[{"role": "user", "content": text}] for text in plain]
    output = func(plain, trainer)
    assert func(chat, trainer) == output
    # Settings that TRL's configuration has no field for.
    one = EngineSettings(capacity=1)
    short = RolloutFunc(max_action_tokens=2, envs=[env], engine=one)(plain, trainer)
    assert max(map(sum, output["env_mask"])) > max(map(sum, short["env_mask"])) <= 4
