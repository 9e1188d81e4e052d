"""What goes wrong with actions: they are malformed, cut off, or break rows."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping

from agentsgym.report.doctor.evidence import Evidence, Fault, examples, share, share_now
from agentsgym.report.stored import Contents, is_malformed
from agentsgym.tokens.calls import REASONS
from agentsgym.tokens.template import REWRITES
from agentsgym.types import Rollout, Step

_MOST = 0.1
"""Share of the actions or episodes; rows that the template begins per rollout."""
_RAN = 0.01
"""Share of the calls."""
_MOST_CALLS = 0.5
"""Rows that a program's changed conversations begin per rollout."""
_LONGEST = 60


def malformed_actions(evidence: Evidence) -> Fault | None:
    """10 % of the actions are malformed or unparsed."""
    for name in ("malformed", "unparsed"):
        curve = evidence.high(name, _MOST)
        if curve is None:
            continue
        return Fault(
            "The environment cannot read many of the actions.",
            (
                share_now(curve, f"the actions are {name}"),
                *_examples(evidence),
            ),
            (
                "a prompt that shows the form of an action (explain_actions, system_prompt)",
                "a warm start, so that the model knows the form before it is rewarded",
                "a penalty for malformed actions, or a larger error_allowance if they come early",
            ),
            examples(evidence.recent, _with_malformed),
            curve.recent.steps,
        )
    return None


def _examples(evidence: Evidence) -> Iterator[str]:
    counts = Counter(
        _short(step.action)
        for one in evidence.recent
        for rollout in one.live
        for step in _steps(rollout)
    )
    if counts:
        actions = ", ".join(f"{text!r} ({count})" for text, count in counts.most_common(3))
        yield f"the most frequent: {actions}"


def _with_malformed(one: Contents) -> Iterable[Rollout]:
    return (rollout for rollout in one.live if any(_steps(rollout)))


def _steps(rollout: Rollout) -> Iterator[Step]:
    return (step for e in rollout.episodes for step in e.actions if is_malformed(step))


def _short(text: str) -> str:
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…"


def calls_never_run(evidence: Evidence) -> Fault | None:
    """The agent calls tools, and under 1 % of the calls are answered with a result, or, where a
    program runs them, can be read."""
    names = ("attempted", "parsed", "executed")
    begun, parsed, executed = (evidence.curve(f"tool_calls/{name}") for name in names)
    ran = parsed if executed is None else executed
    if begun is None or ran is None or begun.recent.mean <= 0:
        return None
    if ran.recent.mean >= _RAN * begun.recent.mean:
        return None
    read = 0.0 if parsed is None else parsed.recent.mean / begun.recent.mean
    return Fault(
        "Calls of tools were written, and none ran.",
        (
            f"{begun.recent.mean:.2g} calls per action were begun in {begun.recent}",
            f"{share(read)} of them could be read",
        ),
        (
            "`agentsgym tokens MODEL` shows whether calls in the form of the model's chat template "
            "can be read",
            "the rollouts: an error that every call is answered with names what is wrong with it",
            "a warm start on a teacher's calls, so that the model knows the form",
        ),
        examples(evidence.recent, _calling),
        begun.recent.steps,
    )


def _calling(one: Contents) -> Iterable[Rollout]:
    return (r for r in one.live if any(_calls(step) for e in r.episodes for step in e.actions))


def _calls(step: Step) -> bool:
    metrics = step.info.get("metrics")
    return isinstance(metrics, Mapping) and bool(metrics.get("tool_calls/attempted"))


def truncated_actions(evidence: Evidence) -> Fault | None:
    """10 % of the actions reach the token cap."""
    curve = evidence.high("truncated", _MOST)
    if curve is None:
        return None
    cap = evidence.setting("max_action_tokens")
    limit = "" if cap is None else f" of {cap} tokens"
    return Fault(
        f"Many actions are cut off at the cap{limit}.",
        (
            share_now(curve, "the actions"),
            *_lengths(evidence),
        ),
        (
            f"a higher train.max_action_tokens{'' if cap is None else f' (now {cap})'}",
            "a prompt that asks for short answers, or a stop string (train.stop_strings)",
            "a warm start, if the model never ends its turn (`agentsgym tokens MODEL` names the "
            "token that ends it)",
        ),
        examples(evidence.recent, _cut),
        curve.recent.steps,
    )


