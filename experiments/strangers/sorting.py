"""Sort numbers by swapping neighbours."""

import itertools
import random

from agentsgym import EnvSettings, MultistepEnv, ScriptedAgent, task_dataset


class SortingEnv(MultistepEnv):
    class Settings(EnvSettings):
        max_steps_per_episode: int = 6

    reward_range = (0.0, 1.0)

    def _initialize_episode(self, session_id, task_data):
        return {"numbers": list(task_data["numbers"]), "error": ""}

    def _format_prompt(self, state, step):
        row = " ".join(map(str, state["numbers"]))
        if step > 0:
            return f"{state['error']}{row}"
        swaps = ", ".join(self.admissible_actions(state))
        return f"Sort the numbers, the smallest first. You can {swaps}.\n{row}"

    def _step_episode(self, session_id, state, action):
        text = action.strip().lower()
        if text not in self.admissible_actions(state):
            return {**state, "error": "I did not get that. "}, 0.0, False, {"malformed": True}
        k = int(text.split()[1]) - 1
        numbers = list(state["numbers"])
        numbers[k], numbers[k + 1] = numbers[k + 1], numbers[k]
        win = numbers == sorted(numbers)
        return {"numbers": numbers, "error": ""}, float(win), win, {"win": win}

    def get_train_dataset(self):
        return task_dataset(self, self._tasks(0, 1200))

    def get_eval_dataset(self):
        return task_dataset(self, self._tasks(1200, 1500))

    def _tasks(self, start, stop):
        """Three or four numbers that are not sorted; a list is in one of the two sets only."""
        rng, tasks = random.Random(7), []
        while len(tasks) < stop:
            size = rng.choice([3, 4])
            numbers = rng.sample(range(1, 10), size)
            task = {"size": size, "numbers": numbers}
            if numbers != sorted(numbers) and task not in tasks:
                tasks.append(task)
        return tasks[start:stop]

    def admissible_actions(self, state):
        return [f"swap {k} {k + 1}" for k in range(1, len(state["numbers"]))]

    def optimal_agent(self):
        def choose(messages):
            row = messages[-1]["content"].splitlines()[-1].rpartition(". ")[2]
            numbers = list(map(int, row.split()))
            wrong = [k for k, pair in enumerate(itertools.pairwise(numbers)) if pair[0] > pair[1]]
            return f"swap {wrong[0] + 1} {wrong[0] + 2}"

        return ScriptedAgent(choose)
