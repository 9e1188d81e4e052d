"""Small run directories for the viewer's tests, written by the writers that a run uses."""

from pathlib import Path
from typing import Any

import of_rows
from agentsgym.evaluation import Evaluation
from agentsgym.evaluation.effects import Alternative, Effect
from agentsgym.runs.files import MetricsFile, RolloutWriter, RunDirectory, Summary
from agentsgym.runs.files.records import SavedEffects
from agentsgym.types import Rollout
from agentsgym.types.text import clean_text

HOSTILE = {
    "script": "<script>document.title = 'owned'; alert(1)</script>",
    "closing": "</script><script>alert(2)</script><!--",
    "handler": "<img src=x onerror=alert(3)><svg onload=alert(4)>",
    "bidi": "pay \u202eevil\u202c \u2066now\u2069",
    "ansi": "\x1b[31mred\x1b[0m\x07",
    "broken": b"caf\xe9 \xff\xfe".decode("utf-8", "replace") + "\ud83d",
    "link": "javascript:alert(5) https://example.invalid/x.png",
}

_TOKENIZED = 4000  # characters of a text that become tokens


def make_rollout(
    tokenizer: Any,
    group: int,
    index: int,
    episodes: list[list[tuple[str, str, float]]],
    *,
    task: dict[str, Any] | None = None,
    free_shots: int = 0,
    anchors: bool = False,
    error: str | None = None,
    info: dict[str, Any] | None = None,
    env: str = "Puzzle",
    win: bool | None = None,
    **step: Any,
) -> Rollout:
    """A rollout of the given episodes of (observation, action, reward), one row of tokens. A reward
    in the last step is a win, unless `win` says otherwise; `step` changes each step."""
    ids: list[int] = []
    mask: list[int] = []
    spans = []
    played = []
    for number, steps in enumerate(episodes):
        made = []
        for place, (observation, action, reward) in enumerate(steps):
            context, own = (
                tokenizer.encode(clean_text(text[:_TOKENIZED]), add_special_tokens=False)
                for text in (observation, action)
            )
            start = len(ids) + len(context)
            spans.append((number, place, start, start + len(own)))
            ids += [*context, *own]
            mask += [0] * len(context) + [1] * len(own)
            last = place + 1 == len(steps)
            won = {"win": reward > 0 if win is None else win} if last else {}
            anchor = f"state {place}" if anchors else None
            facts = {**won, **(info or {})}
            texts = place, observation, action
            made.append(of_rows.step_of(*texts, reward, last, facts, anchor=anchor, **step))
        weight = 0.0 if number < free_shots else 1.0
        played.append(of_rows.episode_of(*made, index=number, weight=weight))
    logprobs = [-0.1 - 0.5 * (place % 7) if m else 0.0 for place, m in enumerate(mask)]
    return of_rows.rollout_of(
        played,
        [of_rows.Drawn(ids, spans, logprobs)],
        group=group,
        index=index,
        env=env,
        config={"level": 1},
        task=task or {"solution": f"word {group}", "seed": group},
        error=error,
        seed=2**60 + index,
    )


def game(word: str, won: bool, steps: int = 2) -> list[tuple[str, str, float]]:
    """An episode that asks and then guesses."""
    questions = [(f"Answer {n}: no.\n", f"Is it thing {n}?", 0.0) for n in range(steps - 1)]
    return [*questions, ("Guess now.\n", f"[{word}]", 1.0 if won else 0.0)]


def make_run(root: Path, tokenizer: Any, *, generations: int = 3, size: int = 4, shift: int = 0):
    """A run of `generations` steps with two groups of `size`, evaluated before and after. In step
    0 the rollouts are trials of two episodes, the first a free shot, with equal states."""
    writer = RolloutWriter(root)
    tokenizer.save_pretrained(root / "model")
    (root / "config.yaml").write_text(
        "env: Puzzle\nname: small\ntrain: {advantage_estimator: trial}\n"
    )
    for step in range(generations):
        rollouts = []
        for group in range(2):
            for index in range(size):
                won = (index + step + shift) % 3 == 0
                word = f"word {group}"
                episodes = [game(word, won, 2 + index % 2)]
                if step == 0:
                    episodes = [game("scout", False), *episodes]
                rollouts.append(
                    make_rollout(
                        tokenizer,
                        group,
                        index,
                        episodes,
                        free_shots=len(episodes) - 1,
                        anchors=step == 0,
                        info={"answer": "no", "remaining": 12},
                    )
                )
        advantages = [[0.5 if m else 0.0 for m in r.rows[0].agent_token_mask] for r in rollouts]
        for number, given in enumerate(advantages):
            advantages[number] = [value * (-1) ** number for value in given]
        writer(rollouts, {"phase": "train", "step": step, "advantages": advantages})
    for phase, step in (("before", 0), ("after", generations)):
        played = [
            make_rollout(
                tokenizer, group, 0, [game(f"word {group}", (group + step + shift) % 3 == 0)]
            )
            for group in range(6)
        ]
        writer(played, {"phase": phase, "step": step, "advantages": None})
    write_figures(root, generations)
    write_effects(root)
    return root