def _lengths(evidence: Evidence) -> Iterator[str]:
    curve = evidence.curve("agent_tokens")
    if curve is not None:
        yield f"{curve.recent.mean:.0f} agent tokens per rollout"


def _cut(one: Contents) -> Iterable[Rollout]:
    return (r for r in one.live if any(step.truncated for e in r.episodes for step in e.steps))


def rows_break(evidence: Evidence) -> Fault | None:
    """The chat template breaks one rollout in ten into more rows."""
    breaks = evidence.high("template_breaks", _MOST)
    if breaks is None:
        return None
    return Fault(
        "The chat template rewrites earlier turns: a rollout is several rows, each with the whole "
        "context.",
        (
            f"rows that the template began: {breaks.recent.mean:.2g} per rollout in "
            f"{breaks.recent}",
            *_reasons(evidence),
            *_cost(evidence),
        ),
        (
            "model.chat_template=training (TRL's template for the model, which only appends)",
            "model.chat_template_kwargs.enable_thinking=false, if it drops thoughts",
            "`agentsgym tokens MODEL` shows where and why, and what another template would cost",
        ),
        examples(evidence.recent, _most_rows),
        breaks.recent.steps,
    )


def calls_break(evidence: Evidence) -> Fault | None:
    """A program changes what it sent before, once in two rollouts."""
    curves = {why: evidence.high(f"call_breaks/{why}", _MOST_CALLS) for why in ("history", "tools")}
    high = {why: curve for why, curve in curves.items() if curve is not None}
    if not high:
        return None
    return Fault(
        "A program changes its conversations: a rollout is several rows, each with the whole "
        "context.",
        (
            *(f"{REASONS[why]}: {c.recent.mean:.2g} rows per rollout" for why, c in high.items()),
            *_programs(evidence),
            *_cost(evidence),
        ),
        (
            "send earlier messages back as they came, with the same tools in the same order",
            "leave texts that change, such as the time, out of earlier messages",
            "where a framework writes tool calls into texts, use its client with native tools",
        ),
        examples(evidence.recent, _with_changed_calls),
        next(iter(high.values())).recent.steps,
    )


def _programs(evidence: Evidence) -> Iterator[str]:
    """The programs whose calls began such rows."""
    rollouts = {id(r): r for one in evidence.recent for r in _with_changed_calls(one)}
    configs = [rollout.env_config for rollout in rollouts.values()]
    names = {str(c.get("function") or " ".join(c.get("command") or ())) for c in configs}
    if names - {""}:
        yield f"the program: {', '.join(sorted(names - {''}))}"


def _with_changed_calls(one: Contents) -> Iterable[Rollout]:
    return (r for r in one.live if any(row.begins in ("history", "tools") for row in r.rows))


def _reasons(evidence: Evidence) -> Iterator[str]:
    for what, words in REWRITES.items():
        curve = evidence.curve(f"template_breaks/{what}")
        if curve is not None:
            yield f"the template {words} ({curve.recent.mean:.2g} per rollout)"


def _cost(evidence: Evidence) -> Iterator[str]:
    tokens, rows = evidence.curve("tokens"), evidence.curve("rows_per_rollout")
    if tokens is not None and rows is not None:
        yield f"{tokens.recent.mean:.0f} tokens in {rows.recent.mean:.2g} rows per rollout"


def _most_rows(one: Contents) -> Iterable[Rollout]:
    broken = [r for r in one.live if any(row.begins == "template" for row in r.rows)]
    return sorted(broken, key=lambda rollout: -len(rollout.rows))
