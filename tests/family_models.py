"""A tiny random model of each family in docs/engines.md."""

from typing import Any

import torch
import transformers

WINDOW = 8

TINY_SHAPE = {
    "vocab_size": 96,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "max_position_embeddings": 512,
    "initializer_range": 0.4,
    "pad_token_id": 1,
    "bos_token_id": None,
    "eos_token_id": None,
}
_MIXED = {"sliding_window": WINDOW, "layer_types": ["sliding_attention", "full_attention"]}
_EXPERTS = {"num_experts_per_tok": 2, "moe_intermediate_size": 16}
_LINEAR = {
    "layer_types": ["linear_attention", "full_attention"],
    "linear_num_key_heads": 2,
    "linear_num_value_heads": 4,
    "linear_key_head_dim": 8,
    "linear_value_head_dim": 8,
}
_MAMBA = {"mamba_n_heads": 4, "mamba_d_state": 8, "mamba_n_groups": 1}
_LATENT = {
    "num_key_value_heads": 4,
    "q_lora_rank": 16,
    "kv_lora_rank": 16,
    "qk_nope_head_dim": 8,
    "qk_rope_head_dim": 8,
    "v_head_dim": 8,
    "n_group": 1,
    "topk_group": 1,
}
_ROUTED = _EXPERTS | {"n_routed_experts": 4, "first_k_dense_replace": 1}

CHANGES: dict[str, dict[str, Any]] = {
    "llama": {},
    "qwen2": {"use_sliding_window": True, "sliding_window": WINDOW, "max_window_layers": 1},
    "qwen3": {},
    "qwen3_moe": _EXPERTS | {"num_experts": 4},
    "qwen3_next": _LINEAR | _EXPERTS | {"num_experts": 4, "shared_expert_intermediate_size": 16},
    "qwen3_5_text": _LINEAR,
    "gemma2": _MIXED | {"attn_logit_softcapping": 5.0, "final_logit_softcapping": 3.0},
    "gemma3_text": _MIXED,
    "gemma4_text": _MIXED | {"global_head_dim": 16, "final_logit_softcapping": 3.0},
    "mistral": {"sliding_window": WINDOW},
    "ministral": _MIXED,
    "ministral3": {},
    "phi3": {"sliding_window": WINDOW},
    "smollm3": {"no_rope_layers": [1, 0]},
    "olmo2": {},
    "olmo3": _MIXED,
    "granite": {"logits_scaling": 4.0, "attention_multiplier": 0.3, "residual_multiplier": 0.7},
    "granitemoehybrid": _MAMBA
    | {
        "layer_types": ["mamba", "attention"],
        "logits_scaling": 4.0,
        "num_local_experts": 0,
        "shared_intermediate_size": 48,
        "mamba_d_head": 16,
    },
    "gpt_oss": _MIXED | {"num_local_experts": 4, "num_experts_per_tok": 2},
    "lfm2": {"layer_types": ["conv", "full_attention"]},
    "glm4": {},
    "glm4_moe": _ROUTED,
    "deepseek_v3": _ROUTED | _LATENT,
    "cohere2": _MIXED | {"logit_scale": 0.5},
    "falcon_h1": _MAMBA | {"mamba_d_ssm": 32, "mamba_d_head": 8},
}


def family_model(model_type: str, **changes: Any) -> Any:
    """A random causal language model of two layers; wide weights, so that it is not flat."""
    torch.manual_seed(0)
    kind = type(transformers.AutoConfig.for_model(model_type))
    config = kind(**{**TINY_SHAPE, **CHANGES[model_type], **changes})
    return transformers.AutoModelForCausalLM.from_config(config).eval()