def write_effects(root: Path) -> None:
    """What the first action of the rollout train-1/0/0 was worth."""
    folder = RunDirectory(root).replay(1, "0a")
    folder.mkdir(parents=True)
    others = (Alternative("Is it thing 0?", 3, 0.5), Alternative("<b>ask</b>", 1, 1.0))
    facts = {"session_id": "0-0", "group": 0, "rollout": 0, "episode": 0, "step": 0, "node": 0}
    effect = Effect(
        **facts, action="Is it thing 0?", informing=None, effect=-0.125, interval=(-0.5, 0.25),
        pairs=4, alternatives=others,
    )  # fmt: skip
    SavedEffects(effects=[effect]).write(folder / "effects.json")


def figures(**more: Any) -> Evaluation:
    """Of an evaluation on held-out tasks."""
    return Evaluation.model_validate(
        {
            "win_rate": 0.3,
            "ci95": (0.2, 0.4),
            "mean_steps": 2.0,
            "regret": 0.7,
            "rollouts": 8,
            "clusters": 8,
            "tasks": 8,
            "reward": 0.3,
            "reward_ci95": (0.2, 0.4),
            "reference": 1.0,
            "failures": 0,
        }
        | more
    )


def write_figures(root: Path, steps: int) -> None:
    """metrics.jsonl and summary.json."""
    metrics = MetricsFile(root / "metrics.jsonl")
    for step in range(steps):
        line = {
            "reward": 0.3 + 0.1 * step,
            "win_rate": 0.3,
            "stop/win": 0.4 + 0.1 * step,
            "stop/lost": 0.6 - 0.1 * step,
            "entropy": 1.0 / (step + 1),
            "episode_1/reward": 0.1 * step,
            "episode_2/reward": 0.2 * step,
            "truncated": 0.0,
            "template_breaks/thoughts": 0.5 * step,
            "template_breaks/answer": 0.25 * step,
        }
        metrics.append("train", step + 1, line)
    evaluation = figures(win_rate=0.25, ci95=(0.1, 0.4), reward=0.25, reward_ci95=(0.1, 0.4))
    Summary(
        name=root.name, status="finished", seed=0, env="Puzzle", env_config={}, model="tiny",
        before=evaluation, after=evaluation, steps=steps, agent_tokens=1000, seconds=36.0,
        phases={"model": 24.0, "rl": 10.0, "after": 2.0},
        references={"best without exploring": 0.5},
    ).write(root / "summary.json")  # fmt: skip


def make_hostile_run(root: Path, tokenizer: Any) -> Path:
    """A run in which every text is hostile: tasks, observations, actions, notes, errors, names."""
    writer = RolloutWriter(root)
    tokenizer.save_pretrained(root / "model")
    texts = list(HOSTILE.values())
    everything = " ".join(texts)
    (root / "config.yaml").write_text(f"env: {texts[1]!r}\n", encoding="utf-8", errors="replace")
    rollouts = [
        make_rollout(
            tokenizer,
            0,
            index,
            [[(everything, text, 1.0)]],
            task={"solution": text, text: text},
            info={text: text, "nested": {text: [text]}},
        )
        for index, text in enumerate(texts)
    ]
    long = "<b>x</b>" * (1 << 17)
    rollouts.append(make_rollout(tokenizer, 1, 0, [[("a long one", long, 0.0)]]))
    failed = make_rollout(tokenizer, 2, 0, [[("then", "it broke", 0.0)]], error=everything)
    rollouts.append(failed)
    info = {"phase": "train", "step": 0, "dataset": "<img src=x onerror=alert(6)>"}
    advantages = [[0.0] * len(rollout.rows[0].token_ids) for rollout in rollouts]
    writer(rollouts, {**info, "advantages": advantages})
    metrics = MetricsFile(root / "metrics.jsonl")
    metrics.append("train", 1, {texts[0]: 1.0, f"stop/{texts[2]}": 0.5, "reward": 1.0})
    metrics.append("train", 2, {texts[0]: 2.0, f"stop/{texts[2]}": 0.7, "reward": 0.5})
    return root
