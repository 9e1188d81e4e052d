"""The parts of the golden records: each yields (item, {field: value})."""

import functools
import json
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import adapters
from safetensors.torch import load_file

import agentsgym
from agentsgym import MultistepEnv, ScriptedAgent
from agentsgym.credit import advantages
from agentsgym.rollout import run

Items = Iterator[tuple[str, dict[str, Any]]]

# -- all settings, as they are spelled ------------------------------------------------------------

ENVIRONMENTS: dict[str, dict[str, Any]] = {
    "TwentyQuestions": {"table": "quickstart", "split": "hints", "hints": 2},
    "Bandit": {},
    "Mastermind": {},
    "Explore": {},
    "ClassicalReasoning": {},
    "TextWorld": {"workers": 0},
    "ALFWorld": {"workers": 0},
    "Gymnasium/Taxi": {},
    "Gymnasium/FrozenLake": {},
    "TextArena/GuessTheNumber": {},
    "TextArena/Mastermind": {},
}
"""Played in every way to carry, by a model and by random players."""

GAMES = (
    *("2048", "Bandit", "Blackjack", "Countdown", "Crosswords", "Cryptarithm", "FifteenPuzzle"),
    *("FrozenLake", "LightsOut", "LogicPuzzle", "Minesweeper", "PegJump", "RushHour", "Secretary"),
    *("Set", "Slitherlink", "Sokoban", "Sudoku", "ThreeCardMonte", "TowerOfHanoi"),
)
TEXT_ONLY: dict[str, dict[str, Any]] = {
    "TwentyQuestions": {},
    "TwentyQuestions#hardcore": {"hardcore": True},
    "TwentyQuestions#echo": {
        "table": "quickstart",
        "answer_style": "echo",
        "information_reward": 0.3,
    },
    "Explore#steps": {"max_steps_per_episode": 4, "episodes_per_trial": 3, "free_shots": 2},
    **{f"TextArena/{game}": {} for game in GAMES},
}
TRIALS: dict[str, dict[str, Any]] = {
    "one": {"episodes_per_trial": 1, "free_shots": 0},
    **{
        carry: {"episodes_per_trial": 2, "free_shots": 1, "carry": carry}
        for carry in ("none", "full", "summary")
    },
}
FOR_MODEL = {"max_steps_per_episode": 3, "error_allowance": 9, "reflection_tokens": 6}
PLACEMENTS = [
    {"reward_placement": placement, "final_reward": final}
    for placement in ("spread", "broadcast", "last_token")
    for final in ("last_step", "repeat", "spread")
]
LINES = {
    "TwentyQuestions": [
        *("Is it an animal?", "Is it used every day?", "Is it made of wood?", "Can it fly?"),
        *("Is it alive?", "Is it bigger than a breadbox?", "[dog]", "[chair]", "nonsense", ""),
    ],
    "ClassicalReasoning": ["A", "B", "<answer>C</answer>", "42", "The answer is D.", "\\boxed{7}"],
}

COMMON = {
    "max_action_tokens": 4,
    "num_generations": 4,
    "max_tokens_per_forward": 160,
    "learning_rate": 1.0,
    "lr_scheduler_type": "constant",
    "optim": "sgd",
    "logging_steps": 1,
    "gradient_checkpointing": False,
    "save_strategy": "no",
    "disable_tqdm": True,
    "max_grad_norm": 0.0,
    "max_steps": 2,
    "num_iterations": 2,
    "shuffle_dataset": False,
}
LOSSES = ("grpo", "dapo", "dr_grpo", "cispo", "sapo", "luspo", "vespo")
SCOPES = ("token", "step", "rollout")
OTHER_TERMS: list[dict[str, Any]] = [
    {"delta": 1.4},
    {"entropy_coef": 0.1},
    {"sampler_correction": "none"},
    {"sampler_cap": 1.1},
    {"temperature": 0.7},
    {"beta": 0.1},
    {"beta": 0.1, "ratio_scope": "step", "use_bias_correction_kl": False},
    {"train_truncated_actions": False},
    {"zero_signal_groups": "drop"},
    {"zero_signal_groups": "resample"},
    {"scale_step_rewards": "batch", "advantage_estimator": "step_return"},
    {"steps_per_generation": 2, "num_iterations": 1},
    {"max_rollout_tokens": 60},
    {"advantage_estimator": "grpo", "scale_rewards": "none"},
    {"advantage_estimator": "grpo", "scale_rewards": "batch"},
]
REPEATS = {"max_action_tokens": 1, "temperature": 0.1}
"""With these, actions of a group repeat."""
ESTIMATORS: list[tuple[str, dict[str, Any]]] = [
    ("grpo", {}),
    ("grpo", {"scale_rewards": "none"}),
    ("grpo", {"scale_rewards": "batch"}),
    ("rloo", {}),
    ("step_return", {}),
    ("step_return", {"gamma": 0.9}),
    ("gigpo", {}),
    ("gigpo", {"gamma": 0.9, "step_weight": 0.5}),
    ("gigpo", {"baseline": "mean"}),
    ("gigpo", {"baseline": "mean_std"}),
    ("trial", {}),
    ("trial", {"gamma": 0.9, "trial_gamma": 0.8}),
    ("trial_cv", {}),
    ("reward", {}),
]

