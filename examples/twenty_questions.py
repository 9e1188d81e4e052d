"""Train a tiny model from nothing on Twenty Questions, in the library's own terms.

    python examples/twenty_questions.py            # about ten minutes on two cores
    python examples/twenty_questions.py --quick    # a few steps, to see that everything runs

`agentsgym train quickstart` does the same and more (run directory, pictures, resuming); this
script shows the parts.
"""

import argparse
import tempfile

from agentsgym import DirectOutputAgent, GRPOEnvConfig, GRPOEnvTrainer, SamplingParams, make
from agentsgym.generation import EmbeddedEngine
from agentsgym.warm_start.new_model import warm_start
from agentsgym.warm_start.settings import WarmStartSettings


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true")
    quick = parser.parse_args().quick

    # 1. An environment: 64 secrets, 32 attributes, two opening hints, eight steps.
    config = {
        "table": "quickstart",
        "split": "hints",
        "hints": 2,
        "max_steps_per_episode": 8,
        "answer_style": "echo",
        "explain_actions": False,  # the model will know only the words of the game
        "train_tasks_per_secret": 8 if quick else 64,
    }
    env = make("TwentyQuestions", env_config=config)

    # 2. A model that knows the words, from scripted games of a teacher that asks at random.
    teaching = WarmStartSettings(steps=20 if quick else 1000)
    start = warm_start(env, env.teacher_agent(), teaching, seed=0)

    # 3. GRPO on the training tasks.
    with tempfile.TemporaryDirectory() as folder:
        trainer = GRPOEnvTrainer(
            start.model,
            GRPOEnvConfig(
                output_dir=folder,
                max_steps=3 if quick else 200,
                per_device_train_batch_size=64 if quick else 256,
                num_generations=16,
                max_action_tokens=12,
                learning_rate=6e-4,
                logging_steps=1 if quick else 10,
                gradient_checkpointing=False,
                save_strategy="no",
                report_to="none",
                use_cpu=True,
            ),
            env.get_train_dataset(),
            processing_class=start.tokenizer,
        )
        trainer.train()

    # 4. What it does on tasks that it never saw.
    agent = DirectOutputAgent(
        EmbeddedEngine(start.model, start.tokenizer), SamplingParams(max_tokens=12)
    )
    tasks = [row["task_data"] for row in env.get_eval_dataset()]
    batch = make("TwentyQuestions", start.tokenizer, config).run_trial(tasks, agent)
    print(f"held-out win rate: {sum(batch['final_rewards']) / len(tasks):.3f}")
    for message in batch["final_completion_messages"][0]:
        print(f"{message['role']:>9}: {message['content']}")


if __name__ == "__main__":
    main()
