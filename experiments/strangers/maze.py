"""A maze of three by three rooms, walked twice: the first walk is for practice."""

import random
import re

from agentsgym import EnvSettings, MultistepEnv, ScriptedAgent, task_dataset

WAYS = {"north": (-1, 0), "south": (1, 0), "west": (0, -1), "east": (0, 1)}
ROOMS = [(r, c) for r in range(3) for c in range(3)]


def dig(seed):
    """Doors between rooms so that exactly one way leads from any room to any other."""
    rng, doors, reached = random.Random(seed), set(), {(0, 0)}
    while len(reached) < 9:
        room = rng.choice(sorted(reached))
        step = rng.choice(list(WAYS.values()))
        other = (room[0] + step[0], room[1] + step[1])
        if other in ROOMS and other not in reached:
            reached.add(other)
            doors |= {(room, other), (other, room)}
    return doors


class MazeEnv(MultistepEnv):
    class Settings(EnvSettings):
        max_steps_per_episode: int = 8
        episodes_per_trial: int = 2
        free_shots: int = 1
        carry: str = "full"

    reward_range = (0.0, 1.0)

    def _begin_episode(self, session_id, task_data, trial):
        walk = trial.round_line("same maze")
        return {"doors": dig(task_data["seed"]), "room": (0, 0), "walk": walk, "said": ""}

    def _format_prompt(self, state, step):
        row, column = state["room"]
        here = f"You are in row {row + 1}, column {column + 1}."
        text = f"{state['said']} {here} Open: {', '.join(self.admissible_actions(state))}.".strip()
        if step > 0:
            return text
        return f"{state['walk']} Find the way out in row 3, column 3. {text}".strip()

    def _step_episode(self, session_id, state, action):
        way = action.strip().lower()
        if way not in WAYS:
            said = "Go north, south, west or east."
            return {**state, "said": said}, 0.0, False, {"malformed": True}
        room = (state["room"][0] + WAYS[way][0], state["room"][1] + WAYS[way][1])
        if (state["room"], room) not in state["doors"]:
            return {**state, "said": "A wall."}, 0.0, False, {}
        out = room == (2, 2)
        said = "You are out!" if out else ""
        return {**state, "room": room, "said": said}, float(out), out, {"win": out}

    def get_train_dataset(self):
        return task_dataset(self, [{"seed": k} for k in range(400)])

    def get_eval_dataset(self):
        return task_dataset(self, [{"seed": k} for k in range(400, 600)])

    def admissible_actions(self, state):
        r, c = state["room"]
        return [w for w, (a, b) in WAYS.items() if ((r, c), (r + a, c + b)) in state["doors"]]

    def optimal_agent(self):
        return ScriptedAgent(_walk)


def _walk(messages):
    """The first step of the shortest way on the map so far, where unseen rooms may be open."""
    text = "\n".join(m["content"] for m in messages if m["role"] == "user")
    seen = re.findall(r"row (\d), column (\d)\. Open: ([\w, ]+)\.", text)
    known = {(int(r) - 1, int(c) - 1): o.split(", ") for r, c, o in seen}
    start = (int(seen[-1][0]) - 1, int(seen[-1][1]) - 1)
    paths = [(start, "")]
    visited = {start}
    for room, first in paths:
        if room == (2, 2):
            return first
        for way, (a, b) in WAYS.items():
            other = (room[0] + a, room[1] + b)
            open_ = way in known.get(room, WAYS) and _back(way) in known.get(other, WAYS)
            if other in ROOMS and other not in visited and open_:
                visited.add(other)
                paths.append((other, first or way))
    return known[start][0]


def _back(way):
    return {"north": "south", "south": "north", "west": "east", "east": "west"}[way]
