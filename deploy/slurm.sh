#!/bin/bash
# One training on the GPUs of several machines under Slurm:  sbatch deploy/slurm.sh wmt14-en-de-base --out /shared/runs/base
# The words after the script's name are those of `glassformer train`; the run lies where every machine sees it. The same line begins
# the training, or goes on with it after a limit of time, a requeue or a dead machine, on any number of GPUs.
#SBATCH --job-name=glassformer
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=1
#SBATCH --gpus-per-node=8
#SBATCH --cpus-per-task=64
#SBATCH --time=24:00:00
#SBATCH --requeue
# Two minutes before the end: all ranks stop at one step, and save.
#SBATCH --signal=TERM@120
set -euo pipefail

first=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | sed -n 1p)
# Without it torchrun does not outlive a killed rank (torch 2.13).
export TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1
srun --kill-on-bad-exit=1 torchrun \
    --nnodes "$SLURM_NNODES" --nproc-per-node "${SLURM_GPUS_ON_NODE:-1}" --max-restarts 3 \
    --rdzv-id "$SLURM_JOB_ID" --rdzv-backend c10d --rdzv-endpoint "$first:29500" \
    -m glassformer train "$@" --resume
