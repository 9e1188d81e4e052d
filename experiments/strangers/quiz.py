"""A quiz about a table that stands in the prompt."""

import random

from agentsgym import EnvSettings, MultistepEnv, PrivilegedAgent, ScriptedAgent, task_dataset

NAMES = ["Anna", "Ben", "Clara", "David", "Emma", "Felix", "Greta", "Hugo", "Ida", "Jonas"]
COLUMNS = {
    "pet": ["cat", "dog", "parrot", "turtle", "hamster", "goldfish"],
    "city": ["Paris", "Rome", "Vienna", "Oslo", "Madrid", "Athens"],
}


def table(seed):
    rng = random.Random(seed)
    names = rng.sample(NAMES, 4)
    columns = {column: rng.sample(values, 4) for column, values in COLUMNS.items()}
    people = {n: {c: values[k] for c, values in columns.items()} for k, n in enumerate(names)}
    return people, [(rng.choice(names), rng.choice(list(COLUMNS))) for _ in range(3)]


class QuizEnv(MultistepEnv):
    class Settings(EnvSettings):
        max_steps_per_episode: int = 3

    reward_range = (0.0, 1.0)

    def _initialize_episode(self, session_id, task_data):
        people, questions = table(task_data["seed"])
        return {"people": people, "questions": questions, "number": 0, "right": None}

    def _format_prompt(self, state, step):
        lines = []
        if step == 0:
            lines = ["name | pet | city"]
            lines += [f"{n} | {row['pet']} | {row['city']}" for n, row in state["people"].items()]
        else:
            lines = ["Right." if state["right"] else "Wrong."]
        if state["number"] < 3:
            name, column = state["questions"][state["number"]]
            lines.append(f"Question {state['number'] + 1}: what is the {column} of {name}?")
        return "\n".join(lines)

    def _step_episode(self, session_id, state, action):
        name, column = state["questions"][state["number"]]
        answer = action.strip().lower()
        known = {value.lower() for row in state["people"].values() for value in row.values()}
        right = answer == state["people"][name][column].lower()
        number = state["number"] + 1
        info = {"malformed": answer not in known}
        return {**state, "number": number, "right": right}, right / 3, number == 3, info

    def get_train_dataset(self):
        return task_dataset(self, [{"seed": k} for k in range(1500)])

    def get_eval_dataset(self):
        return task_dataset(self, [{"seed": k} for k in range(2000, 2256)])

    def admissible_actions(self, state):
        return [row[column] for column in COLUMNS for row in state["people"].values()]

    def reference_score(self, task_data):
        return 1.0

    def optimal_agent(self):
        return Reader()


class Reader(PrivilegedAgent):
    """Reads the answers off the table."""

    def for_session(self, session):
        people, questions = table(session.task_data["seed"])
        answers = [people[name][column] for name, column in questions]
        return ScriptedAgent(lambda messages: answers[len(session.actions)])