SMALL = ["threads=1", "max_seconds=9000", "eval.episodes=32"]
QUICKSTART = ["quickstart", *SMALL, "train.max_steps=20"]
EXPLORE = [
    *("explore", *SMALL, "train.max_steps=20", "warm_start.steps=100", "warm_start.batch_size=32"),
    *("warm_start.games_per_round=320", "warm_start.tokenizer_games=500"),
]
SHORT = ["quickstart", *SMALL, "train.per_device_train_batch_size=64", "train.token_records=2"]
STEPS = "train.max_steps={}"

FIGURES = (
    *("loss", "grad_norm", "learning_rate", "reward", "reward_std", "win_rate", "steps"),
    *("agent_tokens", "tokens", "rows_per_rollout", "malformed", "truncated", "clipped", "entropy"),
    *("groups_without_signal", "total_agent_tokens", "exploration_gain", "informing", "failed"),
)
"""Of a line of metrics.jsonl."""

EVALUATIONS = {
    **{
        f"{env} {agent}": [f"agent:{agent}", "--env", env, "--episodes", "64"]
        for env in ("TwentyQuestions", "Bandit", "Mastermind", "Explore")
        for agent in ("optimal", "random")
        if (env, agent) != ("TwentyQuestions", "random")
    },
    "Explore never": ["agent:never", "--env", "Explore", "--episodes", "64"],
    "Bandit trial": [
        *("agent:optimal", "--env", "Bandit", "--episodes", "32", "--rollouts-per-task", "2"),
        *("episodes_per_trial=2", "free_shots=1", "carry=full"),
    ],
    "Bandit vs": ["agent:random", "--env", "Bandit", "--episodes", "32", "--vs", "agent:optimal"],
    "suite": ["agent:optimal", "--suite", "explore", "--episodes", "8"],
}
OF_RUN = {
    "run": ["--episodes", "64"],
    "run greedy": ["--episodes", "32", "--temperature", "0", "--seed", "3"],
    "run several": ["--episodes", "32", "--rollouts-per-task", "4"],
    "run vs": ["--episodes", "32", "--vs", "agent:optimal"],
}
EVAL_OPTIONS = ["--json", "--threads", "1"]

# -- 1. rollouts ----------------------------------------------------------------------------------


def rollouts() -> Items:
    """Every environment, in every way to carry, by a model and by text."""
    for name, config in ENVIRONMENTS.items():
        yield from _environment(name, config)
    for name, config in TEXT_ONLY.items():
        env = agentsgym.make(name.partition("#")[0], None, config)
        yield f"{name} | text only", _played(env.run_trial(_tasks(env, 2), _text_agent(env), 2))
    yield "ClassicalReasoning | right", _played(_right_answers())
    yield from _placed()
    yield from _templates()
    yield from _mixed()


def _environment(name: str, config: dict[str, Any]) -> Items:
    tok = _tokenizer("append")
    tasks = _tasks(agentsgym.make(name, None, config))
    yield f"{name} | tasks", {"tasks": tasks}
    for way, trial in TRIALS.items():
        env = agentsgym.make(name, tok, config | trial | FOR_MODEL)
        batch = env.run_trial(tasks[:2], adapters.engine_agent(tok), 2, return_all_steps=True)
        yield f"{name} | {way} | model", _played(batch)
        env = agentsgym.make(name, tok, config | trial)
        batch = env.run_trial(tasks[-2:], _text_agent(env), 1, return_all_steps=True, seed=1)
        yield f"{name} | {way} | text", _played(batch)


