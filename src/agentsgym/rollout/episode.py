"""One episode as a plain generator: it yields action requests and receives actions."""

from collections.abc import Generator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from agentsgym.rollout.answers import number, read_answer, text
from agentsgym.rollout.session import Session, SessionError, clean_action
from agentsgym.types import Action, ActionRequest, Episode, Step

if TYPE_CHECKING:
    from agentsgym.envs.base import MultistepEnv

EpisodeGenerator = Generator[ActionRequest, Action, Episode]

OVER_BUDGET = "max_rollout_tokens"


def play_episode(env: "MultistepEnv", session: Session) -> EpisodeGenerator:
    """Play the episode whose first state stands in `env.active_states[session.session_id]`.

    Ends when the environment is done or a limit is reached, and returns the Episode with the
    reason. Where the token budget has no room for an observation and an answer to it, the episode
    ends with the action before. Exceptions of the environment pass through; what was played stays
    in `session`.
    """
    if session.session_id not in env.active_states:
        raise SessionError(
            f"{session.where(env.name)}: no state; set env.active_states[session_id] = "
            "env._initialize_episode(session_id, task_data) before the episode"
        )
    if env.config["system_prompt"] is not None and not session.messages:
        session.instruct(env.config["system_prompt"])
    mistakes = 0
    stop_reason = _observe(env, session)
    while stop_reason is None:
        action = clean_action((yield session.request()))
        if not session.fits(action):
            session.withdraw()
            stop_reason = OVER_BUDGET
            break
        step = _take_step(env, session, action)
        mistakes = mistakes + 1 if step.malformed else 0
        stop_reason = _stop_reason(env, session, step, mistakes) or _observe(env, session)
    return finish(env, session, stop_reason)


def reflect(env: "MultistepEnv", session: Session) -> Generator[ActionRequest, Action, Step | None]:
    """Let the agent write down what it learned, after an episode whose state still stands in
    `env.active_states`. The reflection is an action like any other, but no step of the game: it
    earns nothing itself. None where the token budget has no room for it."""
    state = env.active_states[session.session_id]
    earned = sum(step.reward for step in session.steps)
    if not session.observe(text(env._format_reflection(state, earned), "_format_reflection")):
        return None
    request = session.request("reflection", env.config["reflection_tokens"])
    action = clean_action((yield request))
    if not session.fits(action):
        session.withdraw()
        return None
    observation = session.messages[-1]["content"]
    session.act(action)
    step = Step(
        index=len(session.steps),
        observation=observation,
        action=action.text,
        reward=0.0,
        done=False,
        truncated=action.truncated,
        kind="reflection",
    )
    session.steps.append(step)
    return step


def _observe(env: "MultistepEnv", session: Session) -> str | None:
    """Ask the environment for the next prompt; a stop reason where the budget has no room."""
    state = env.active_states[session.session_id]
    prompt = text(env._format_prompt(state, len(session.steps)), "_format_prompt")
    if session.carried and not session.steps:
        prompt = f"{session.carried}\n\n{prompt}"
    return None if session.observe(prompt) else OVER_BUDGET


def _take_step(env: "MultistepEnv", session: Session, action: Action) -> Step:
    sid = session.session_id
    observation = session.messages[-1]["content"]
    tokens = session.act(action)
    answer = read_answer(env._step_episode(sid, env.active_states[sid], action.text))
    env.active_states[sid] = answer.state
    penalty = env.config["malformed_penalty"] if answer.malformed else 0.0
    step = Step(
        index=len(session.steps),
        observation=observation,
        action=action.text,
        reward=number(answer.reward - penalty, "reward"),
        done=answer.done,
        info=answer.info,
        malformed=answer.malformed,
        truncated=action.truncated,
        anchor=session.steps[-1].info.get("anchor") if session.steps else None,
        token_rewards=_token_rewards(env, answer.token_rewards, tokens),
    )
    session.steps.append(step)
    return step


def _token_rewards(
    env: "MultistepEnv", rewards: tuple[float, ...] | None, tokens: int
) -> tuple[float, ...] | None:
    if rewards is None or env.codec is None:
        return None
    if len(rewards) != tokens:
        raise SessionError(
            f"info['token_rewards'] has {len(rewards)} entries, the action has {tokens} tokens"
        )
    return rewards


def _stop_reason(env: "MultistepEnv", session: Session, step: Step, mistakes: int) -> str | None:
    if step.done:
        return step.info.get("stop_reason") or "done"
    if mistakes > env.config["error_allowance"]:
        return "malformed"
    if len(session.steps) >= env.config["max_steps_per_episode"]:
        return "max_steps"
    return None


def finish(env: "MultistepEnv", session: Session, stop_reason: str) -> Episode:
    """The episode as played so far. The environment's `_calculate_reward` has the last word on
    its reward; what that adds to the sum of the steps goes to the last step."""
    steps = list(session.steps)
    if steps and stop_reason != "error":
        state = env.active_states[session.session_id]
        actions, rewards = [s.action for s in steps], [s.reward for s in steps]
        final = env._calculate_reward(state, actions, steps[-1].action, rewards)
        steps = with_reward(steps, number(final, "what _calculate_reward returns"))
    return Episode(
        index=session.episode,
        steps=tuple(steps),
        messages=tuple(session.messages),
        reward=sum(step.reward for step in steps),
        score_weight=0.0 if session.episode < env.config["free_shots"] else 1.0,
        stop_reason=stop_reason,
    )


def with_reward(steps: Sequence[Step], reward: float) -> list[Step]:
    """The steps of an episode that earned `reward`: the last one takes what the others leave."""
    *others, last = steps
    total = sum(step.reward for step in steps)
    if reward != total:
        last = replace(last, reward=last.reward + (reward - total))
    return [*others, last]
