#!/bin/bash
#SBATCH --job-name=agentsgym
#SBATCH --nodes=4
#SBATCH --ntasks-per-node=1
#SBATCH --gpus-per-node=8
#SBATCH --cpus-per-task=64
#SBATCH --exclusive
#SBATCH --output=%x-%j.log
#
# sbatch examples/cluster/slurm.sh [KEY=VALUE ...]
#
# The first half of the nodes learns, the other half serves the model with vLLM, one server per GPU;
# Ray plays environments on the CPUs of all. Submit it in the directory that all nodes share, with the
# environment active. docs/train-qwen.md says what was run.
set -euo pipefail

RUN=${RUN:-examples/cluster/four_by_eight.yaml}
MODEL=${MODEL:-Qwen/Qwen3-8B}
GPUS=${GPUS:-8}
MAX_MODEL_LEN=${MAX_MODEL_LEN:-2048}
PATIENCE=${PATIENCE:-1200} # seconds until all servers must answer
RAY_PORT=6379 FIRST_PORT=8000 LEARN_PORT=29500
SYNC="$PWD/runs/sync-$SLURM_JOB_ID"

mapfile -t nodes < <(scontrol show hostnames "$SLURM_JOB_NODELIST")
half=$((${#nodes[@]} / 2))
learners=("${nodes[@]:0:half}")
servers=("${nodes[@]:half}")
head=${nodes[0]}
steps=()

on() { # NODE COMMAND...: a command on one node, beside what runs there
    local node=$1
    shift
    srun --overlap --nodes=1 --ntasks=1 --nodelist="$node" "$@"
}

finish() {
    for step in "${steps[@]}"; do kill "$step" 2>/dev/null || true; done
    wait || true
}
trap finish EXIT

# -- Ray, for the environments: no GPUs, and no dashboard that others could reach
on "$head" ray start --head --port="$RAY_PORT" --num-gpus=0 --include-dashboard=false --block &
steps+=($!)
sleep 20
for node in "${nodes[@]:1}"; do
    on "$node" ray start --address="$head:$RAY_PORT" --num-gpus=0 --block &
    steps+=($!)
done
export RAY_ADDRESS="$head:$RAY_PORT"

# -- vLLM, one server per GPU of the second half; it reads new weights from the shared directory. The
# key keeps others out: in development mode a server does what its clients say.
mkdir -p "$SYNC"
AGENTSGYM_VLLM_KEY=$(python3 -c 'import secrets; print(secrets.token_urlsafe(32))')
export AGENTSGYM_VLLM_KEY
urls=()
for node in "${servers[@]}"; do
    for ((gpu = 0; gpu < GPUS; gpu++)); do
        port=$((FIRST_PORT + gpu))
        VLLM_API_KEY=$AGENTSGYM_VLLM_KEY on "$node" \
            env CUDA_VISIBLE_DEVICES="$gpu" VLLM_SERVER_DEV_MODE=1 \
            vllm serve "$MODEL" --port "$port" --max-model-len "$MAX_MODEL_LEN" \
            --logprobs-mode processed_logprobs \
            >"$SYNC/$node-$port.log" 2>&1 &
        steps+=($!)
        urls+=("http://$node:$port")
    done
done
deadline=$((SECONDS + PATIENCE))
for url in "${urls[@]}"; do
    until curl --silent --fail --max-time 5 "$url/health" >/dev/null; do
        if ((SECONDS > deadline)); then
            echo "$url does not answer after $PATIENCE seconds; its log is in $SYNC" >&2
            exit 1
        fi
        sleep 5
    done
done
listed=$(IFS=,; echo "${urls[*]}")

# -- the learners: accelerate on each node of the first half
# shellcheck disable=SC2016 # the node expands its own number
srun --overlap --nodes="$half" --ntasks="$half" --ntasks-per-node=1 \
    --nodelist="$(IFS=,; echo "${learners[*]}")" \
    bash -c 'exec accelerate launch --machine_rank "$SLURM_PROCID" "$@"' learner \
    --multi_gpu --mixed_precision bf16 --dynamo_backend no --num_machines "$half" --num_processes $((half * GPUS)) \
    --main_process_ip "$head" --main_process_port "$LEARN_PORT" \
    -m agentsgym train "$RUN" "engine.urls=[$listed]" \
    engine.key_env=AGENTSGYM_VLLM_KEY "$@"
