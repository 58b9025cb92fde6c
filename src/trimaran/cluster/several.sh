# ------------------------------------------------------------ several trainings on the node of a job

# A job may run several independent trainings on one node. Such a job has a folder of its own, whose
# job/job.sh names the run directory of each training. The batch system runs that script, which
# starts it once more on the node (`job.sh task`). There `run_trainings` starts the job/job.sh of
# each run directory, as for a job with one training, but with these variables:
share=${TRIMARAN_SHARE-}           # number of this training; empty: the training has its own job
share_gpus=${TRIMARAN_SHARE_GPUS-} # the GPUs of this training, as the driver numbers or names them

# Exit status of a training that has written its checkpoint and continues when the job starts again.
unfinished=100

if [ -n "$share" ]; then
    # The batch system has started the job on this node. A training has one rank, whose processes
    # form a session, so that a signal reaches all of them, as a signal by Slurm does.
    # shellcheck disable=SC2034 # train and warn_ranks read it
    starter=setsid
    start_ranks() {
        how=$1
        shift
        "$how" setsid /bin/sh job/job.sh task "$@"
    }
    start_nodes() {
        how=$1
        shift
        "$how" /bin/sh job/job.sh "$@"
    }
fi

# wait_for_copies: wait until no other training of this job copies. Closing descriptor 9 releases
# the lock.
wait_for_copies() {
    trap 'exit 143' TERM INT HUP
    exec 9>>"$staged/.lock"
    flock 9
}

# gpu_variable: print the name of the variable by which a program sees only some GPUs.
gpu_variable() {
    case $gpu_device in
    /dev/kfd) printf ROCR_VISIBLE_DEVICES ;;
    *) printf CUDA_VISIBLE_DEVICES ;;
    esac
}

# numbers LIST: print the numbers of a list such as 0-3,8, one per line.
numbers() {
    printf '%s\n' "$1" | tr , '\n' | while IFS=- read -r from to; do seq "$from" "${to:-$from}"; done
}

# threads: print a line PROCESSOR CORE CPU for each CPU (hardware thread) that this process may use,
# sorted, so that the threads of a core follow each other.
threads() {
    for cpu in $(numbers "$(sed -nE 's/^Cpus_allowed_list:[[:blank:]]*//p' /proc/self/status)"); do
        place=/sys/devices/system/cpu/cpu$cpu/topology
        printf '%s %s %s\n' "$(cat "$place/physical_package_id" 2>/dev/null || printf 0)" \
            "$(cat "$place/core_id" 2>/dev/null || printf '%s' "$cpu")" "$cpu"
    done | sort -n -k 1,1 -k 2,2 -k 3,3
}

# divide COUNT: read the lines of `threads`, and print COUNT lines with the CPUs of equal shares,
# such as 0,4. No core is in two shares, and left-over cores are in no share. If there are fewer
# cores than shares, no CPU is in two shares. If there are fewer CPUs than shares, print nothing.
divide() {
    lines=$(cat)
    units=$(printf '%s\n' "$lines" | cut -d ' ' -f 1,2 | uniq | wc -l)
    fields=1,2
    if [ "$units" -lt "$1" ]; then
        units=$(printf '%s\n' "$lines" | wc -l)
        fields=3
    fi
    each=$((units / $1))
    if [ "$each" -eq 0 ]; then return; fi
    printf '%s\n' "$lines" | {
        unit=-1 before_that='' list=
        while read -r package core cpu; do
            this="$package $core"
            if [ "$fields" = 3 ]; then this=$cpu; fi
            if [ "$this" != "$before_that" ]; then
                unit=$((unit + 1)) before_that=$this
                if [ "$unit" -gt 0 ] && [ $((unit % each)) -eq 0 ]; then
                    printf '%s\n' "$list"
                    list=
                fi
                if [ "$unit" -ge $((each * $1)) ]; then exit; fi
            fi
            list=$list${list:+,}$cpu
        done
        printf '%s\n' "$list"
    }
}

