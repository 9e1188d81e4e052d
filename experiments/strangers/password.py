"""A door opens for a password, and a guard tells it to those who spend their visit asking."""

import random

from agentsgym import EnvSettings, MultistepEnv, ScriptedAgent, task_dataset

WORDS = [
    "amber",
    "badger",
    "cedar",
    "dragon",
    "ember",
    "falcon",
    "garnet",
    "heron",
    "indigo",
    "jasmine",
    "kestrel",
    "lantern",
    "marble",
    "nectar",
    "orchid",
    "pepper",
    "quartz",
    "raven",
    "saffron",
    "thistle",
    "umber",
    "violet",
    "walnut",
    "yarrow",
]


class PasswordEnv(MultistepEnv):
    class Settings(EnvSettings):
        max_steps_per_episode: int = 1
        episodes_per_trial: int = 2
        free_shots: int = 1
        carry: str = "full"

    reward_range = (0.0, 1.0)

    def _begin_episode(self, session_id, task_data, trial):
        words = random.Random(task_data["seed"]).sample(WORDS, 6)
        visit = trial.round_line("same password")
        return {"words": words, "secret": task_data["secret"], "visit": visit, "answer": ""}

    def _format_prompt(self, state, step):
        if step > 0:
            return state["answer"]
        return (
            f"{state['visit']}\nYou stand at a door. The password is one of these: "
            f"{', '.join(state['words'])}. You can say one of them, or ask the guard."
        ).strip()

    def _step_episode(self, session_id, state, action):
        text = action.strip().lower()
        secret = state["words"][state["secret"]]
        if text == "ask the guard":
            told = f"The guard whispers: {secret}."
            return {**state, "answer": told}, 0.0, True, {"informing": True, "win": False}
        if text.removeprefix("say ") not in state["words"]:
            return {**state, "answer": "Nobody understands you."}, 0.0, True, {"malformed": True}
        right = text.removeprefix("say ") == secret
        answer = "The door opens." if right else "The door stays shut."
        return {**state, "answer": answer}, float(right), True, {"informing": False, "win": right}

    def get_train_dataset(self):
        return task_dataset(self, [{"seed": k, "secret": k % 6} for k in range(600)])

    def get_eval_dataset(self):
        return task_dataset(self, [{"seed": k, "secret": k % 6} for k in range(600, 840)])

    def admissible_actions(self, state):
        return ["ask the guard", *(f"say {word}" for word in state["words"])]

    def optimal_agent(self):
        def choose(messages):
            told = messages[-1]["content"].partition("whispers: ")[2]
            return f"say {told.partition('.')[0]}" if told else "ask the guard"

        return ScriptedAgent(choose)
