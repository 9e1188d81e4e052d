"""The presets with SmolLM2: a real model from its warm start to an optimizer step of GRPO."""

import pytest

from agentsgym.envs import ConfigError
from agentsgym.runs import load_config, parse_overrides
from agentsgym.runs.builtin import smollm2_folder
from agentsgym.runs.files import RunDirectory, read_summary
from agentsgym.runs.train import train_run

SHORT = [
    "warm_start.games=16",
    "warm_start.best_of=2",
    "warm_start.probe_tasks=1",
    "train.max_steps=1",
    "train.per_device_train_batch_size=8",
    "train.num_generations=4",
    "eval.rollouts=4",
    "threads=1",
]


@pytest.mark.slow
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("preset", ["smollm2", "smollm2-explore"])
def test_the_first_steps_of_the_preset(preset, tmp_path):
    try:
        smollm2_folder()
    except ConfigError as error:
        pytest.skip(str(error))
    config = load_config(preset, parse_overrides([*SHORT, f"output_dir={tmp_path}"]))
    train_run(config, set_aside=True)
    summary = read_summary(RunDirectory(tmp_path).summary)
    assert summary.status == "finished" and summary.steps == 1
    assert None not in (summary.before, summary.warm_started, summary.after)
    assert (RunDirectory(tmp_path).model / "adapter_config.json").is_file()