# take COUNT: set `taken` to the first COUNT entries of the list `free`, and remove them from it.
take() {
    taken=
    count=$1
    while [ "$count" -gt 0 ]; do
        taken=$taken${taken:+,}${free%%,*}
        free=${free#*,}
        count=$((count - 1))
    done
}

# find_gpus: set `free` to a list of the GPUs of this job, each followed by a comma. The batch system
# may have named them; otherwise they are numbered.
find_gpus() {
    gpus=0 free=
    each_training count_gpus
    if [ "$gpus" -eq 0 ]; then return; fi
    free=${CUDA_VISIBLE_DEVICES:-${ROCR_VISIBLE_DEVICES:-$(seq -s , 0 $((gpus - 1)))}},
    found=$(printf '%s' "$free" | tr -cd , | wc -c)
    if [ "$found" -lt "$gpus" ]; then fail 69 "$name: the job has $found GPUs, but its trainings need $gpus"; fi
}

# count_gpus COUNT DIRECTORY: add the GPUs of a training to `gpus`.
count_gpus() { gpus=$((gpus + $1)); }

# over DIRECTORY: succeed if the training in DIRECTORY has ended in an earlier start of this job, so
# that it is not started again. Sets `code` to its exit status.
over() {
    last=
    for file in "$1"/job/link-????.json; do if [ -e "$file" ]; then last=$file; fi; done
    code=$(sed -nE 's/.*"exit_status": ([0-9]+).*/\1/p' "${last%.json}.end.json" 2>/dev/null) || :
    case $code in
    '' | 75 | 143) return 1 ;; # not started or killed; stopped with a checkpoint; ended by SIGTERM
    esac
}

# start_training GPUS DIRECTORY: start a training with the next share of the CPUs and the GPUs.
start_training() {
    slot=$((slot + 1))
    cpus=$(printf '%s\n' "$shares" | sed -n "${slot}p")
    take "$1"
    if over "$2"; then
        settle "$code"
        return
    fi
    set -- "$2" "$taken"
    (
        export TRIMARAN_SHARE="$slot" TRIMARAN_SHARE_GPUS="$2"
        if [ -n "$cpus" ]; then
            exec taskset -c "$cpus" /bin/sh "$1/job/job.sh"
        fi
        exec /bin/sh "$1/job/job.sh"
    ) &
    processes="$processes $!"
}

# settle CODE: update `result`, the exit status of all trainings, by the status of one training. It
# is `unfinished` if a training is unfinished, otherwise the first status that is not 0.
settle() {
    if [ "$1" -eq "$unfinished" ] || [ "$result" -eq 0 ]; then result=$1; fi
}

# tell_trainings SIGNAL: pass a signal on to the script of each training.
tell_trainings() {
    for one in $processes; do kill -s "$1" "$one" 2>/dev/null || :; done
}

# run_trainings: run all trainings on this node, each with its share, and end when all have ended.
run_trainings() {
    name=$(uname -n)
    processes='' slot=0 result=0
    trap 'signalled=yes; tell_trainings URG' USR1 URG
    trap 'signalled=yes; tell_trainings TERM' TERM INT HUP
    printf '%s' "${SLURM_STEP_ID-}" | put job/.step
    tidy
    if [ -n "$staged" ]; then hold; fi
    shares=$(threads | divide "$trainings")
    if [ -z "$shares" ]; then
        printf 'job.sh: warning: %s: this job may use fewer CPUs than it has trainings: they share all of them\n' "$name"
    fi
    find_gpus
    each_training start_training
    for one in $processes; do
        await "$one"
        settle "$code"
    done
    if [ -n "$staged" ]; then rm -rf -- "$staged"; fi
    drop_caches
    exit "$result"
}

