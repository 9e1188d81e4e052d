"""Environments that are each broken in one way, and the sound one they come from."""

import random
import threading
import time
from typing import Any, ClassVar

from agentsgym import MultistepEnv, ScriptedAgent, task_dataset
from agentsgym.envs import EnvSettings

WORDS = ["apple", "bread", "chair", "dress", "eagle", "flute"]
WORDS += ["grape", "horse", "igloo", "jelly", "knife", "lemon"]


class SoundEnv(MultistepEnv):
    """Guess the word in brackets; a wrong guess tells how many letters are in place."""

    class Settings(EnvSettings):
        max_steps_per_episode: int = 6

    reward_range = (0.0, 1.0)

    def _initialize_episode(self, session_id, task_data):
        rng = random.Random(task_data["seed"])
        return {"word": task_data["word"], "hint": rng.choice(task_data["word"]), "answer": ""}

    def _format_prompt(self, state, step):
        if step == 0:
            return f"Guess the word, like [bread]. It has the letter {state['hint']}."
        return state["answer"]

    def _step_episode(self, session_id, state, action) -> tuple[Any, Any, bool, dict[str, Any]]:
        guess = action.strip()
        if not (guess.startswith("[") and guess.endswith("]")):
            return {**state, "answer": "No guess."}, 0.0, False, {"malformed": True, "win": False}
        win = guess[1:-1] == state["word"]
        same = sum(a == b for a, b in zip(guess[1:-1], state["word"], strict=False))
        return {**state, "answer": f"{same} letters in place."}, float(win), win, {"win": win}

    def get_train_dataset(self):
        return task_dataset(self, [{"word": w, "seed": k} for k, w in enumerate(WORDS[:8])])

    def get_eval_dataset(self):
        return task_dataset(self, [{"word": w, "seed": k} for k, w in enumerate(WORDS[8:])])


class HasNoLastPrompt(SoundEnv):
    """Can write no prompt after the last action, which the second episode would show."""

    class Settings(SoundEnv.Settings):
        episodes_per_trial: int = 2
        carry: str = "full"
        max_steps_per_episode: int = 1

    def _format_prompt(self, state, step):
        return ["Guess a word, like [bread]."][step]


class IsUnseen(SoundEnv):
    """Takes no guess that a stranger would make."""

    def _step_episode(self, session_id, state, action):
        if not action.startswith("please "):
            return {**state, "answer": "No guess."}, 0.0, False, {"malformed": True}
        return super()._step_episode(session_id, state, action.removeprefix("please "))


class FailsItsTeacher(IsUnseen):
    """Its teacher makes legal guesses, and these raise."""

    def teacher_agent(self, *, seed=0):
        return ScriptedAgent(["please guess"])

    def _step_episode(self, session_id, state, action):
        return super()._step_episode(session_id, state, {"please guess": None}.get(action, action))


class HasNoFirstPrompt(SoundEnv):
    """Begins with what is no prompt."""

    def _format_prompt(self, state, step):
        return {"hint": state["hint"]}


class SharesState(SoundEnv):
    """Keeps the word on the object, so that sessions side by side share the last one."""

    def _initialize_episode(self, session_id, task_data):
        self.word = task_data["word"]
        return super()._initialize_episode(session_id, task_data)

    def _step_episode(self, session_id, state, action):
        return super()._step_episode(session_id, {**state, "word": self.word}, action)


class DrawsAnEpisode(SoundEnv):
    """Draws what is new in an episode from a generator of the object."""

    def __init__(self, tokenizer=None, env_config=None):
        super().__init__(tokenizer, env_config)
        self.rng = random.Random(0)

    def _begin_episode(self, session_id, task_data, trial):
        state = self._initialize_episode(session_id, task_data)
        return {**state, "hint": self.rng.choice(task_data["word"])} if trial.episode else state


class SeedsGlobally(SoundEnv):
    """Seeds the global generator: the same episode each time, but the process is disturbed."""

    def _initialize_episode(self, session_id, task_data):
        random.seed(task_data["seed"])
        state = super()._initialize_episode(session_id, task_data)
        return {**state, "hint": random.choice(task_data["word"])}


class TellsTheTime(SoundEnv):
    """No seed fixes what it says."""

    def _format_prompt(self, state, step):
        return f"{super()._format_prompt(state, step)} It is {time.perf_counter_ns()}."


class ListsASet(SoundEnv):
    """Says things in the order of a set of words, which differs from process to process."""

    def _format_prompt(self, state, step):
        return f"{super()._format_prompt(state, step)} Words: {', '.join(set(WORDS))}."


class PaysTooMuch(SoundEnv):
    """Pays for every letter in place, beyond what it declares."""

    def _step_episode(self, session_id, state, action):
        state, reward, done, info = super()._step_episode(session_id, state, action)
        return state, reward + 2.0, done, info


class WinsByListing(SoundEnv):
    """Looks for the word anywhere in the guess, as TextArena's Twenty Questions does."""

    def _step_episode(self, session_id, state, action):
        if state["word"] in action:
            return state, 1.0, True, {"win": True}
        return super()._step_episode(session_id, state, action)


class ObeysInjections(SoundEnv):
    """Believes an action that says it has won."""

    def _step_episode(self, session_id, state, action):
        if "won the game" in action:
            return state, 1.0, True, {"win": True}
        return super()._step_episode(session_id, state, action)


class CrashesOnBinary(SoundEnv):
    """Takes every action for ASCII."""

    def _step_episode(self, session_id, state, action):
        action.encode("ascii")
        return super()._step_episode(session_id, state, action)


