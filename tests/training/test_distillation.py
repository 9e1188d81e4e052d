"""Distillation: KL to and from a teacher, which is a model of the process or a server."""

import copy
import math

import pytest
import torch

from agentsgym.envs import ConfigError
from agentsgym.generation.embedded.engine import EmbeddedEngine
from agentsgym.generation.vllm.protocol import (
    EngineUnavailable,
    MalformedAnswer,
    read_prompt_logprobs,
)
from agentsgym.training.loss.batch import make_rollouts
from agentsgym.training.loss.objective import DISTANCES
from agentsgym.training.loss.weights import assign_weights, per_rollout_token, streams_of
from completions_server import CompletionsServer
from helpers import DROPS_THOUGHT, CountdownEnv, build_tokenizer
from training import reference
from training.cells import random_rollouts

POLICY = torch.tensor([0.5, 0.3, 0.15, 0.05], dtype=torch.float64).log()
TEACHER = torch.tensor([0.1, 0.6, 0.1, 0.2], dtype=torch.float64).log()
OLDER = torch.tensor([0.25, 0.25, 0.3, 0.2], dtype=torch.float64)


@pytest.mark.parametrize(
    ("direction", "value"),
    [("reverse", 0.5 * math.log(5) + 0.3 * math.log(0.5) + 0.15 * math.log(1.5)
      + 0.05 * math.log(0.25)),
     ("forward", 0.1 * math.log(0.2) + 0.6 * math.log(2) + 0.1 * math.log(2 / 3)
      + 0.2 * math.log(4))],
)  # fmt: skip
def test_the_estimate_is_unbiased_by_enumeration(direction, value):
    """Its mean over tokens of an older policy is the KL, and so is its gradient's."""
    logits = POLICY.clone().requires_grad_()
    logps = torch.log_softmax(logits, -1)
    per_token = DISTANCES[direction](logps, TEACHER) * torch.exp(logps - OLDER.log())
    mean = (OLDER * per_token).sum()
    assert mean.item() == pytest.approx(value, abs=1e-12)
    (ours,) = torch.autograd.grad(mean, logits)
    exact = POLICY.clone().requires_grad_()
    own = torch.log_softmax(exact, -1)
    pairs = {"reverse": (own, TEACHER), "forward": (TEACHER, own)}
    left, right = pairs[direction]
    (truth,) = torch.autograd.grad((left.exp() * (left - right)).sum(), exact)
    assert torch.allclose(ours, truth, rtol=0, atol=1e-12)


def test_weights_count_every_rollout_that_did_not_fail():
    """Also one without signal, which the policy's loss leaves out."""
    played = random_rollouts(6, vocabulary=50)
    advantages = [row.agent_token_mask * 1.0 for r in played for row in r.rows]
    rollouts = make_rollouts(played, advantages, [True, False, True, False, False, True])
    assign_weights(rollouts, streams_of(per_rollout_token), list)
    live = sum(r.agent_tokens for k, r in enumerate(rollouts) if k != 4)  # the last but one failed
    for k, rollout in enumerate(rollouts):
        weights = [row.weights for row in rollout.rows]
        assert {of["teacher"] for of in weights} == {0.0 if k == 4 else 1 / live}
        assert all((of["policy"] > 0) is rollout.in_loss for of in weights)


# -- a model of the process ------------------------------------------------------------------------


@pytest.fixture
def teacher(tiny_llama, chat_tokenizer):
    """A model that prefers some tokens much, whatever it reads."""
    model = copy.deepcopy(tiny_llama)
    with torch.no_grad():
        embeddings = model.get_input_embeddings().weight
        embeddings.copy_(embeddings[9].expand_as(embeddings))
        model.lm_head.weight.mul_(12.0)
    return model


@pytest.fixture
def teacher_folder(teacher, chat_tokenizer, tmp_path):
    teacher.save_pretrained(tmp_path / "teacher")
    chat_tokenizer.save_pretrained(tmp_path / "teacher")
    return str(tmp_path / "teacher")


def trained_logs(trainer):
    trainer.train()
    return [entry for entry in trainer.state.log_history if "distillation" in entry]


def rows_of(trainer):
    trainer.model.train()
    return [row for r in trainer._prepare_inputs([])["rollouts"] for row in r.rows]


@pytest.mark.parametrize("temperature", [1.0, 0.7])
def test_the_teachers_log_probabilities(make_trainer, teacher, teacher_folder, temperature):
    """At the sampling temperature, by a full forward pass."""
    trainer = make_trainer(teacher_model=teacher_folder, temperature=temperature)
    for row in rows_of(trainer):
        with torch.no_grad():
            expected, _ = reference.log_probabilities(teacher, row.token_ids.tolist(), temperature)
        assert torch.allclose(row.logps["teacher"], expected[row.positions], atol=1e-4)