# lead: run the trainings of this job, and queue the job again while one of them is unfinished. The
# process that the batch system starts calls this function, and starts `run_trainings` on the node.
lead() {
    if ! mine job || [ -L log.txt ]; then fail 73 "$out: job or log.txt is a link: remove it"; fi
    if ! submitted; then
        printf 'job.sh: %s: submit the recipes again\n' "$changed" | tee -a log.txt >&2
        exit 65
    fi
    noted || :
    if [ "$starter" = mpirun ]; then load_modules || fail 69 "$why"; fi
    TRIMARAN_FIRST=$(uname -n) TRIMARAN_PORT=0 # passed on by mpirun; each training sets its own
    export TRIMARAN_FIRST TRIMARAN_PORT
    set_timer
    trap leave EXIT
    rm -f job/.step
    if [ -e log.txt ]; then number=$(grep -c '^job\.sh: job .*, link ' log.txt) || :; fi
    number=$((${number:-0} + 1))
    printf 'job.sh: job %s, link %s: %s\n' "$job" "$number" "$(start_ranks shell_line)" >>log.txt
    start_ranks exec >>log.txt 2>&1 &
    child=$! ranks=$!
    if [ -n "$warned" ]; then tell; fi
    if [ -n "$told" ]; then stop; fi
    await "$child"
    trap '' USR1 TERM INT HUP
    if [ -n "$teller" ]; then kill "$teller" 2>/dev/null || :; fi
    code=$(cause "$code")
    if [ -z "$told" ] && preempted "$code"; then code=$unfinished warned=preempted; fi
    if [ "$code" -eq "$unfinished" ] && [ -z "$told" ] && ! grep -qxF -- "$job" job/cancelled 2>/dev/null; then
        printf 'job.sh: not all trainings have ended: the job begins again\n' >>log.txt
        leave # while the job still has its node
        if again; then
            each_training note_training
            exit
        fi
        printf 'job.sh: %s does not take the job once more: trimaran resume RUN goes on with a training\n' "$(title)" >>log.txt
        code=75
    fi
    why=
    if [ "$code" -ne 0 ]; then why=$(said | sed -nE '2,$s/^job\.sh: //p' | grep -v '^warning: ' | head -n 1) || :; fi
    printf 'job.sh: exit status %s%s\n' "$code" "${why:+: $why}" | tee -a log.txt >&2
    exit "$code"
}

# note_training GPUS DIRECTORY: add the number of the next job to the list of a training.
note_training() { (cd -- "$2" && mine job && note_own "$(tail -n 1 "$out/job/ids")") || :; }

# note_own NUMBER: add the number of a job to the list in job/ids, if it is not there.
note_own() { grep -qxF -- "$1" job/ids 2>/dev/null || note "$1"; }

# --------------------------------------------------------------- a run that starts from another run

# check_initial: end the job if the checkpoint that this run starts from is missing, or differs from
# the file at the first start. Sets `started_from` to the JSON entry of this link with its SHA-256.
check_initial() {
    if ! [ -r "$initial" ] || ! sum=$(sha256sum <"$initial"); then
        stopped 66 "the checkpoint $initial is not there: the run before has not completed"
    fi
    sum=${sum%% *}
    first=$(sed -nE '1s/.*"initial": "([0-9a-f]{64})".*/\1/p' job/link-0001.json 2>/dev/null) || :
    if [ -n "$first" ] && [ "$first" != "$sum" ]; then
        stopped 65 "the checkpoint $initial is another file than the one that this run started from"
    fi
    # shellcheck disable=SC2034 # look writes it
    started_from=", \"initial\": \"$sum\""
}

# follow: queue the run that starts from a checkpoint of this run, unless it is queued already or
# the user has cancelled this job. A dependency of the batch system cannot queue it, because this
# run may take several jobs.
follow() {
    if [ -z "$next_run" ] || grep -qxF -- "$job" job/cancelled 2>/dev/null; then return; fi
    if ! [ -f "$next_initial" ]; then
        why="the run before has completed without the checkpoint $next_initial"
    else
        why="$(title) does not take this job from the node $(uname -n): trimaran resume queues it"
    fi
    (
        if ! cd -- "$next_run" || ! mine job; then exit; fi
        if [ -s job/ids ]; then exit; fi
        if [ -f "$next_initial" ] && queue_next; then
            rm -f job/refused.json
            exit
        fi
        job=-
        refuse 66 "$why"
    ) >>log.txt 2>&1 || :
}

# queue_next: queue the job of the run in the working directory.
queue_next() {
    case $scheduler in
    slurm) queue sbatch --parsable --chdir="$next_run" job/job.sh ;;
    pbs) queue qsub job/job.sh ;;
    lsf) queue bsub <job/job.sh ;;
    esac
}

# ------------------------------------------------- functions that jobs share with run.sh of a bundle

