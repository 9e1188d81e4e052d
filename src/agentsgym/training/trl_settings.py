"""What becomes of each setting that TRL's GRPOConfig and its TrainingArguments have.

A setting is used, refused, or without meaning here. A refused one may only keep its default: it
would be ignored in silence, or train something else than asked. docs/settings.md is this table.
"""

import dataclasses
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from trl import GRPOConfig

from agentsgym.credit import ESTIMATORS
from agentsgym.training.loss.losses import LOSSES, REFUSED_LOSSES
from agentsgym.training.setting_conditions import default_of

Verdict = Literal["used", "refused", "without meaning"]


@dataclass(frozen=True, slots=True)
class Setting:
    """One setting of TRL. `why` is a sentence: its effect here, the setting to use instead, or why
    it has no effect (empty: it works as in TRL). `also` are values other than the default that
    change nothing and are therefore allowed."""

    name: str
    verdict: Verdict
    why: str = ""
    also: tuple[Any, ...] = ()


def _used(names: str, why: str = "") -> list[Setting]:
    return [Setting(name, "used", why) for name in names.split()]


def _refused(names: str, why: str, also: tuple[Any, ...] = ()) -> list[Setting]:
    return [Setting(name, "refused", why, also) for name in names.split()]


def _meaningless(names: str, why: str) -> list[Setting]:
    return [Setting(name, "without meaning", why) for name in names.split()]


def _quoted(names: Iterable[str]) -> str:
    return ", ".join(f'"{name}"' for name in names)


def _of_loss_types() -> list[Setting]:
    """TRL's settings that formulas read; setting_conditions.py knows which ones."""
    theirs = {field.name for field in dataclasses.fields(GRPOConfig)}
    read = dict.fromkeys(name for loss in LOSSES.values() for name in loss.settings)
    return [Setting(name, "used") for name in read if name in theirs]


def _refused_losses() -> str:
    return ", ".join(f'"{name}": {why}' for name, why in REFUSED_LOSSES.items())


_MODEL = [
    *_used("model_init_kwargs trust_remote_code", "where the model is given by name"),
    *_used("disable_dropout", "without it dropout makes the sampler's ratio differ from 1"),
    *_used("cast_lm_head_to_fp32"),
    *_used(
        "router_aux_loss_coef",
        "the auxiliary loss of each forward chunk of agent rows, weighted with its tokens; its "
        "default is the model's own coefficient",
    ),
    *_meaningless(
        "use_cache",
        "the embedded engine keeps a cache of its own and the loss needs none; only the saved "
        "model's configuration shows it",
    ),
    *_refused(
        "use_liger_kernel liger_kernel_config",
        "it would exchange layers after the embedded engine has checked them; "
        'set model_init_kwargs={"use_kernels": True}',
    ),
]

_DATA = [
    *_used("shuffle_dataset"),
    *_used("data_seed", "order of the tasks; None: `seed`"),
    *_used(
        "dataloader_num_workers dataloader_pin_memory dataloader_persistent_workers "
        "dataloader_prefetch_factor dataloader_multiprocessing_context dataloader_in_order"
    ),
    *_meaningless("dataloader_drop_last", "an incomplete last generation is always left out"),
    *_meaningless("length_column_name", "rows hold tasks, which have no length"),
    *_refused("remove_unused_columns", "rows carry the task; leave it False", (None,)),
    *_refused(
        "train_sampling_strategy",
        "tasks are drawn in groups; shuffle_dataset=False keeps the dataset's order",
    ),
]

_GENERATION = [
    *_used(
        "per_device_train_batch_size num_generations generation_batch_size steps_per_generation",
        "counts rollouts",
    ),
    *_used("temperature", "of training; eval_temperature is the evaluation's"),
    *_used("top_p top_k", "with allow_truncated_sampling: they bias the importance ratio"),
    *_used(
        "max_completion_length",
        "token cap of one action, the same as max_action_tokens, whose default holds where "
        "neither is given",
    ),
    *_used(
        "generation_kwargs",
        "temperature, top_p, top_k, max_new_tokens or max_tokens, stop_strings or stop",
    ),
    *_used("chat_template_kwargs"),
    *_refused(
        "min_p repetition_penalty",
        "it changes the distribution that is sampled but not the one that is trained; lower "
        "temperature instead",
        (None,),
    ),
    *_refused(
        "cache_implementation", "the embedded engine keeps a cache of its own (engine_capacity)"
    ),
    *_refused(
        "use_transformers_continuous_batching use_transformers_paged "
        "transformers_continuous_batching_config",
        "the embedded engine batches continuously by itself (engine_capacity)",
    ),
    *_refused("max_tool_calling_iterations", 'set env_config["max_steps_per_episode"]'),
    *_meaningless("ds3_gather_for_generation", "no engine generates on a model that ZeRO-3 spread"),
    *_used("pad_to_multiple_of", "rows of a forward chunk"),
]

