"""Our side of a served environment: its tasks, its open trials, and who may step them when."""

import contextlib
import random
import threading
from collections.abc import Iterator, Mapping
from typing import Any

from agentsgym.envs.base import MultistepEnv
from agentsgym.rollout import SteppedTrial
from agentsgym.rollout.processes.env import hosted

SPLITS = ("train", "eval")


class BadTask(ValueError):
    """A client asked for a task that there is not; the message is for the client."""


class Hall:
    """The trials that a server plays in one environment.

    Clients name tasks by split and number, so that they can neither read a task nor bring one of
    their own. Trials run in the threads of their clients: one at a time may step an environment
    that is not `blocking`.
    """

    def __init__(self, env: MultistepEnv) -> None:
        self.env = env
        self._host = hosted(env)
        self._stepping = contextlib.nullcontext() if self._host.blocking else threading.Lock()
        self._loading = threading.Lock()
        self._tasks: dict[str, list[Mapping[str, Any]]] = {}
        self._chance = random.Random()

    @contextlib.contextmanager
    def stepping(self) -> Iterator[None]:
        """Inside the block, this thread may step the environment's trials."""
        with self._stepping:
            yield

    def number_of_tasks(self, split: str) -> int:
        """How many tasks a split has. Raises BadTask."""
        return len(self._split(split))

    def begin(self, split: str | None, index: int | None, seed: int | None) -> SteppedTrial:
        """A trial on task number `index` of a split ("train" by default).

        Without an index it is task number `seed` modulo the number of tasks, and without a seed any
        task. Raises BadTask.
        """
        tasks = self._split(split or "train")
        if index is None:
            chosen = self._chance.randrange(2**31) if seed is None else seed
            index = chosen % len(tasks)
        if not 0 <= index < len(tasks):
            raise BadTask(f"there is no task {index}: the split has {len(tasks)}")
        with self.stepping():
            return SteppedTrial(self._host, tasks[index])

    def _split(self, name: str) -> list[Mapping[str, Any]]:
        if name not in SPLITS:
            raise BadTask(f"there is no such split; splits are {', '.join(SPLITS)}")
        with self._loading:
            if name not in self._tasks:
                rows = self._dataset(name)
                if not hasattr(rows, "__len__"):
                    raise BadTask("the environment's tasks are a stream, which has no numbers")
                self._tasks[name] = list(rows["task_data"])
            return self._tasks[name]

    def _dataset(self, name: str) -> Any:
        with self.stepping():
            if name == "train":
                return self.env.get_train_dataset()
            return self.env.get_eval_dataset()