def _right_answers() -> Any:
    """Every other question answered right."""
    env = agentsgym.make("ClassicalReasoning", _tokenizer("append"))
    tasks = _tasks(env, 6)
    answers = [str(task["questions"][0]["answer"]) for task in tasks]
    lines = {k: answer if k % 2 == 0 else "none of these" for k, answer in enumerate(answers)}
    texts = [task["questions"][0]["question"] for task in tasks]

    def answer(messages: Any) -> str:
        text = messages[-1]["content"]
        return next((lines[k] for k, question in enumerate(texts) if question in text), "unknown")

    return env.run_trial(tasks, ScriptedAgent(answer), 1, return_all_steps=True)


def _placed() -> Items:
    tok = _tokenizer("append")
    for placement in PLACEMENTS:
        config = placement | {"episodes_per_trial": 2, "carry": "full", "malformed_penalty": 0.25}
        env = agentsgym.make("Bandit", tok, config | {"max_steps_per_episode": 4})
        agent = adapters.random_agent(env, 3)
        batch = env.run_trial(_tasks(env, 2), agent, 2, return_all_steps=True)
        yield f"placed {' '.join(placement.values())}", _played(batch)
        model = adapters.engine_agent(tok)
        env = agentsgym.make("Toy", tok, placement)
        batch = env.run_trial([{"steps": 3}], model, 2, return_all_steps=True)
        yield f"placed {' '.join(placement.values())} | model", _played(batch)


def _templates() -> Items:
    thinks = ScriptedAgent([f"<think>hm {k}</think>{k % 2 + 1}" for k in range(9)])
    trial = TRIALS["full"] | {"max_steps_per_episode": 4, "error_allowance": 9}
    for template in ("append", "thoughts", "shortens", None):
        tok = _tokenizer(template)
        for name in ("Bandit", "Toy"):
            for way in ({}, {"system_prompt": "Be brief."}):
                env = agentsgym.make(name, tok, trial | way)
                tasks = _tasks(env, 2)
                label = f"template {template} | {name} | {'system' if way else 'plain'}"
                model = adapters.engine_agent(tok, 6)
                batch = env.run_trial(tasks, model, 2, return_all_steps=True)
                if template != "thoughts":  # the model has none
                    yield f"{label} | model", _played(batch)
                yield f"{label} | thinks", _played(env.run_trial(tasks, thinks, 1, True))


def _mixed() -> Items:
    tok = _tokenizer("append")
    rows = [
        {
            "env_class_path": name,
            "env_config": config | TRIALS[way] | FOR_MODEL,
            "task_data": _tasks(agentsgym.make(name, None, config), 1)[0],
        }
        for name, config in list(ENVIRONMENTS.items())[:4]
        for way in ("one", "full")
    ]
    rows.append({"env_class_path": "Toy", "env_config": {}, "task_data": {"steps": 3, "fails": 1}})
    batch = run(rows, adapters.engine_agent(tok), 3, seed=5, max_rollout_tokens=500, all_steps=True)
    yield "mixed", _played(batch)


def _tasks(env: MultistepEnv, number: int = 4) -> list[dict[str, Any]]:
    """Tasks for training and, last, as many held-out ones."""
    tasks = []
    for data in (env.get_train_dataset(), env.get_eval_dataset()):
        tasks += [data[k]["task_data"] for k in range(min(number, len(data)))]
    return tasks


def _text_agent(env: MultistepEnv) -> Any:
    name = type(env).__name__.removesuffix("Env")
    return adapters.random_agent(env, 7) or adapters.DrawingAgent(LINES[name])


def _played(batch: Any) -> dict[str, Any]:
    """All of a batch in fields."""
    groups = {
        "ids": ("full_token_ids", "padded_full_token_ids", "prompt_ids", "completion_ids", "ids"),
        "masks": (
            *("full_attention_mask", "agent_token_mask", "padded_full_attention_mask"),
            *("padded_agent_token_mask", "action_mask", "mask"),
        ),
        "logprobs": ("logprobs",),
        "rewards": (
            *("per_token_rewards", "padded_per_token_rewards", "step_rewards", "final_rewards"),
            "rewards",
        ),
        "messages": ("final_completion_messages", "messages"),
        "sessions": ("session_ids",),
    }
    fields = {
        field: {key: batch[key] for key in keys if key in batch} for field, keys in groups.items()
    }
    fields["rows"] = adapters.rows_of(batch)
    fields["outcomes"] = [adapters.outcome_of(rollout) for rollout in batch.rollouts]
    return fields


@functools.cache
def _tokenizer(template: str | None) -> Any:
    return adapters.tokenizer(template)


# -- a toy environment ----------------------------------------------------------------------------