_VLLM = [
    *_used("use_vllm", "TRL's own vLLM; engine_urls is for servers of yours"),
    *_used(
        "vllm_mode vllm_model_impl vllm_enable_sleep_mode vllm_structured_outputs_regex "
        "vllm_server_base_url vllm_server_host vllm_server_port vllm_server_timeout "
        "vllm_group_port vllm_gpu_memory_utilization vllm_max_model_length "
        "vllm_tensor_parallel_size",
    ),
    *_refused(
        "vllm_importance_sampling_correction", 'set sampler_correction="none" to leave it out'
    ),
    *_refused(
        "vllm_importance_sampling_mode",
        'ours is "token_truncate", of every engine (sampler_correction, sampler_cap)',
        ("token_truncate",),
    ),
    *_refused("vllm_importance_sampling_clip_max vllm_importance_sampling_cap", "set sampler_cap"),
    *_refused(
        "vllm_importance_sampling_clip_min", "the sampler's ratio is capped above only: sampler_cap"
    ),
]

_LOSS = [
    *_used("beta use_bias_correction_kl sync_ref_model ref_model_mixup_alpha ref_model_sync_steps"),
    *_used("num_iterations entropy_coef"),
    *_of_loss_types(),
    *_used("loss_type", f"{_quoted(LOSSES)}; not {_refused_losses()}"),
    *_used(
        "scale_rewards",
        f"by the estimator {_quoted(e.name for e in ESTIMATORS.values() if e.takes_scale_rewards)}",
    ),
    *_refused("importance_sampling_level", 'set ratio_scope="rollout" for "sequence"'),
    *_refused("mask_truncated_completions", "set train_truncated_actions=False"),
    *_refused(
        "off_policy_mask_threshold",
        "max_staleness bounds the age of rollouts, sampler_cap the ratio that corrects it",
    ),
    *_refused("top_entropy_quantile", "every agent token is trained; see entropy_coef"),
    *_refused(
        "use_adaptive_entropy entropy_coef_min entropy_coef_max entropy_coef_delta entropy_target",
        "the bonus keeps its coefficient: entropy_coef",
    ),
    *_refused(
        "reward_weights multi_objective_aggregation",
        "there is one reward, the environment's; weigh its parts in _calculate_reward",
    ),
    *_refused("label_smoothing_factor", "the loss has no labels to smooth; see entropy_coef"),
]

_OPTIMIZER = [
    *_used("output_dir max_steps learning_rate"),
    *_used("num_train_epochs", "where max_steps is not given"),
    *_used("lr_scheduler_type lr_scheduler_kwargs warmup_steps"),
    *_used("warmup_ratio", "where the installed transformers still has it"),
    *_used("optim", "all but schedule-free optimizers, LOMO and AdaLOMO"),
    *_used(
        "optim_args optim_target_modules adam_beta1 adam_beta2 adam_epsilon",
        "by the optimizers that have it",
    ),
    *_used("weight_decay"),
    *_used("max_grad_norm", "0 switches clipping off"),
    *_used("gradient_accumulation_steps", "steps_per_generation must be a multiple of it"),
    *_meaningless(
        "average_tokens_across_devices", "loss weights are always counted over all processes"
    ),
    *_used("bf16", "its default is what the GPU can do"),
    *_used("fp16 tf32"),
    *_used(
        "activation_checkpointing activation_checkpointing_kwargs",
        "where the installed transformers has it",
    ),
    *_used("gradient_checkpointing gradient_checkpointing_kwargs"),
    *_used("torch_compile torch_compile_backend torch_compile_mode"),
    *_used("neftune_noise_alpha", "the loss's passes are noisy, the sampler's are not"),
    *_used("torch_empty_cache_steps"),
    *_refused(
        "auto_find_batch_size",
        "a smaller batch would break groups apart; lower max_tokens_per_forward, which bounds "
        "memory",
    ),
    *_used("seed full_determinism use_cpu"),
    *_used("ignore_data_skip restore_callback_states_from_checkpoint"),
]

