"""Two processes (gloo) with TRL's GRPOTrainer and our rollout function, against one."""

import pytest
import torch

from integrations import trl_ranks
from training.two import run_two

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def two(tmp_path_factory):
    return run_two("integrations.trl_ranks", tmp_path_factory.mktemp("two"))


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
