"""`train: auto`: the settings of a run, chosen from a short probe of its game.

The probe plays games of the player that the warm start imitates, and needs no model: after the warm
start the model plays as that player does. `choices` is a pure function from what was probed to
settings, each with its reason. What the user gives is never changed; the run's config.yaml has all
that was chosen, with the reasons in `chosen`, so a resumed run probes nothing.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from statistics import fmean, pvariance
from typing import Any, NamedTuple

import numpy as np

from agentsgym.agents.scripted import RandomAgent, scripted_agent
from agentsgym.credit.table import differ
from agentsgym.envs import ConfigError, MultistepEnv
from agentsgym.envs.dataset import TaskFile, own_tasks
from agentsgym.evaluation.evaluate import known_reference
from agentsgym.rollout.failures import last_line
from agentsgym.runs.from_config import checked_tasks, make_env
from agentsgym.runs.models import config_of
from agentsgym.runs.parts import Progress
from agentsgym.runs.processes import processes_started
from agentsgym.runs.settings import TINY, RunConfig, parse_config
from agentsgym.runs.sources import flat, merge
from agentsgym.runs.weights import stored_adapter
from agentsgym.types import Rollout
from agentsgym.warm_start.phrases import fixed_phrases, pieces_pattern
from agentsgym.warm_start.settings import ROLLOUTS, SCRIPTED

TASKS, PER_TASK = 32, 32
"""Games of the probe: so many on each of so many tasks. A share of groups is known to 9 %."""
GROUPS = (8, 16, 32)
"""Sizes of groups that are considered. Explore learned alike with 2 to 16, worse with 64."""
WITH_SIGNAL, LEAST_GROUPS, MOST_ROLLOUTS = 0.5, 4, 512
"""The share of groups that should have signal, how many groups with signal a generation should
have, and how many rollouts it has at most."""
PIECES = 6000
"""Phrases and words that a generation has at least. At equal numbers of games, Explore learned
fastest with many small updates (area under the curve .93, .84, .57 with 32, 128, 512 rollouts). Of
short games a few are played little sooner than many, and chance decides what they show: a card game
of four actions lost its entropy at .58 of the way with 32 games an update, and reached .98 with
256, which took 3.6 times as long."""
SLOW = 5
"""An update with so many times this number is slow."""
ADAPTER_PIECES = 3000
"""The same for a pretrained model, whose updates cost more: about 64 games of the size of
GuessTheNumber, as in the preset smollm2."""
WARM_PIECES = 1700
"""Phrases and words in an update of the warm start: 16 games of 108 in the preset explore-many."""
BEST_OF = 16
"""Games of a random or careless teacher, the best of which is imitated. Paid games alone rescued
Explore's hardest starts: after a look, such a game shows how its answer is used
(docs/results/explore.md)."""
RATE, RATE_OF_LINES = 3e-4, 1e-3
"""Learning rates of RL for a model that begins with induction heads, and for one whose tokens are
lines."""
BETA = 0.02
"""Weight of the KL penalty of a new model, which keeps what it imitated in reach. Without it a
vending machine lost its entropy early and ended at .68 of the way, and a shop at .70; with it they
reached 1.00 and .82 (docs/results/strangers.json)."""
PATIENCE = 50
"""Generations without signal that end the run of a new model. The KL penalty lets a policy try
other actions again: a robot that always fetched one of two samples had signal after 23 generations
without any, and went from .67 to .83 of the way (docs/results/strangers.json)."""
ROUND, EPOCHS = 20, 4
"""Updates on a round of games, and how often each of these is learned from."""
HEADS = 8
"""Heads of a layer, of which one attends to the last message and each of the others copies at
another distance. In a table with lines such as "Anna | cat | Paris" the city stands four tokens
after the name: with three distances two of four runs never learned to find it. Heads of twice the
size learn it in fewer updates, but each takes longer: a maze had 73 of them, not 105."""
WARM_RATE = 7e-4
"""Learning rate of a warm start that begins with induction heads."""
NEW_LINES = 0.05
"""Share of lines that no earlier game had, above which a token is a word and no line."""
KINDS, CERTAIN = 12, 4.0
"""Values that a key of `task_data` may have to divide tasks by difficulty, and the standard errors
between the rewards of two of them: by chance 1 of 16,000 pairs is so far apart."""
LONGEST = 64
"""Most tokens of an action."""
WARM_SECONDS, SECONDS = 180.0, 300.0
"""Seconds of the warm start and of RL, which with the evaluations make ten minutes."""
ADAPTER_SECONDS = 1200.0
"""Seconds of RL for the adapter of a pretrained model."""
ADAPTER_RATE, WARM_ADAPTER_RATE, WIDTH = 4e-4, 1e-3, 576
"""Learning rates of SmolLM2-135M's adapter in RL and in its warm start, and its width. For wider
models they fall with the width, which is a guess: 1e-4 for RL at 2304, the width of a model of 3B,
where published runs of adapters have 1e-5 to 5e-5 (docs/train-qwen.md)."""


@dataclass(frozen=True, slots=True)
class Probed:
    """What the probe saw. `signal` has for each size of a group the share of groups whose rewards
    differ; `new_lines` is the share of lines of the second half of the tasks that the first half
    did not have; `pieces` are the phrases and words of the longest conversation, `action_bytes` the
    longest action, `actions` the most of them in a trial; `difficulty` is a key of `task_data`
    whose values differ in reward, if there is one; `reward` and `best_of` are the mean reward of
    all games and of the best of `BEST_OF`, `reference` that of best play, if it is known; training
    has `tasks` tasks."""

    reward: float
    best_of: float
    signal: Mapping[int, float]
    new_lines: float
    pieces: int
    mean_pieces: float
    action_bytes: int
    actions: int
    carries: bool
    random_teacher: bool
    tasks: int
    reference: float | None = None
    difficulty: str | None = None

    @property
    def has_lines(self) -> bool:
        """Whether a line can be a token: hardly any is new."""
        return self.new_lines < NEW_LINES


class Choice(NamedTuple):
    """A setting by its dotted key, and why it has this value."""

    key: str
    value: Any
    reason: str


def choices(
    probed: Probed, *, group: int | None = None, batches: int | None = 1, width: int | None = None
) -> list[Choice]:
    """The settings of a run, from what was probed; `group` is the size of its groups, if that is
    given, and `width` the hidden size of its pretrained model, None for a new one. A generation has
    so many `batches`, None if their size is given."""
    before = (_of_model(probed), _of_warm_start(probed)) if width is None else (_of_adapter(width),)
    training = _of_training(probed, group, batches, width)
    after = (training, _of_rate_and_time(probed, width))
    rows = chain(*before, _best_of(probed), *after)
    return [*(Choice(*row) for row in rows), *(Choice(*row, _PRESETS) for row in _SHARED.items())]


_PRESETS = "as in the presets quickstart, explore and explore-many"
# Not their adam_beta2: with 0.98 Adam forgets how large gradients were, and makes whole steps of
# the noise of the last groups with signal. A game was won in 97 % and unlearned 40 updates later;
# with TRL's 0.999 it was won always in the last 46 of 104.
_SHARED: dict[str, Any] = {
    "train.warmup_steps": 5,
    "train.weight_decay": 0.0,
    "train.loss_type": "dapo",
    "train.gradient_checkpointing": False,
}
_WHOLE = ("warm_start.model.", "model.lora")
_Row = tuple[str, Any, str]


def _of_model(probed: Probed) -> Iterator[_Row]:
    positions = 2 * probed.pieces + LONGEST * probed.actions
    size = max(512, 1 << (positions - 1).bit_length())
    room = f"a conversation had up to {probed.pieces} phrases and words; positions cost nothing"
    yield "warm_start.model.max_positions", size, room
    share = f"{probed.new_lines:.0%} of the lines were new in the second half of the tasks"
    if probed.has_lines:
        yield "warm_start.tokenizer", "lines", f"only {share}: a line is a token"
        return
    copies = "what a prompt says anew must be copied"
    yield "warm_start.tokenizer", "phrases", f"{share}: a token is a word, or a fixed phrase"
    yield "warm_start.model.layers", 3, copies
    yield "warm_start.model.heads", HEADS, "a head for each distance that a table needs"
    yield "warm_start.model.induction_heads", HEADS - 1, f"{copies}, up to seven tokens later"
    yield "warm_start.model.recency_heads", 1, "an action depends most on the last message"
    yield "warm_start.learning_rate", WARM_RATE, "above it such a model forgets what it learns"


def _of_adapter(width: int) -> Iterator[_Row]:
    known = "as in the preset smollm2"
    yield "model.lora.r", 32, f"an adapter needs little memory; {known}"
    yield "model.lora.lora_alpha", 64.0, known
    yield "warm_start.source", "teacher", "the form of an action is imitated first"
    yield "warm_start.games", 256, "twice as many as in the preset smollm2, whose game is short"
    yield "warm_start.epochs", 1, known
    yield "warm_start.batch_size", 8, "as in the preset smollm2-explore: more updates"
    yield "warm_start.learning_rate", *_by_width(WARM_ADAPTER_RATE, width)
    yield "warm_start.max_tokens_per_forward", 2048, f"bounds memory; {known}"
    yield "train.max_tokens_per_forward", 2048, f"bounds memory; {known}"


def _by_width(rate: float, width: int) -> tuple[float, str]:
    """A learning rate that was measured at WIDTH, for a model of this width, and its reason."""
    known = f"as in the preset smollm2, whose model has a width of {WIDTH}"
    if width <= WIDTH:
        return rate, known
    return rate * WIDTH / width, f"{known}; this one has {width}, and the rate falls with it"


def _of_warm_start(probed: Probed) -> Iterator[_Row]:
    size = int(np.clip(WARM_PIECES / probed.mean_pieces, 8, 64))
    length = f"a game has {probed.mean_pieces:.0f} phrases and words on average"
    yield "warm_start.batch_size", size, f"{length}, an update {WARM_PIECES}, as in explore-many"
    yield "warm_start.games_per_round", ROUND // EPOCHS * size, f"a round is {ROUND} updates"
    yield "warm_start.epochs", EPOCHS, "to play the best of several takes longer than to learn it"
    yield "warm_start.tokenizer_games", 500, "the words of a small game are seen by then"
    yield "warm_start.max_seconds", WARM_SECONDS, "of ten minutes; if it learns sooner, it ends"


def _best_of(probed: Probed) -> Iterator[_Row]:
    best = probed.reference
    lucky = best is not None and probed.best_of > best
    varied = probed.random_teacher or (probed.signal[BEST_OF] >= WITH_SIGNAL and not lucky)
    if varied and probed.best_of > probed.reward:
        earns = f"the teacher earns {probed.reward:.3f}, the best of {BEST_OF}"
        why = f"{earns} of its games on a task {probed.best_of:.3f}: "
        show = "these show what a prompt means"
        if lucky:
            show = f"more than best play, {best:.3f}; after a question they show what it tells"
        yield "warm_start.best_of", BEST_OF, why + show


def _of_training(
    probed: Probed, group: int | None, batches: int | None, width: int | None
) -> Iterator[_Row]:
    enough = (size for size in GROUPS if probed.signal[size] >= WITH_SIGNAL)
    alike = not probed.random_teacher and probed.signal[GROUPS[-1]] == 0
    size = group or (GROUPS[0] if alike else next(enough, GROUPS[-1]))
    share = 1.0 if alike else probed.signal.get(size, probed.signal[GROUPS[0]])
    seen = f"{share:.0%} of the teacher's groups of {size} have different rewards"
    if not group and share < WITH_SIGNAL:
        seen = f"even of groups of {size}, only {share:.0%} of the teacher's have different rewards"
    if alike:
        seen = "the teacher always plays a task alike; one of its imitators will not"
    pieces = PIECES if width is None else ADAPTER_PIECES
    wanted = max(LEAST_GROUPS / max(share, 1e-9), pieces / (size * probed.mean_pieces))
    groups = int(np.clip(np.ceil(wanted), LEAST_GROUPS, MOST_ROLLOUTS // size))
    most = max(1, probed.tasks // batches) if batches else groups
    if groups > most:  # a generation has one group of a task
        few = f"{probed.tasks} task{'s' * (probed.tasks > 1)}"
        seen += f"; larger groups instead of more, because training has only {few}"
        size = group or min(-(-groups * size // most), MOST_ROLLOUTS // most)
        share = share if group or alike else probed.signal[GROUPS[-1]]
        groups = most
    over, why = "grpo", "no episode sees an earlier one"
    if probed.carries:
        over, why = "trial", "credit crosses the episodes of a trial"
    yield "train.advantage_estimator", over, why
    yield "train.num_generations", size, seen
    length = groups * size * probed.mean_pieces
    why = "many small updates learn faster than few large ones"
    if length > SLOW * pieces:
        why = "an update takes long; shorter texts, or a teacher that earns more, let it be smaller"
    signal = f"{groups * share:.1f} of them with signal"
    words = f"groups: {groups}, {signal}; about {length:.0f} phrases and words: {why}"
    yield "train.per_device_train_batch_size", size * groups, words
    alone = "where no reward differs, Adam makes whole steps of any bonus, towards gibberish"
    yield "train.entropy_coef", 0.0, alone
    yield "train.lr_scheduler_type", "constant_with_warmup", "time may end the run"
    longest = f"the longest action has {probed.action_bytes} bytes, and an end"
    yield "train.max_action_tokens", min(LONGEST, probed.action_bytes + 1), longest
    yield "keep_best", True, "a run may unlearn what it knew: the best weights are kept"
    if probed.difficulty is not None:
        key = probed.difficulty
        yield "train.curriculum", key, f"tasks with another {key!r} earn another reward"


def _of_rate_and_time(probed: Probed, width: int | None) -> Iterator[_Row]:
    rate, where = RATE, "with induction heads 1e-3 made a model act always alike"
    seconds, of = SECONDS, "half of ten minutes"
    if width is not None:
        rate, where = _by_width(ADAPTER_RATE, width)
        seconds, of = ADAPTER_SECONDS, "as long as the preset smollm2 on one core"
    else:
        yield "train.beta", BETA, "without a KL penalty the entropy of some games was soon gone"
        yield "train.min_signal_patience", PATIENCE, "a KL penalty may bring back the signal"
        if probed.has_lines:
            rate, where = RATE_OF_LINES, "as in the presets quickstart and explore"
    yield "train.learning_rate", rate, f"{where}; TRL's 1e-6 changes nothing in 100 updates"
    yield "max_seconds", seconds, f"{of}; it ends before if hardly a group has signal any more"


# -- the probe -------------------------------------------------------------------------------------


def probe(env: MultistepEnv, rows: Any, seed: int, source: str = "teacher") -> Probed:
    """Play games of the player that is imitated on some training tasks. Raises ConfigError without
    such a player, or if a game fails."""
    teacher = scripted_agent(env, source, seed=seed)
    if not len(rows):
        raise ConfigError(f"{env.name} has no training tasks")
    count = min(TASKS, len(rows))
    drawn = np.random.default_rng(seed).choice(len(rows), count, replace=False).tolist()
    tasks = [rows[index]["task_data"] for index in drawn]
    if isinstance(rows, TaskFile):  # it may have rows of others
        tasks = own_tasks(env, (rows[index] for index in drawn)) or own_tasks(env, rows)[:TASKS]
    if not tasks:
        raise ConfigError(f"{env.name}: the training tasks are those of other environments")
    rollouts = env.run_trial(tasks, teacher, PER_TASK, seed=seed).rollouts
    failed = next((rollout.error for rollout in rollouts if rollout.failed), None)
    if failed is not None:
        raise ConfigError(
            f"{env.name}: a game failed that train: auto played to choose the settings: "
            f"{last_line(failed)}; see agentsgym check {env.class_path}"
        )
    groups = np.array([one.final_reward for one in rollouts]).reshape(len(tasks), PER_TASK)
    talks = ["".join(m.content for e in one.episodes for m in e.messages) for one in rollouts]
    known = fixed_phrases(
        m.content for one in rollouts[::8] for e in one.episodes for m in e.messages
    )
    pattern = re.compile(pieces_pattern(known))
    pieces = [len(pattern.findall(talk)) for talk in talks]
    said = [[step.action for e in one.episodes for step in e.actions] for one in rollouts]
    return Probed(
        reward=float(groups.mean()),
        best_of=float(groups.reshape(-1, BEST_OF).max(1).mean()),
        signal={size: _signal(groups.reshape(-1, size)) for size in GROUPS},
        new_lines=_new_lines(rollouts),
        pieces=max(pieces),
        mean_pieces=fmean(pieces),
        action_bytes=max((len(a.encode()) for actions in said for a in actions), default=1),
        actions=max(map(len, said)),
        carries=env.config.episodes_per_trial > 1 and env.config.carry != "none",
        random_teacher=isinstance(teacher, RandomAgent),
        tasks=len(rows),
        reference=_reference(env, tasks),
        difficulty=_difficulty(tasks, groups),
    )


def _reference(env: MultistepEnv, tasks: Sequence[Mapping[str, Any]]) -> float | None:
    scores = [known_reference(env, task) for task in tasks]
    known = [score for score in scores if score is not None]
    return fmean(known) if len(known) == len(scores) else None


def _signal(groups: Any) -> float:
    return fmean(differ(group) for group in groups.tolist())


def _new_lines(rollouts: Sequence[Rollout]) -> float:
    """The share of distinct lines of the environment in the second half of the games that the first
    half does not have; 1 if there is one task."""
    halves: list[set[str]] = []
    for part in (rollouts[: len(rollouts) // 2], rollouts[len(rollouts) // 2 :]):
        texts = (m for one in part for e in one.episodes for m in e.messages)
        lines = (m.content.splitlines() for m in texts if m.role == "user")
        halves.append({line for text in lines for line in text})
    return len(halves[1] - halves[0]) / max(1, len(halves[1]))


def _difficulty(tasks: Sequence[Mapping[str, Any]], groups: Any) -> str | None:
    """The key whose values differ most in mean reward, in standard errors by the variance within
    values; None if no key has few values that differ for certain."""
    means, found = groups.mean(1).tolist(), dict[str, float]()
    for key in tasks[0]:
        if not all(isinstance(task.get(key), str | int) for task in tasks):
            continue
        kinds: dict[Any, list[float]] = {}
        for task, mean in zip(tasks, means, strict=True):
            kinds.setdefault(task[key], []).append(mean)
        parts = [part for part in kinds.values() if len(part) > 1]
        if not 2 <= len(kinds) <= KINDS or len(parts) < len(kinds):
            continue
        low, high = min(parts, key=fmean), max(parts, key=fmean)
        within = sum(len(part) * pvariance(part) for part in parts) / (len(tasks) - len(parts))
        error = (within / len(low) + within / len(high)) ** 0.5
        found[key] = (fmean(high) - fmean(low)) / max(error, 1e-9)
    best = max(found, key=lambda key: found[key], default=None)
    return best if best is not None and found[best] >= CERTAIN else None


# -- in a run --------------------------------------------------------------------------------------


def resolved(config: RunConfig, progress: Progress, processes: int | None = None) -> RunConfig:
    """The run with what a probe of its game chose, each choice announced, for so many `processes`
    (None: those that were started); the run itself if it does not ask for that. Raises ConfigError
    as `probe` does, and if the config.json of its model cannot be read."""
    if not config.is_auto:
        return config
    width = None
    if config.model.path != TINY:
        width = int(config_of(config).get_text_config().hidden_size)
    env = make_env(config)
    rows = checked_tasks(config, env, "train")
    sizes = config.train.given
    group, batches = sizes.get("num_generations"), None
    if "per_device_train_batch_size" not in sizes:
        own = sizes.get("steps_per_generation") or sizes.get("gradient_accumulation_steps", 1)
        batches = (processes or processes_started()) * own
    warm_start = config.warm_start
    source = warm_start.source if warm_start.source in SCRIPTED else "teacher"
    probed = probe(env, rows, warm_start.seed, source)
    chosen = choices(probed, group=group, batches=batches, width=width)
    given = flat(config.model_dump(exclude_unset=True))
    ends = config.train.max_steps is not None or "train.num_train_epochs" in given
    left_out = {*given, *(["max_seconds"] if ends else [])}
    if "train.min_signal_share" in given:  # its patience belongs to it
        left_out.add("train.min_signal_patience")
    if warm_start.source == ROLLOUTS:  # these games were played
        left_out.add("warm_start.best_of")
    adapted = ("model.lora",) if stored_adapter(config.model) is not None else ()
    for whole in _WHOLE:  # is chosen whole, or not at all
        if any(key.startswith(whole) for key in (*given, *adapted)):
            left_out |= {one.key for one in chosen if one.key.startswith(whole)}
    free = [one for one in chosen if one.key not in left_out]
    for key, value, reason in free:
        progress.note(f"{key}={value}: {reason}")
    train = config.train.changed({}, ("preset",))
    data = config.model_copy(update={"train": train}).model_dump(exclude_unset=True)
    reasons: dict[str, Any] = {"chosen": {one.key: one.reason for one in free}}
    return parse_config({**merge(data, {one.key: one.value for one in free}), **reasons})