class ToyEnv(MultistepEnv):
    """`steps` steps; each earns by what was said, nothing in a `flat` task. In a task that `fails`
    the second step breaks, if what was said has an even number of characters."""

    def _initialize_episode(self, session_id: str, task_data: dict[str, Any]) -> dict[str, Any]:
        return {"steps": 2, "fails": 0, "flat": 0, "played": 0, "sum": 0, **task_data}

    def _format_prompt(self, state: dict[str, Any], step: int) -> str:
        return f"The number is {state['sum']}. Say {state['steps'] - step} more."

    def _step_episode(self, session_id: str, state: dict[str, Any], action: str) -> tuple[Any, ...]:
        if state["fails"] and state["played"] == 1 and len(action) % 2 == 0:
            raise RuntimeError("the environment broke")
        value = 0 if state["flat"] else sum(map(ord, action)) % 7
        state = {**state, "played": state["played"] + 1, "sum": state["sum"] + value}
        done = state["played"] == state["steps"]
        info = {
            "anchor": str(state["sum"] % 3),
            "malformed": value == 6,
            "win": value > 3,
            "metrics": {"value": float(value)},
        }
        return state, value / 7, done, info

    def _calculate_reward(self, state: Any, actions: Any, final: str, rewards: Any) -> float:
        return float(sum(rewards)) + 0.125 * (state["sum"] % 2)

    def get_train_dataset(self) -> Any:
        return agentsgym.task_dataset(
            self,
            [
                {"steps": 1 + k % 3, "fails": int(k % 4 == 1), "flat": int(k % 4 == 3)}
                for k in range(8)
            ],
        )

    def get_eval_dataset(self) -> Any:
        return agentsgym.task_dataset(self, [{"steps": 4, "seed": k} for k in range(2)])


agentsgym.register("Toy", ToyEnv)

# -- 2. gradients ---------------------------------------------------------------------------------


