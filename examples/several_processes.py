"""Train a preset or run file in several processes, which `agentsgym train` does not do.

    accelerate launch --config_file examples/configs/eight_gpus.yaml \
        examples/several_processes.py eight-gpus [KEY=VALUE ...]

It trains, and saves checkpoints and the model in the run's directory; it makes no evaluations.
"""

import sys
from contextlib import closing

from agentsgym.runs import Progress, load_config, parse_overrides
from agentsgym.runs.files import RunDirectory
from agentsgym.runs.from_config import datasets_of, make_env, train_settings
from agentsgym.runs.policy import load_policy


def main() -> None:
    from agentsgym import GRPOEnvTrainer

    config = load_config(sys.argv[1], parse_overrides(sys.argv[2:]))
    tasks, _ = datasets_of(make_env(config))
    settings = train_settings(config)
    policy = load_policy(config, Progress())
    trainer = GRPOEnvTrainer(policy.model, settings, tasks, processing_class=policy.tokenizer)
    with closing(trainer.collector):
        trainer.train()
    trainer.save_model(str(RunDirectory(config.directory).model))


if __name__ == "__main__":
    main()
