"""The game of `scale.py` as an environment, and the tokenizer of its players."""

from functools import cache
from pathlib import Path
from typing import Any

import scale_game as game

from agentsgym import MultistepEnv, register


class ScaleEnv(MultistepEnv):
    """A walk: each turn says something new, the last action earns a number drawn from it."""

    def _initialize_episode(self, session_id: str, task_data: dict[str, Any]) -> dict[str, Any]:
        return {**task_data, "turn": 0}

    def _format_prompt(self, state: dict[str, Any], step: int) -> str:
        return game.observation(state["game"], state["turn"])

    def _step_episode(
        self, session_id: str, state: dict[str, Any], action: str
    ) -> tuple[dict[str, Any], float, bool, dict[str, Any]]:
        turn = state["turn"] + 1
        done = turn == state["turns"]
        reward = game.reward(turn, action) if done else 0.0
        return {**state, "turn": turn}, reward, done, {}


register("benchmarks/Scale", ScaleEnv)


@cache
def tokenizer_of(name: str) -> Any:
    """A tokenizer: "tiny", "smollm2" or a model directory."""
    if name == "tiny":
        from agentsgym.training.warm_start.tiny import build_tokenizer

        lines = [game.observation(i, 0) + game.text_of(i) for i in range(200)]
        return build_tokenizer(lines, 512, max_token_length=8)
    from transformers import AutoTokenizer

    from agentsgym.runs.smollm2 import smollm2_folder

    return AutoTokenizer.from_pretrained(smollm2_folder() if name == "smollm2" else Path(name))