def gradients() -> Items:
    """Loss and gradient of two updates on one generation, for each point of a grid."""
    cells: dict[str, dict[str, Any]] = {}
    for a, loss in enumerate(LOSSES):
        for b, scope in enumerate(SCOPES):
            options: dict[str, Any] = {"loss_type": loss, "ratio_scope": scope}
            options["train_on"] = ("rollout", "steps")[(a + b) % 2]
            options["gradient_accumulation_steps"] = 1 + (a + b // 2) % 2
            if loss == "cispo":
                options["epsilon_high"] = 1.3  # its default is below every ratio
            options["advantage_estimator"] = ("rloo", "step_return")[a // 2 % 2]
            cells[" ".join(map(str, options.values()))] = options
    for terms in OTHER_TERMS:
        cells[str(terms)] = {"loss_type": "dapo", **terms}
    for estimator in sorted({name for name, _ in ESTIMATORS}):
        cells[f"estimator {estimator}"] = {"advantage_estimator": estimator}
    cells["estimator trial_cv"] |= REPEATS
    for name, options in cells.items():
        yield name, _gradient(options)


def _gradient(options: dict[str, Any]) -> dict[str, Any]:
    tok = _tokenizer("append")
    accumulation = options.get("gradient_accumulation_steps", 1)
    generation = options.get("steps_per_generation", accumulation)
    norm = {"loss_norm_tokens": 37} if options.get("loss_type") == "dr_grpo" else {}
    with tempfile.TemporaryDirectory() as folder:
        model = Path(folder) / "model"
        adapters.llama(tok, 16, spread=0.1).save_pretrained(model)
        env = agentsgym.make("Toy", tok, {"episodes_per_trial": 2, "error_allowance": 9})
        size = {"per_device_train_batch_size": 16 // generation}
        seen, log = adapters.gradients(
            env.get_train_dataset(), model, tok, Path(folder), COMMON | norm | size | options
        )
    lines = [line for line in log if "loss" in line]
    # The loss is near 0; beside the norm its rounding does not count.
    return {
        "loss and norm": [
            [float(line["loss"]), float(gradient.norm())]
            for line, gradient in zip(lines, seen, strict=True)
        ],
        "gradients": seen,
        "log": {key: [float(line.get(key, 0.0)) for line in lines] for key in FIGURES},
    }


# -- 3. quickstart and explore --------------------------------------------------------------------


def quickstart() -> Items:
    """Twenty steps of the quickstart."""
    with _trained(*QUICKSTART) as run_dir:
        yield from _run("quickstart", run_dir)


def explore() -> Items:
    """Twenty steps of `explore`, after a short warm start."""
    with _trained(*EXPLORE) as run_dir:
        yield from _run("explore", run_dir)


class _trained:
    """The directory of a run, while it is looked at."""

    def __init__(self, *settings: str) -> None:
        self._settings = settings

    def __enter__(self) -> Path:
        self._folder = tempfile.mkdtemp()
        path = Path(self._folder) / "run"
        adapters.command("train", *self._settings, "--output", path)
        return path

    def __exit__(self, *_: object) -> None:
        shutil.rmtree(self._folder)


def _run(name: str, path: Path) -> Items:
    """Figures per step, weights, evaluations and stored rollouts of a run."""
    lines = [json.loads(line) for line in (path / "metrics.jsonl").read_text().splitlines()]
    lines = [line for line in lines if line["phase"] == "train"]
    yield (
        f"{name} metrics",
        {key: [line[key] for line in lines] for key in FIGURES if key in lines[0]},
    )
    yield f"{name} weights", _weights(path)
    summary = json.loads((path / "summary.json").read_text())
    yield (
        f"{name} evaluations",
        {
            "before": summary["before"],
            "warm_started": summary["warm_started"],
            "after": summary["after"],
            "steps": summary["steps"],
            "references": summary["references"],
        },
    )
    for phase in ("before", "train", "after"):
        stored = adapters.stored_rollouts(path, phase)
        fields = {key: [rollout[key] for rollout in stored] for key in stored[0]}
        yield f"{name} stored {phase}", fields


def _weights(path: Path) -> dict[str, Any]:
    tensors = load_file(path / "model" / "model.safetensors")
    return {"weights": {name: tensor.flatten() for name, tensor in tensors.items()}}


# -- 4. a resumed run -----------------------------------------------------------------------------


def resume() -> Items:
    """Four steps at once, and two and two."""
    with _trained(*SHORT, STEPS.format(4)) as whole, _trained(*SHORT, STEPS.format(2)) as halves:
        adapters.command("train", "--resume", halves, STEPS.format(4))
        undisturbed, resumed = dict(_run("run", whole)), dict(_run("run", halves))
    yield from undisturbed.items()
    for item in ("run metrics", "run weights", "run stored train", "run stored after"):
        yield f"resumed {item}", resumed[item]


# -- 5. evaluation --------------------------------------------------------------------------------


def evaluation() -> Items:
    """Figures of a short run and of scripted agents."""
    with _trained(*SHORT, STEPS.format(2)) as path:
        for name, options in OF_RUN.items():
            yield name, _evaluated(str(path), *options)
    for name, options in EVALUATIONS.items():
        yield name, _evaluated(*options)


def _evaluated(*arguments: str) -> dict[str, Any]:
    return _timeless(json.loads(adapters.command_here("eval", *arguments, *EVAL_OPTIONS)))


def _timeless(value: Any) -> Any:
    """A value without times, versions and the paths of models."""
    if isinstance(value, dict):
        left_out = ("seconds", "versions", "model", "threads")
        return {key: _timeless(item) for key, item in value.items() if key not in left_out}
    return [_timeless(item) for item in value] if isinstance(value, list) else value


# -- 6. credit ------------------------------------------------------------------------------------


def credit() -> Items:
    """Every estimator over batches of scripted play."""
    for name, batch in _batches().items():
        for estimator, options in ESTIMATORS:
            label = " ".join([estimator, *(f"{k}={v}" for k, v in options.items())])
            values = advantages(batch, estimator, **options)
            yield f"{name} | {label}", {"advantages": [list(map(float, row)) for row in values]}


def _batches() -> dict[str, Any]:
    batches = {}
    tok = _tokenizer("append")
    for name in ("Toy", "Bandit"):
        for way, trial in TRIALS.items():
            env = agentsgym.make(name, tok, trial | {"max_steps_per_episode": 4})
            # Each rollout of a group must say other things: the agents draw anew for each.
            agent = adapters.random_agent(env, 3) or _Drawing(["1", "22", "left", "down", "no"])
            batch = env.run_trial(_tasks(env)[:4], agent, 4)
            batches[f"{name} {way}"] = batch
    return batches


class _Drawing:
    """Draws lines, one after the other, over all rollouts."""

    def __init__(self, lines: list[str]) -> None:
        self._lines, self._count = lines, 0

    def get_action(self, messages: Any, state: Any) -> tuple[str, Any]:
        self._count += 1
        return self._lines[self._count * self._count * 7 % 41 % len(self._lines)], None


PARTS = {
    part.__name__: part
    for part in (rollouts, gradients, quickstart, explore, resume, evaluation, credit)
}