_LOGS = [
    *_used("logging_strategy logging_steps logging_first_step log_on_each_node"),
    *_used("logging_nan_inf_filter log_level log_level_replica disable_tqdm debug"),
    *_used("skip_memory_metrics report_to run_name project"),
    *_used("logging_dir", "where the installed transformers still has it"),
    *_used("trackio_space_id trackio_bucket_id trackio_static_space_id", "by the tracker trackio"),
    *_used(
        "include_num_input_tokens_seen",
        '"all" counts the padded tokens of the forward chunks, "non_padding" those of the rows',
    ),
    *_used(
        "log_completions num_completions_to_print log_unique_prompts log_completions_hub_repo",
        "the rollouts of the last generation, one row each",
    ),
    *_meaningless("log_multimodal", "environments are made of text"),
]

_EVALUATION = [
    *_used("eval_strategy eval_steps eval_delay eval_on_start"),
    *_used("num_generations_eval", "rollouts of an evaluation task, the same as eval_rollouts"),
    *_meaningless(
        "per_device_eval_batch_size",
        "an evaluation plays all its tasks; engine_capacity bounds how many at once",
    ),
    *_meaningless(
        "prediction_loss_only eval_do_concat_batches eval_use_gather_object "
        "eval_accumulation_steps include_for_metrics batch_eval_metrics label_names",
        "an evaluation plays tasks: there are no predictions and no labels",
    ),
    *_refused(
        "bf16_full_eval fp16_full_eval",
        "an evaluation plays with the weights as they are trained; load the model in another "
        'dtype: model_init_kwargs={"dtype": "bfloat16"}',
    ),
]

_CHECKPOINTS = [
    *_used("save_strategy save_steps", "a checkpoint due within a generation is made at its end"),
    *_used("save_only_model save_on_each_node save_total_limit"),
    *_used("load_best_model_at_end greater_is_better"),
    *_used("metric_for_best_model", "None: the reward; no evaluation computes a loss"),
    *_used("push_to_hub hub_token hub_private_repo hub_model_id hub_strategy hub_always_push"),
    *_used("hub_revision"),
    *_refused(
        "enable_jit_checkpoint",
        "a checkpoint is made at the end of a generation, a signal comes at any time; "
        "set save_steps",
    ),
    *_meaningless(
        "do_train do_eval do_predict resume_from_checkpoint",
        "for scripts of your own; call trainer.train(resume_from_checkpoint=...)",
    ),
]

_PROCESSES = [
    *_used("ddp_find_unused_parameters ddp_bucket_cap_mb ddp_broadcast_buffers"),
    *_used("ddp_static_graph ddp_backend ddp_timeout fsdp deepspeed"),
    *_used("fsdp_config", "with fsdp"),
    *_used(
        "accelerator_config",
        "without split_batches, dispatch_batches and num_steps, which would break groups apart",
    ),
    *_refused("parallelism_config", "never tried here; see docs/distributed.md"),
    *_meaningless("local_rank", "the launcher says it"),
]

GROUPS: dict[str, list[Setting]] = {
    "Model": _MODEL,
    "Data": _DATA,
    "Rollouts": _GENERATION,
    "vLLM": _VLLM,
    "Loss": _LOSS,
    "Optimizer and schedule": _OPTIMIZER,
    "Logs": _LOGS,
    "Evaluation": _EVALUATION,
    "Checkpoints": _CHECKPOINTS,
    "Processes": _PROCESSES,
}

SETTINGS: dict[str, Setting] = {
    setting.name: setting for group in GROUPS.values() for setting in group
}

_REFUSED_ARGUMENTS = {
    "reward_funcs": "rewards come from the environments (_step_episode, _calculate_reward)",
    "reward_processing_classes": "rewards come from the environments, not from reward models",
    "tools": "what an agent may do is in its environment's prompts and _step_episode",
    "rollout_func": "rollouts are played by the environments that the dataset's rows name",
    "environment_factory": "the dataset's rows name their environments (env_class_path)",
    "compute_metrics": "an environment hands its own figures over in info['metrics'] of a step",
}


def refuse_settings(config: Any) -> None:
    """Raise ValueError for a refused setting that was changed, with what to set instead."""
    for field in dataclasses.fields(config):
        setting = SETTINGS.get(field.name)
        if setting is None or setting.verdict != "refused":
            continue
        value, default = getattr(config, field.name), default_of(field)
        if value != default and value not in setting.also:
            raise ValueError(f"{field.name}={value!r} is not supported here: {setting.why}")


def refuse_arguments(given: Mapping[str, Any]) -> None:
    """Raise TypeError for an argument of TRL's trainer that has another place here."""
    for name, why in _REFUSED_ARGUMENTS.items():
        if name in given:
            raise TypeError(f"GRPOEnvTrainer takes no {name}: {why}")
