"""Two processes (gloo) with TRL's GRPOTrainer and our rollout function, against one."""

import socket
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from helpers import child_environment
from integrations import trl_ranks

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def two(tmp_path_factory):
    out = tmp_path_factory.mktemp("two")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [
        *(sys.executable, "-m", "accelerate.commands.launch", "--multi_gpu"),
        *("--num_processes", "2", "--num_machines", "1", "--mixed_precision", "no"),
        *("--dynamo_backend", "no", "--main_process_ip", "127.0.0.1"),
        *("--main_process_port", str(port), "-m", "integrations.trl_ranks", str(out)),
    ]
    tests = Path(__file__).parents[1]
    env = child_environment(tests) | {"OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        command, env=env, cwd=tests.parent, capture_output=True, text=True, timeout=280, check=False
    )
    where = max(done.stderr.find("Traceback"), 0)
    assert done.returncode == 0, done.stderr[where : where + 4000]
    return [torch.load(out / f"rank{k}.pt", weights_only=False) for k in range(2)]


def test_they_play_and_learn_as_one_process_does(two, tmp_path):
    one = trl_ranks.everything(tmp_path, 1)
    assert [rank["rank"] for rank in two] == [0, 1]
    for step in range(2):
        alone, parts = one["outputs"][step], [rank["outputs"][step] for rank in two]
        assert [len(part["env_mask"]) for part in parts] == [6, 6]
        lengths = [sum(map(len, part["completion_ids"])) for part in parts]
        assert lengths[0] != lengths[1]
        for key in ("prompt_ids", "completion_ids", "env_mask", "episode_reward", "won"):
            assert parts[0][key] + parts[1][key] == alone[key], key
        assert parts[0]["figures"] == parts[1]["figures"] == pytest.approx(alone["figures"])
        assert None in alone["episode_reward"]
    assert torch.equal(two[0]["weights"], two[1]["weights"])
    torch.testing.assert_close(two[0]["weights"], one["weights"], rtol=0, atol=1e-5)
