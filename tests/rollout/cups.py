"""An environment of one-step episodes, in a module of its own that imports no torch."""

from agentsgym import MultistepEnv


class CupsEnv(MultistepEnv):
    """Say "look" to be told where the ball is, or a cup's number. One action ends the episode.

    `at_the_end` of a task says what `_format_prompt` does in a finished state.
    """

    def _initialize_episode(self, session_id, task_data):
        return {"task": task_data, "told": "", "done": False}

    def _format_prompt(self, state, step):
        if step == 0:
            return "Which cup?"
        if state["done"] and state["task"].get("at_the_end"):
            return _AT_THE_END[state["task"]["at_the_end"]](state)
        return state["told"]

    def _step_episode(self, session_id, state, action):
        ball = str(state["task"]["ball"])
        told = f"The ball is under cup {ball}." if action == "look" else "Nothing there."
        state = {**state, "told": told, "done": True}
        return state, float(action == ball), True, {"win": action == ball}

    def _calculate_reward(self, state, actions, final_action, step_rewards):
        return sum(step_rewards) + 0.25


def _leave(state):
    raise SystemExit("no prompt")


_AT_THE_END = {
    "raise": lambda state: state["no such key"],
    "leave": _leave,
    "nothing": lambda state: None,
    "empty": lambda state: "  ",
}