def test_a_student_reaches_its_teacher(make_trainer, teacher_folder):
    """By the teacher alone; groups without signal do not end it."""
    options = {"distillation": "reverse", "policy_gradient": False, "learning_rate": 3e-2}
    trainer = make_trainer(
        teacher_model=teacher_folder, max_steps=25, per_device_train_batch_size=32,
        min_signal_patience=2, min_signal_share=1.0, lr_scheduler_type="cosine", **options,
    )  # fmt: skip
    logs = trained_logs(trainer)
    assert len(logs) == 25
    first, last = logs[0]["distillation"], sum(e["distillation"] for e in logs[-5:]) / 5
    assert first > 0.5 and last < 0.1 * first


def test_groups_without_signal_are_distilled(make_trainer, chat_tokenizer, teacher_folder):
    env = CountdownEnv(chat_tokenizer)
    trainer = make_trainer(env=env, teacher_model=teacher_folder, zero_signal_groups="drop")
    logs = trained_logs(trainer)
    assert [entry["groups_without_signal"] for entry in logs] == [1.0, 1.0]
    assert all(entry["grad_norm"] > 1e-3 and entry["distillation"] > 0.1 for entry in logs)


def test_another_vocabulary_is_refused(make_trainer, tiny_llama, chat_tokenizer, tmp_path):
    other = build_tokenizer(DROPS_THOUGHT)
    other.add_tokens(["more"])
    tiny_llama.save_pretrained(tmp_path / "teacher")
    other.save_pretrained(tmp_path / "teacher")
    make_trainer(teacher_model=str(tmp_path / "teacher"))  # it knows every token of the policy
    chat_tokenizer.add_tokens(["mine"])
    try:
        with pytest.raises(ConfigError, match="another tokenizer: 'mine' is 385"):
            make_trainer(teacher_model=str(tmp_path / "teacher"))
    finally:
        chat_tokenizer._tokenizer = build_tokenizer(None)._tokenizer


def test_what_is_no_teacher(make_trainer, tmp_path):
    with pytest.raises(ConfigError, match="cannot be loaded"):
        make_trainer(teacher_model=str(tmp_path / "nowhere"))
    (tmp_path / "adapter_config.json").write_text("{}")
    with pytest.raises(ConfigError, match="agentsgym merge"):
        make_trainer(teacher_model=str(tmp_path))
    with pytest.raises(ValueError, match="at temperature 1"):
        make_trainer(teacher_model="http://127.0.0.1:9", temperature=0.5)


# -- a server --------------------------------------------------------------------------------------


@pytest.fixture
def server(teacher, chat_tokenizer):
    served = CompletionsServer(EmbeddedEngine(teacher, chat_tokenizer))
    yield served
    served.close()


def test_a_server_gives_the_teachers_log_probabilities(make_trainer, server, teacher):
    rows = rows_of(make_trainer(teacher_model=server.url))
    for row in rows:
        with torch.no_grad():
            expected, _ = reference.log_probabilities(teacher, row.token_ids.tolist())
        assert torch.allclose(row.logps["teacher"], expected[row.positions], atol=1e-4)


def test_a_teacher_that_ends_loses_no_rollouts(make_trainer, server):
    trainer = make_trainer(teacher_model=server.url)
    server.fault = lambda number: "garbage"
    with pytest.raises(MalformedAnswer, match="prompt_logprobs"):
        trainer.train()
    assert len(trainer.played.rollouts()) == 8


def test_a_server_with_another_tokenizer_is_refused(make_trainer, server, chat_tokenizer):
    server.tokenizer = build_tokenizer(None)
    server.tokenizer.add_tokens(["quick"])
    with pytest.raises(EngineUnavailable, match="another tokenizer"):
        make_trainer(teacher_model=server.url)


def scored(*numbers, ids=(7, 8, 9)):
    entries = [{str(i): {"logprob": n, "rank": 1}} for i, n in zip(ids[1:], numbers, strict=False)]
    return {"choices": [{"prompt_logprobs": [None, *entries]}]}


def test_prompt_log_probabilities_of_an_answer():
    assert read_prompt_logprobs(scored(-0.5, 1e-4), (7, 8, 9)) == (0.0, -0.5, 0.0)


@pytest.mark.parametrize(
    "answer",
    [{}, {"choices": []}, {"choices": [{"prompt_logprobs": None}]}, scored(-1.0),
     scored(-1.0, float("nan")), scored(-1.0, -1.0, ids=(7, 9, 8))],
)  # fmt: skip
def test_an_answer_without_prompt_log_probabilities(answer):
    with pytest.raises(MalformedAnswer):
        read_prompt_logprobs(answer, (7, 8, 9))
