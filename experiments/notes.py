"""What a note is worth in an episode that does not fit: a tiny model trained with notes, and with
the notes' loss masked.

    python experiments/notes.py [--seed N] [--only NAME] [--updates N]

`Walk` is `Explore`'s game `place` in one long episode: the coin can only be seen at the start, a
way follows, and at its end a box is opened. No conversation has room for both the first answer and
the last prompt (`context_limit`, drawn per task), so what was seen is known at the end only from
the note. The best play with notes scores 1, the best without 1 / choices
(tests/benchmarks/test_notes_experiment.py enumerates both).

The teacher of the warm start is careless: in half of the games it looks, and 20 % of its notes then
say what it saw; the others say nothing. The arms differ in one thing: "masked" gives the tokens of
notes the advantage 0. One JSON line for each run, over 512 held-out tasks: `score`, the half-width
`ci95` of its 95 % interval, `looks`, and `noted`, the share of notes that are right after a look;
and one for each arm, the mean over its seeds with Student's interval.
"""

import argparse
import json
import os
import random
import re
import tempfile
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypedDict

os.environ.setdefault("OMP_NUM_THREADS", "1")
import numpy as np
import torch
from pydantic import Field
from transformers import PrinterCallback

from agentsgym import DirectOutputAgent, GRPOEnvConfig, GRPOEnvTrainer, ScriptedAgent, register
from agentsgym.credit import StepTable
from agentsgym.credit.estimators.trial import trial
from agentsgym.envs import EnvPool
from agentsgym.envs.dataset import ListedTasks
from agentsgym.envs.settings import EnvSettings
from agentsgym.evaluation import rollout_requests
from agentsgym.evaluation.intervals import t_quantile
from agentsgym.generation.embedded.engine import EmbeddedEngine
from agentsgym.rollout import play
from agentsgym.runs import load_config
from agentsgym.types import Message, Rollout, SamplingParams
from agentsgym.types.rows import Floats
from agentsgym.warm_start.new_model import WarmStartResult, warm_start
from agentsgym.warm_start.settings import WarmStartSettings

LOOK, GO, NOTE, NOTHING = "look", "go", "Note the box.", "Nothing."
UNSEEN, ARRIVED = "You see no coin.", "Here are the boxes."
BEGINS = "A long way begins."
WAY = ("The way goes on.", ARRIVED)
_SEEN = re.compile(r"The coin is in box (\d+)")
_NOTED = re.compile(r"Notes: Box (\d+)")
LIMITS = (14, 16)
HELD_OUT = 1_000_000
GAMES = 512


class WalkState(TypedDict):
    """An episode: the coin's box, the number of actions, and the last answer."""

    box: int
    turn: int
    reply: str


class WalkEnv(ListedTasks):
    """A coin is in one of `choices` boxes. The first action may "look"; the next two go on,
    whatever they say; the last one opens a box. `task_data` is `{"seed": int}`."""

    class Settings(EnvSettings):
        choices: int = Field(8, ge=2, description="number of boxes")

    config: Settings

    def _tasks(self, held_out: bool) -> Iterable[Mapping[str, Any]]:
        first = HELD_OUT if held_out else 0
        return [{"seed": first + k} for k in range(GAMES if held_out else 2 * GAMES)]

    def _initialize_episode(self, session_id: str, task_data: dict[str, Any]) -> WalkState:
        box = random.Random(f"walk-{task_data['seed']}").randrange(self.config.choices) + 1
        return WalkState(box=box, turn=0, reply=f"A coin is in one of {self.config.choices} boxes.")

    def _format_prompt(self, state: WalkState, step: int) -> str:
        return state["reply"]

    def _step_episode(
        self, session_id: str, state: WalkState, action: str
    ) -> tuple[WalkState, float, bool, dict[str, Any]]:
        turn, action = state["turn"], action.strip()
        if turn > len(WAY):
            win = action == opening(state["box"])
            return state, float(win), True, {"win": win}
        looks = turn == 0 and action == LOOK
        seen = f"The coin is in box {state['box']}." if looks else UNSEEN
        reply = (f"{seen}\n{BEGINS}", *WAY)[turn]
        return {**state, "turn": turn + 1, "reply": reply}, 0.0, False, {"informing": looks}

    def _format_note_request(self, state: WalkState, step: int) -> str:
        return NOTE

    def _format_memory(self, reflection: str) -> str:
        return f"Notes: {reflection}"


def opening(box: int) -> str:
    """The action that opens a box."""
    return f"open {box}"


def environment(tokenizer: Any = None) -> WalkEnv:
    """With limits at which a conversation with the first answer has no room for the last prompt."""
    register("Walk", WalkEnv)
    return WalkEnv(tokenizer, {"context_limit": list(LIMITS), "reflection_tokens": 8})


