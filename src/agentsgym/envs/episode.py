"""One episode as a plain generator: it yields action requests and receives actions."""

import math
from collections.abc import Generator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from agentsgym.envs.session import Session, SessionError
from agentsgym.types import Action, ActionRequest, Episode, Step

if TYPE_CHECKING:
    from agentsgym.envs.base import MultistepEnv

EpisodeGenerator = Generator[ActionRequest, Action, Episode]


def play_episode(env: "MultistepEnv", session: Session) -> EpisodeGenerator:
    """Play the episode whose first state stands in `env.active_states[session.session_id]`.

    Ends when the environment is done or a limit is reached, and returns the Episode with the
    reason. Exceptions of the environment pass through; what was played stays in `session`.
    """
    states = env.active_states
    sid = session.session_id
    if sid not in states:
        raise SessionError(
            f"{session.where(env.name)}: no state; set env.active_states[session_id] = "
            "env._initialize_episode(session_id, task_data) before the episode"
        )
    if env.config["system_prompt"] is not None and not session.messages:
        session.messages.append({"role": "system", "content": env.config["system_prompt"]})
    _observe(env, session)
    mistakes = 0
    stop_reason = _budget_problem(session)
    while stop_reason is None:
        action = yield session.request()
        step = _take_step(env, session, action)
        mistakes = mistakes + 1 if step.malformed else 0
        stop_reason = _stop_reason(env, session, step, mistakes)
        if stop_reason is None:
            _observe(env, session)
            stop_reason = _budget_problem(session)
    return finish(env, session, stop_reason)


def reflect(env: "MultistepEnv", session: Session) -> Generator[ActionRequest, Action, Step]:
    """Let the agent write down what it learned, after an episode whose state still stands in
    `env.active_states`. The reflection is an action like any other, but no step of the game: it
    earns nothing itself."""
    sid = session.session_id
    prompt = env._format_reflection(env.active_states[sid], sum(s.reward for s in session.steps))
    session.observe({"role": "user", "content": prompt})
    action = yield session.request("reflection", env.config["reflection_tokens"])
    session.act(action)
    step = Step(
        index=len(session.steps),
        observation=prompt,
        action=action.text,
        reward=0.0,
        done=False,
        truncated=action.truncated,
        kind="reflection",
    )
    session.steps.append(step)
    return step


def _observe(env: "MultistepEnv", session: Session) -> None:
    text = env._format_prompt(env.active_states[session.session_id], len(session.steps))
    if not isinstance(text, str):
        raise SessionError(
            f"{session.where(env.name)}: _format_prompt must return str, got {type(text).__name__}"
        )
    if session.carried and not session.steps:
        text = f"{session.carried}\n\n{text}"
    session.observe({"role": "user", "content": text})


def _take_step(env: "MultistepEnv", session: Session, action: Action) -> Step:
    sid = session.session_id
    observation = session.messages[-1]["content"]
    tokens = session.act(action)
    answer = env._step_episode(sid, env.active_states[sid], action.text)
    state, reward, done, info = answer
    env.active_states[sid] = state
    malformed = bool(info.get("malformed", False))
    penalty = env.config["malformed_penalty"] if malformed else 0.0
    step = Step(
        index=len(session.steps),
        observation=observation,
        action=action.text,
        reward=_checked_reward(env, session, reward) - penalty,
        done=bool(done),
        info=dict(info),
        malformed=malformed,
        truncated=action.truncated,
        anchor=session.steps[-1].info.get("anchor") if session.steps else None,
        token_rewards=_token_rewards(env, session, info, tokens),
    )
    session.steps.append(step)
    return step


def _checked_reward(env: "MultistepEnv", session: Session, reward: Any) -> float:
    if isinstance(reward, str | bytes) or not math.isfinite(value := float(reward)):
        raise SessionError(f"{session.where(env.name)}: reward must be finite, got {reward!r}")
    return value


def _token_rewards(
    env: "MultistepEnv", session: Session, info: Mapping[str, Any], tokens: int
) -> tuple[float, ...] | None:
    given: Sequence[float] | None = info.get("token_rewards")
    if given is None or env.codec is None:
        return None
    if len(given) != tokens:
        raise SessionError(
            f"{session.where(env.name)}: info['token_rewards'] has {len(given)} entries, "
            f"the action has {tokens} tokens"
        )
    return tuple(_checked_reward(env, session, reward) for reward in given)


def _stop_reason(env: "MultistepEnv", session: Session, step: Step, mistakes: int) -> str | None:
    if step.done:
        return str(step.info.get("stop_reason", "done"))
    if mistakes > env.config["error_allowance"]:
        return "malformed"
    if len(session.steps) >= env.config["max_steps_per_episode"]:
        return "max_steps"
    return None


def _budget_problem(session: Session) -> str | None:
    left = session.tokens_left()
    return "max_rollout_tokens" if left is not None and left < 1 else None


def finish(env: "MultistepEnv", session: Session, stop_reason: str) -> Episode:
    """The episode as played so far. The environment's `_calculate_reward` has the last word on
    its reward; what that adds to the sum of the steps goes to the last step."""
    steps = list(session.steps)
    if steps and stop_reason != "error":
        total = sum(step.reward for step in steps)
        state = env.active_states[session.session_id]
        final = _checked_reward(
            env,
            session,
            env._calculate_reward(
                state, [s.action for s in steps], steps[-1].action, [s.reward for s in steps]
            ),
        )
        if final != total:
            last = steps[-1]
            steps[-1] = replace(last, reward=last.reward + (final - total))
    return Episode(
        index=session.episode,
        steps=tuple(steps),
        messages=tuple(session.messages),
        reward=sum(step.reward for step in steps),
        score_weight=0.0 if session.episode < env.config["free_shots"] else 1.0,
        stop_reason=stop_reason,
    )