class PlaysOnAfterDone(SoundEnv):
    """Drives its episodes itself and does not look at done."""

    def _run_complete_episode(self, session_id, agent):
        record = super()._run_complete_episode(session_id, agent)
        self._step_episode(session_id, self.active_states[session_id], "[apple]")
        return record

    def _step_episode(self, session_id, state, action):
        state, reward, _, info = super()._step_episode(session_id, state, action)
        return state, reward, True, info


class MasksEverything(SoundEnv):
    """Marks the prompt as the agent's own tokens."""

    def _run_complete_episode(self, session_id, agent):
        record = super()._run_complete_episode(session_id, agent)
        del record["episode"]
        return {**record, "agent_token_mask": [1] * len(record["full_token_ids"])}


class TrainsOnItsEvaluation(SoundEnv):
    """Has one task on both sides."""

    def get_eval_dataset(self):
        return task_dataset(self, [{"word": WORDS[0], "seed": 0}, {"word": WORDS[9], "seed": 1}])


class NamesAnother(SoundEnv):
    """Its rows name another environment, as a copied `get_train_dataset` may."""

    def get_train_dataset(self):
        return SoundEnv().get_train_dataset()


class LeavesStates(SoundEnv):
    """Keeps states under names of its own and never forgets them."""

    def _initialize_episode(self, session_id, task_data):
        state = super()._initialize_episode(session_id, task_data)
        self.active_states[f"{session_id}-copy"] = state
        return state


class LeavesThreads(SoundEnv):
    """Starts a thread in each episode that nobody ends."""

    def _initialize_episode(self, session_id, task_data):
        wait = threading.Event().wait
        threading.Thread(target=wait, args=(20.0,), daemon=True).start()
        return super()._initialize_episode(session_id, task_data)


class LeavesFiles(SoundEnv):
    """Opens a file in each episode and keeps it."""

    kept: ClassVar[list[Any]] = []

    def _initialize_episode(self, session_id, task_data):
        self.kept.append(open(__file__))  # noqa: SIM115
        return super()._initialize_episode(session_id, task_data)


class CannotClose(SoundEnv):
    """Fails at the end of an episode."""

    def _end_episode(self, session_id, state):
        raise OSError("already closed")


class PaysForTalking(SoundEnv):
    """Is sound, but whoever says the same always earns nearly all."""

    def _calculate_reward(self, state, actions, final_action, step_rewards):
        return max(sum(step_rewards), 0.9)


class ListsItsWords(SoundEnv):
    """Lists all words, and takes no other and none twice: what it lists is what is legal."""

    def admissible_actions(self, state):
        return [f"[{word}]" for word in WORDS if word not in state.get("tried", ())]

    def _step_episode(self, session_id, state, action):
        if action.strip() not in self.admissible_actions(state):
            return {**state, "answer": "No guess."}, 0.0, False, {"malformed": True, "win": False}
        tried = (*state.get("tried", ()), action.strip()[1:-1])
        return super()._step_episode(session_id, {**state, "tried": tried}, action)


class ReadsAnything(ListsItsWords):
    """Takes whatever is said for a wrong word."""

    def _step_episode(self, session_id, state, action):
        win = action == f"[{state['word']}]"
        return {**state, "answer": "No."}, float(win), win, {"win": win}

    def admissible_actions(self, state):
        return [f"[{word}]" for word in WORDS]


class ListsAnUnorderedSet(ListsItsWords):
    """Its actions have another order in every process."""

    def admissible_actions(self, state):
        return set(super().admissible_actions(state))


class ListsWhatItRefuses(ListsItsWords):
    """Lists words that it takes only once, also the second time."""

    def admissible_actions(self, state):
        return [f"[{word}]" for word in WORDS]

    def _step_episode(self, session_id, state, action):
        if action.strip()[1:-1] in state.get("tried", ()):
            return {**state, "answer": "Again?"}, 0.0, False, {"malformed": True, "win": False}
        return super()._step_episode(session_id, state, action)


class ListsWhatCrashes(ListsItsWords):
    """Lists a word that it can't take."""

    def _step_episode(self, session_id, state, action):
        if action == "[lemon]":
            raise KeyError("lemon")
        return super()._step_episode(session_id, state, action)


class ListsTooFew(SoundEnv):
    """Takes any word, and lists the first ones."""

    def admissible_actions(self, state):
        return [f"[{word}]" for word in WORDS[:6]]


class AcceptsNonsense(ListsTooFew):
    """Calls nothing malformed, as many an environment of another framework."""

    def _step_episode(self, session_id, state, action):
        state, reward, done, info = super()._step_episode(session_id, state, action)
        return state, reward, done, {"win": info["win"]}


class ForgetsAPlayersMove(ListsItsWords):
    """Its own best player gives up, which is legal and in no list."""

    def _step_episode(self, session_id, state, action):
        if action == "[give up]":
            return {**state, "answer": f"It was {state['word']}."}, 0.0, True, {"win": False}
        return super()._step_episode(session_id, state, action)

    def optimal_agent(self):
        return ScriptedAgent(["[give up]"])


class ListsOneTwice(ListsItsWords):
    """Lists a word twice."""

    def admissible_actions(self, state):
        return [*super().admissible_actions(state), "[apple]"]

    def _step_episode(self, session_id, state, action):
        return SoundEnv._step_episode(self, session_id, state, action)


class HasOtherNames(ListsItsWords):
    """Also takes a word by its number, which is another wording of it: nothing is missing."""

    def _step_episode(self, session_id, state, action):
        number = action.strip().strip("[]")
        if number.isdecimal() and int(number) < len(WORDS):
            action = f"[{WORDS[int(number)]}]"
        return super()._step_episode(session_id, state, action)

    def _format_prompt(self, state, step):
        numbers = "Or a number: [0], [1], [2], [3], [4], [5], [6]." if step == 0 else ""
        return f"{super()._format_prompt(state, step)} {numbers}".strip()
