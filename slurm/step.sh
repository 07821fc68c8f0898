# Sourced by the jobs of this folder: prepares a node, runs one `backfill` command as a step, and puts the job back into
# the queue where the command was interrupted (exit 75) and the job still runs.
#
# Needs the array BACKFILL, the command. BACKFILL_OFFLINE, BACKFILL_CACHE_ROOT, BACKFILL_SCRATCH_ROOT and
# BACKFILL_STAGGER_S may be set; docs/slurm.md says what for.

INTERRUPTED=75
me=${SLURM_ARRAY_JOB_ID:+${SLURM_ARRAY_JOB_ID}_$SLURM_ARRAY_TASK_ID}
me=${me:-$SLURM_JOB_ID}
asked=''
child=''

# Slurm sends USR1 to this shell alone (--signal=B:USR1), srun passes it on to every process of the step. TERM it sends to
# every process of the job itself: passed on, it would come twice, and twice means at once.
trap 'asked=1; [[ -n $child ]] && kill -USR1 "$child" 2>/dev/null' USR1
trap 'asked=1' TERM

prepare_node() {
    local root=${BACKFILL_CACHE_ROOT:-${SLURM_TMPDIR:-${TMPDIR:-/tmp}}}/backfill-job-$SLURM_JOB_ID
    own_folders=("$root" ${BACKFILL_SCRATCH_ROOT:+"$BACKFILL_SCRATCH_ROOT/backfill-job-$SLURM_JOB_ID"})
    mkdir -p "${own_folders[@]}"
    trap 'rm -rf "${own_folders[@]}"' EXIT
    # Tasks that share a compile cache overwrite each other's files; weights are only read, and stay shared.
    export VLLM_CACHE_ROOT=$root/vllm TORCHINDUCTOR_CACHE_DIR=$root/inductor TRITON_CACHE_DIR=$root/triton
    # Tasks on one node look for free ports from different numbers upwards.
    export VLLM_PORT=$((20000 + SLURM_JOB_ID % 2000 * 10))
    [[ ${BACKFILL_OFFLINE:-1} == 1 ]] && export HF_HUB_OFFLINE=1 TRANSFORMERS_OFFLINE=1
    [[ -z ${BACKFILL_SCRATCH_ROOT:-} ]] || export BACKFILL_SCRATCH=$BACKFILL_SCRATCH_ROOT/backfill-job-$SLURM_JOB_ID
}

await() { # the exit status of the child, over the interruptions of `wait` by signals
    local status=0
    wait "$child" || status=$?
    while kill -0 "$child" 2>/dev/null; do
        status=0
        wait "$child" || status=$?
    done
    child=''
    return "$status"
}

stagger() { # a task's start waits for its place among those that start together
    [[ ${1:-0} == 0 || ${SLURM_RESTART_COUNT:-0} != 0 ]] && return 0
    sleep "$1" &
    child=$!
    await || true
    [[ -z $asked ]] || put_back
}

put_back() { # into the queue, unless Slurm is ending the job already: then it decides, and the merge job looks again
    local tries
    for tries in 1 2 3; do
        scontrol show job -o "$me" | grep -q 'JobState=RUNNING' || break
        echo "interrupted: back into the queue ($me)"
        scontrol requeue "$me" && break
        sleep $((tries * 5))
    done
    exit "$INTERRUPTED"
}

step() { # arguments of backfill
    local status=0
    # From Slurm 22.05 on a step does not take over the job's --cpus-per-task.
    srun --ntasks=1 --nodes=1 ${SLURM_CPUS_PER_TASK:+--cpus-per-task="$SLURM_CPUS_PER_TASK"} "${BACKFILL[@]}" "$@" &
    child=$!
    await || status=$?
    ((status != INTERRUPTED)) || put_back
    exit "$status"
}
