"""A tiny Llama and its byte-level BPE tokenizer, newly built and deterministic."""

from collections.abc import Iterable
from typing import Any

from agentsgym.warm_start.phrases import fixed_phrases, pieces_pattern
from agentsgym.warm_start.settings import Pieces, TinySettings

PAD, END, USER, SYSTEM, AGENT = "<|pad|>", "<|end|>", "<|user|>", "<|system|>", "<|agent|>"
SPECIAL_TOKENS = (PAD, END, USER, SYSTEM, AGENT)

CHAT_TEMPLATE = (
    "{% for m in messages %}"
    "{% if m['role'] == 'assistant' %}{{ '<|agent|>' + m['content'] + '<|end|>' }}"
    "{% else %}{{ '<|' + m['role'] + '|>' + m['content'] }}{% endif %}"
    "{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|agent|>' }}{% endif %}"
)
"""It only appends: earlier turns never change, so a rollout is one row."""

_CALL, _CALL_END, _RESULT = "<tool_call>", "</tool_call>", "<|tool|>"
TOOL_TOKENS = (_CALL, _CALL_END, _RESULT)
TOOL_TEMPLATE = (
    "{% if tools %}{{ '<|system|>' }}"
    "{% for tool in tools %}{{ tool.function.name }}{{ ' ' if not loop.last }}{% endfor %}"
    "{% endif %}"
) + CHAT_TEMPLATE.replace(
    " + '<|end|>' }}",
    " }}{% for call in m['tool_calls'] or [] %}"
    """{{ '<tool_call>{"name": "' + call.function.name + '", "arguments": ' }}"""
    "{{ call.function.arguments | tojson }}{{ '}</tool_call>' }}"
    "{% endfor %}{{ '<|end|>' }}",
)
"""The same with calls of tools, of which it tells the model the names."""


def build_tokenizer(
    texts: Iterable[str],
    vocab_size: int = 2048,
    *,
    max_token_length: int = 40,
    pieces: Pieces = "lines",
    tools: bool = False,
) -> Any:
    """A `PreTrainedTokenizerFast` trained on `texts`: byte-level BPE over lines, words or phrases.

    By `lines` text is split only at line breaks, not at white space, so that a frequent line (a
    question, an answer) becomes a single token of up to `max_token_length` characters. A tiny model
    then need not learn first how words combine. By `words` a token is no longer than a word with
    the space before it, a hyphen with the letters after it, or a sign: `open ka-ke` is `open`,
    ` ka`, `-ke`, so that a model can copy a word that it never saw. `phrases` are words and the
    fixed phrases of the texts, of any length. Any text can be encoded. The vocabulary has at most
    `vocab_size` entries, including the 256 bytes and 5 special tokens (8 with `tools`, which its
    chat template then shows), and depends only on the texts and their counts. Raises ValueError for
    a `vocab_size` below that.
    """
    from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast

    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    special = [*SPECIAL_TOKENS, *(TOOL_TOKENS if tools else ())]
    least = len(alphabet) + len(special)
    if vocab_size < least:
        raise ValueError(f"vocab_size must be at least {least}, got {vocab_size}")
    texts = sorted(texts)
    phrases = fixed_phrases(texts) if pieces == "phrases" else []
    split = "\n" if pieces == "lines" else Regex(pieces_pattern(phrases))
    bpe = Tokenizer(models.BPE())
    bpe.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(split, "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    bpe.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size,
        special_tokens=special,
        initial_alphabet=alphabet,
        max_token_length=max(max_token_length, *(len(one.encode()) for one in phrases), 1),
        show_progress=False,
    )
    bpe.train_from_iterator(texts, trainer)
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=bpe,
        pad_token=PAD,
        eos_token=END,
        additional_special_tokens=special[2:],
        clean_up_tokenization_spaces=False,
    )
    tokenizer.chat_template = TOOL_TEMPLATE if tools else CHAT_TEMPLATE
    return tokenizer


def llama_config(shape: TinySettings, vocab_size: int, **tokens: Any) -> Any:
    """The `LlamaConfig` of a tiny model; `tokens` are ids of its special tokens."""
    from transformers import LlamaConfig

    return LlamaConfig(
        vocab_size=vocab_size,
        hidden_size=shape.hidden_size,
        intermediate_size=shape.intermediate_size,
        num_hidden_layers=shape.layers,
        num_attention_heads=shape.heads,
        head_dim=shape.head_size,
        num_key_value_heads=shape.heads,
        max_position_embeddings=shape.max_positions,
        initializer_range=shape.initializer_range,
        tie_word_embeddings=True,
        **tokens,
    )


def build_model(tokenizer: Any, config: TinySettings | None = None, seed: int = 0) -> Any:
    """A `LlamaForCausalLM` in float32 with tied embeddings, its weights drawn from `seed`, with
    induction heads if the settings say so. The global random state does not change.
    """
    import torch
    from transformers import LlamaForCausalLM

    from agentsgym.warm_start.induction import write_induction_heads

    config = config or TinySettings()
    llama = llama_config(
        config,
        len(tokenizer),
        pad_token_id=tokenizer.pad_token_id,
        bos_token_id=None,
        eos_token_id=tokenizer.eos_token_id,
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = LlamaForCausalLM(llama)
        if config.induction_heads:
            words = _without_spaces(tokenizer)
            write_induction_heads(model, config.induction_heads, words, config.recency_heads)
    return model


def _without_spaces(tokenizer: Any) -> list[int]:
    """For each token the one with the same text without the space before it, or itself."""
    ids = tokenizer.get_vocab()
    own = sorted(ids, key=ids.__getitem__)
    return [ids.get(token.removeprefix("Ġ"), ids[token]) for token in own]