def player(
    seed: int = 0, *, looks: float = 0.5, notes: float = 0.2, uses: float = 0.9, choices: int = 8
) -> ScriptedAgent:
    """A text player: how often it looks, notes what it saw (and not nothing), and opens the box of
    its note (and not any). Of a note it makes the same note again. By default the careless teacher;
    with three ones the best player."""
    rng = random.Random(f"walk-player-{seed}")

    def choose(messages: list[Message]) -> str:
        texts = [message["content"] for message in messages if message["role"] == "user"]
        noted = _NOTED.search(texts[0])
        if texts[-1].endswith(NOTE):
            seen = next(filter(None, map(_SEEN.search, texts)), None)
            known = noted if seen is None or rng.random() >= notes else seen
            return f"Box {known[1]}." if known else NOTHING
        if texts[-1].endswith(ARRIVED):
            uses_note = noted is not None and rng.random() < uses
            return opening(int(noted[1]) if uses_note else rng.randrange(choices) + 1)
        first = len(messages) == 1 and not texts[0].endswith((BEGINS, *WAY))
        return LOOK if first and rng.random() < looks else GO

    return ScriptedAgent(choose)


# -- arms ------------------------------------------------------------------------------------------


def masked(table: StepTable) -> Floats:
    """The estimator "trial" without the loss of notes."""
    return np.where(table.reflection, 0.0, trial(table))


ARMS = {"notes": "trial", "masked": "notes.masked"}


def start(**settings: Any) -> WarmStartResult:
    """A tiny model that imitated the careless teacher as the preset `explore` does, `settings`
    aside."""
    preset = load_config("explore", {}).warm_start.model_dump(exclude_unset=True)
    config = WarmStartSettings.model_validate({**preset, **settings})
    return warm_start(environment(), player(), config)


def train(begun: WarmStartResult, estimator: str, seed: int, updates: int) -> tuple[Any, Floats]:
    """A trained copy of the start, and the mean reward of each generation."""
    from copy import deepcopy

    rewards: list[float] = []

    def keep(rollouts: Sequence[Rollout], info: Mapping[str, Any]) -> None:
        rewards.append(float(np.mean([rollout.final_reward for rollout in rollouts])))

    env = environment(begun.tokenizer)
    with tempfile.TemporaryDirectory() as folder:
        options = {
            **load_config("explore", {}).train.given,
            "advantage_estimator": estimator,
            "output_dir": folder,
            "max_steps": updates,
            "seed": seed,
            "use_cpu": True,
            "report_to": "none",
            "save_strategy": "no",
            "logging_strategy": "no",
            "disable_tqdm": True,
            "bf16": False,
        }
        trainer = GRPOEnvTrainer(
            model=deepcopy(begun.model),
            args=GRPOEnvConfig(**options),
            train_dataset=env.get_train_dataset(),
            processing_class=begun.tokenizer,
            rollout_sink=keep,
        )
        trainer.remove_callback(PrinterCallback)
        trainer.train()
    return trainer.model, np.array(rewards)


def measure(model: Any, tokenizer: Any) -> dict[str, float]:
    """Held-out figures at temperature 1."""
    rows = list(environment(tokenizer).get_eval_dataset())
    engine = EmbeddedEngine(model.eval(), tokenizer, capacity=256)
    agent = DirectOutputAgent(engine, SamplingParams(8, 1.0))
    return figures(play(rollout_requests(rows, GAMES), agent, EnvPool(tokenizer)))


def figures(rollouts: Sequence[Rollout]) -> dict[str, float]:
    """Score, looks, and how many of the notes after a look are right."""
    rewards = np.array([rollout.final_reward for rollout in rollouts])
    looks, right = [], []
    for rollout in rollouts:
        (episode,) = rollout.episodes
        looks.append(bool(episode.steps[0].info.get("informing")))
        seen = _SEEN.search(" ".join(step.observation for step in episode.steps))
        notes = [step.action for step in episode.steps if step.kind == "reflection"]
        if looks[-1] and seen and notes:
            right.append(notes[-1] == f"Box {seen[1]}.")
    return {
        "score": round(float(rewards.mean()), 4),
        "ci95": round(float(1.96 * rewards.std(ddof=1) / len(rewards) ** 0.5), 4),
        "looks": round(float(np.mean(looks)), 4),
        "noted": round(float(np.mean(right)) if right else 0.0, 4),
        "notes": round(float(np.mean([len(rollout.rows) - 1 for rollout in rollouts])), 3),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--seed", type=int, action="append", help="seeds (default: 0, 1, 2)")
    parser.add_argument("--only", choices=ARMS, help="one arm alone")
    parser.add_argument("--updates", type=int, default=240)
    given = parser.parse_args()
    torch.set_num_threads(1)
    began = time.process_time()
    begun = start()
    seconds = round(time.process_time() - began, 1)
    print(json.dumps({"start": measure(begun.model, begun.tokenizer), "cpu_seconds": seconds}))
    for arm in [given.only] if given.only else ARMS:
        scores = []
        for seed in given.seed or (0, 1, 2):
            began = time.process_time()
            model, rewards = train(begun, ARMS[arm], seed, given.updates)
            seconds = round(time.process_time() - began, 1)
            measured = measure(model, begun.tokenizer)
            scores.append(measured["score"])
            curve = [round(float(part.mean()), 3) for part in np.array_split(rewards, 8)]
            line = {"arm": arm, "seed": seed, **measured, "training": curve, "cpu_seconds": seconds}
            print(json.dumps(line), flush=True)
        if len(scores) > 1:
            spread = (
                t_quantile(0.975, len(scores) - 1) * np.std(scores, ddof=1) / len(scores) ** 0.5
            )
            mean = {"score": round(float(np.mean(scores)), 4), "ci95": round(float(spread), 4)}
            print(json.dumps({"arm": arm, "seeds": len(scores), **mean}), flush=True)


if __name__ == "__main__":
    main()
