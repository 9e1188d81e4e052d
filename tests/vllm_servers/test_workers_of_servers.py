"""Rollout workers on Ray that sample from real vLLM servers, which take full weights each step."""

import pytest
import torch

from agentsgym.envs import task_dataset
from agentsgym.generation.vllm import VLLMEngine
from agentsgym.training import GRPOEnvConfig, GRPOEnvTrainer
from agentsgym.types import WeightUpdate
from misbehaving_env import MisbehavingEnv
from vllm_servers.test_vllm_servers import full_logprobs, load_model

pytestmark = [pytest.mark.doors, pytest.mark.timeout(1200)]


@pytest.fixture
def one_node():
    ray = pytest.importorskip("ray", reason="needs the extra agentsgym[ray]")
    ray.init(address="local", num_cpus=2, include_dashboard=False, log_to_driver=False)
    yield
    ray.shutdown()


@pytest.fixture
def urls(servers, model_dir, chat_tokenizer, tmp_path):
    """Those of servers that have their own weights again afterwards."""
    addresses = [server.url for server in servers]
    yield addresses
    engine = VLLMEngine(addresses, chat_tokenizer)
    engine.update_weights(WeightUpdate(load_model(model_dir), 9, tmp_path / "sync"))
    engine.close()


@pytest.mark.usefixtures("one_node")
def test_workers_sample_from_the_weights_of_each_step(urls, model_dir, chat_tokenizer, tmp_path):
    """Log-probabilities are those of a full forward of the model that the step began with."""
    versions, apart, errors = [], [], []
    start = load_model(model_dir)

    def compare(rollouts, info):
        model = trainer.accelerator.unwrap_model(trainer.model)
        versions.append({rollout.policy_version for rollout in rollouts})
        errors.extend(rollout.error for rollout in rollouts if rollout.failed)
        for row in (row for rollout in rollouts for row in rollout.rows):
            mask = torch.tensor(row.agent_token_mask[1:]).bool()
            sampled = torch.tensor(row.logprobs[1:])[mask]
            now, first = (full_logprobs(m, row.token_ids)[mask] for m in (model, start))
            apart.append([float((sampled - known).abs().max()) for known in (now, first)])

    env = MisbehavingEnv(chat_tokenizer, {})
    trainer = GRPOEnvTrainer(
        load_model(model_dir),
        GRPOEnvConfig(
            output_dir=str(tmp_path / "out"),
            engine={"urls": urls},
            max_steps=3,
            per_device_train_batch_size=8,
            num_generations=4,
            max_action_tokens=6,
            learning_rate=5e-3,
            logging_steps=1,
            report_to="none",
            use_cpu=True,
            gradient_checkpointing=False,
            save_strategy="no",
            disable_tqdm=True,
            ray={"workers": 2, "resources": {"num_cpus": 0.5}},
        ),
        task_dataset(env, [{"length": 3}] * 6),
        processing_class=chat_tokenizer,
        envs=[env],
        rollout_sink=compare,
    )
    trainer.train()
    trainer.collector.engine.close()
    assert errors == [] and versions == [{0}, {1}, {2}]
    assert max(now for now, _ in apart) < 1e-3
    assert max(first for _, first in apart[-8:]) > 0.05
    logged = [entry for entry in trainer.state.log_history if "reward" in entry]
    assert all(entry["ray/alive"] >= 1 for entry in logged)
    assert logged[-1]["ray/lost"] == 0
