"""Writes the tasks of agent.py: train.jsonl and eval.jsonl, one task per line."""

import json
from pathlib import Path

from agent import GAME

from agentsgym import TwentyQuestionsEnv

env = TwentyQuestionsEnv(None, GAME | {"train_tasks_per_secret": 64, "eval_tasks_per_secret": 8})
for name, rows in (("train", env.get_train_dataset()), ("eval", env.get_eval_dataset())):
    lines = [json.dumps(row["task_data"]) + "\n" for row in rows]
    Path(f"{name}.jsonl").write_text("".join(lines), encoding="utf-8")
