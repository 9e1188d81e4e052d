"""Whether control tokens that a task or a model writes as text become control tokens."""

from collections import Counter

from agentsgym.checks.tokens.speaker import Speaker
from agentsgym.checks.tokens.talk import Answers
from agentsgym.envs.base import MultistepEnv
from agentsgym.tokens import PlainCodec, TemplateCodec
from agentsgym.types import Tokenizer

_MOST = 48


def forged_tokens(env: MultistepEnv) -> tuple[str, ...]:
    """The control tokens of which the agent reads more in any step if the texts spell them: in the
    observations, and in answers of ordinary tokens."""
    tokenizer, codec = env.tokenizer, env.codec
    assert tokenizer is not None and isinstance(codec, TemplateCodec | PlainCodec)
    spelled = _spelled(tokenizer, codec)
    mine = [token for token in spelled if codec.control.ids.isdisjoint(codec.encode_action(token))]
    forging = _counts(env, codec, spelled, mine)
    plain = _counts(env, codec, ["word"], ["word"])
    forged = {i for one, other in zip(forging, plain, strict=False) for i in one - other}
    return tuple(sorted(tokenizer.decode([number]) for number in forged))


def _spelled(tokenizer: Tokenizer, codec: PlainCodec | TemplateCodec) -> list[str]:
    """Control tokens as text, first those that the template writes around messages."""
    texts = [tokenizer.decode([number]) for number in sorted(codec.control.ids)]
    around = codec.written.around if isinstance(codec, TemplateCodec) else ""
    return sorted(texts, key=lambda text: text not in around)[:_MOST]


def _counts(
    env: MultistepEnv, codec: PlainCodec | TemplateCodec, seen: list[str], said: list[str]
) -> list[Counter[int]]:
    """The control tokens that the agent reads before each of its answers."""
    task = {"observations": [f"Look: {' '.join(seen)}."] * 3}
    speaker = Speaker(Answers((f"I say {' '.join(said)}.",)), encode=codec.encode_action)
    rows = speaker.play(env, task).rows
    return [
        Counter(i for i in row.token_ids[: span.start] if i in codec.control.ids)
        for row in rows
        for span in row.spans
    ]
