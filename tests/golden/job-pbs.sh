#!/bin/sh
# Runs resnet-imagenet/cpu-2node-smoke as a job, and goes on by itself where a time limit ends it.
# Needs PBS, Apptainer, sh and coreutils; touches no network. Written by Trimaran 0.1.0.
#PBS -N resnet-imagenet-cpu-2node-smoke-c826c0ac5a
#PBS -l select=2:ncpus=1:mpiprocs=1:cpu_type=skl
#PBS -l place=scatter
#PBS -l walltime=00:10:00
#PBS -q workq
#PBS -A project-1
#PBS -j oe
#PBS -o job/
#PBS -r y
set -eu
LC_ALL=C
# The batch system's own commands may be where only the login node's PATH says.
PATH=${PATH:-/usr/local/bin:/usr/bin:/bin}:/opt/batch/bin
export LC_ALL PATH
unset CDPATH

out=/example/runs/1
image=/example/image.sif
data1=/example/data
nodes=2

# fail CODE LINE...
fail() {
    code=$1
    shift
    printf 'job.sh: %s\n' "$@" >&2
    exit "$code"
}

# replace TEXT OLD NEW: TEXT with NEW in place of each OLD.
replace() {
    rest=$1
    made=
    while :; do
        case $rest in
        *"$2"*) made=$made${rest%%"$2"*}$3 ;;
        *) break ;;
        esac
        rest=${rest#*"$2"}
    done
    printf '%s' "$made$rest"
}

# json TEXT: as a JSON string; control characters, which no path here has, are left out.
json() {
    text=$(printf '%s' "$1" | tr -d '\000-\037\177')
    text=$(replace "$text" "\\" "\\\\")
    printf '"%s"' "$(replace "$text" '"' "\\\"")"
}

# json_list WORD...
json_list() {
    comma=
    printf '['
    for word; do
        printf '%s%s' "$comma" "$(json "$word")"
        comma=', '
    done
    printf ']'
}

# json_object NAME=VALUE...
json_object() {
    comma=
    printf '{'
    for word; do
        printf '%s%s: %s' "$comma" "$(json "${word%%=*}")" "$(json "${word#*=}")"
        comma=', '
    done
    printf '}'
}

# shell_line WORD...: one line to paste into a shell.
shell_line() {
    space=
    for word; do
        case $word in
        *[!\ -~]*) word=$(seen "$word") ;;
        '' | *[!A-Za-z0-9_@%+=:,./-]*) word="'$(replace "$word" "'" "'\\''")'" ;;
        esac
        printf '%s%s' "$space" "$word"
        space=' '
    done
}

# What is not seen, or turns the text after it round, in UTF-8: among others U+200B to U+200F, U+2028
# to U+202E, U+2060 to U+206F.
unseen=$(printf '\302[\200-\237\255]|\330\234|\341\240\216|\342\200[\213-\217\250-\256]|\342\201[\240-\257]|\357\273\277|\363\240')

# seen WORD: quoted; where it has such a character, with all that is not ASCII as printf makes it.
seen() {
    if ! printf '%s\n' "$1" | grep -qE "$unseen"; then
        printf "'%s'" "$(replace "$1" "'" "'\\''")"
        return
    fi
    made="'" bytes=
    for byte in $(printf '%s' "$1" | od -An -v -to1) end; do
        case $byte in
        [23]*) bytes="$bytes\\$byte" && continue ;;
        esac
        if [ -n "$bytes" ]; then made="$made'\"\$(printf '$bytes')\"'" bytes=; fi
        case $byte in
        end) ;;
        047) made="$made'\\''" ;;
        *) made="$made$(printf %b "\\0$byte")" ;;
        esac
    done
    printf "%s'" "$made"
}

# absolute PATH
absolute() {
    path=$1
    case $path in
    /*) ;;
    *) path=$PWD/$path ;;
    esac
    case $path in
    *[[:cntrl:]]*) fail 64 "a path with control characters: $path" ;;
    esac
    printf '%s' "$path"
}

# Path of Apptainer; some sites know it by its older name.
find_engine() {
    other=
    for name in apptainer singularity; do
        path=$(command -v "$name") || continue
        version=$("$path" --version 2>/dev/null) || continue
        case $version in
        apptainer*)
            absolute "$path"
            return
            ;;
        esac
        other=" ($path is $version)"
    done
    fail 69 "no Apptainer on PATH$other" "load your site's module, or ask for it to be installed"
}

# Why containers cannot start here, as far as the kernel tells.
obstacle() {
    for setting in user/max_user_namespaces=0 kernel/unprivileged_userns_clone=0 \
        kernel/apparmor_restrict_unprivileged_userns=1; do
        file=/proc/sys/${setting%=*}
        if [ -r "$file" ] && [ "$(cat "$file")" = "${setting#*=}" ]; then
            printf 'user namespaces are refused here (%s is %s): ' "$file" "${setting#*=}"
            printf 'an administrator allows them, or installs Apptainer with setuid\n'
            return
        fi
    done
    printf 'user namespaces look allowed; the reason is in the lines above\n'
}

# Facts of this machine, as JSON values.
host_facts() {
    hostname=$(json "$(uname -n)")
    # shellcheck source=/dev/null
    os=$(json "$(if [ -r /etc/os-release ]; then . /etc/os-release; fi; printf '%s' "${PRETTY_NAME:-$(uname -s)}")")
    kernel=$(json "$(uname -r)")
    architecture=$(json "$(uname -m)")
    cores=$(env -u OMP_NUM_THREADS -u OMP_THREAD_LIMIT nproc)
    model=$(uname -p)
    flags=
    while IFS=: read -r key value; do
        case $key in
        'model name'*) model=${value# } ;;
        flags* | Features*) flags=$value ;;
        '') break ;; # the next core
        esac
    done </proc/cpuinfo
    processor=$(json "$model")
    set --
    for flag in avx avx2 f16c fma avx_vnni avx512f avx512bw avx512dq avx512vl avx512_bf16 avx512_fp16 avx512_vnni amx_tile amx_bf16 amx_fp16 amx_int8 asimd asimddp asimdhp bf16 i8mm sve sve2 sme; do
        case " $flags " in
        *" $flag "*) set -- "$@" "$flag" ;;
        esac
    done
    cpu_flags=$(json_list "$@")
    while read -r key value _; do
        if [ "$key" = MemTotal: ]; then tenths=$(((value * 10 + 524288) / 1048576)); fi
    done </proc/meminfo
    memory_gib=$((tenths / 10)).$((tenths % 10))
    set --
    if command -v nvidia-smi >/dev/null && gpus=$(nvidia-smi --query-gpu=name --format=csv,noheader); then
        while IFS= read -r gpu; do set -- "$@" "$gpu"; done <<END
$gpus
END
    fi
    for node in /sys/class/kfd/kfd/topology/nodes/*/properties; do # AMD's driver; a processor has no compute units
        if [ -r "$node" ] && amd_gpu "$node"; then set -- "$@" "$gpu"; fi
    done
    accelerators=$(json_list "$@")
}

# amd_gpu PROPERTIES: whether a node of the topology is a GPU; sets gpu to its name.
amd_gpu() {
    vendor=0 units=0 version=0 minor=
    while read -r key value; do
        case $key in
        vendor_id) vendor=$value ;;
        simd_count) units=$value ;;
        gfx_target_version) version=$value ;;
        drm_render_minor) minor=$value ;;
        esac
    done <"$1"
    [ "$vendor" = 4098 ] && [ "$units" -gt 0 ] || return 1
    product=
    if [ -r "/sys/class/drm/renderD$minor/device/product_name" ]; then
        read -r product <"/sys/class/drm/renderD$minor/device/product_name" || :
    fi
    product=${product#AMD }
    gpu="AMD ${product:-GPU} (gfx$((version / 10000))$(printf '%x%x' $((version / 100 % 100)) $((version % 100))))"
}

# hashes: the SHA-256 of what the app has left here, as a JSON object.
hashes() {
    set --
    for file in metrics.jsonl result.json; do
        if [ -f "$file" ] && ! [ -L "$file" ]; then
            sum=$(sha256sum <"$file")
            set -- "$@" "$file=${sum%% *}"
        fi
    done
    json_object "$@"
}

now() { date -u +%Y-%m-%dT%H:%M:%SZ; }

# machine_flags: what the engine has to be told on this machine; sets userns.
machine_flags() {
    # As root that lacks this capability, Apptainer would set limits that it may not set.
    userns=
    while read -r key value; do
        if [ "$key" = CapEff: ] && [ "$(id -u)" -eq 0 ] &&
            [ $((0x$value >> 24 & 1)) -eq 0 ]; then
            userns=yes
        fi
    done </proc/self/status
    # `env` would take a path with an equals sign for a variable: its folder is in PATH.
    case $engine in *=*) engine=${engine##*/} ;; esac
}

# active JOB: whether a job runs.
active() { qstat -f "$1" 2>/dev/null | grep -q 'job_state = R'; }

# again: queue another job after this one, which only an operator could queue once more.
again() { queue qsub -W depend="afterany:$job" job/job.sh; }

# cause CODE: mpirun and jsrun have the status of the task that was the first to end badly.
cause() { printf '%s' "$1"; }

# preempted CODE: a job that is killed is run again by itself (rerunnable).
preempted() { return 1; }

# explain: nothing more is known of an end.
explain() { :; }

# meeting: nobody says more than PMIX_SERVER_TMPDIR.
meeting() { :; }

# The number of the job, of its task, and of this node's task of all.
job=${PBS_JOBID:?not in a job of PBS: submit this script, or use trimaran submit}
rank=${OMPI_COMM_WORLD_RANK:-${SLURM_PROCID:-${PMIX_RANK:-0}}}

# The files of the run directory. Others may write there, too: no link that lies there is followed.

# foreign: name something here by which a file would be written or read that is none of this run's.
foreign() {
    {
        set +e # nothing may be there
        find job \( -type d ! -path job \) -o \( ! -type d ! -type f \)
        find job/ids log.txt \( ! -type f -o -links +1 \)
        find . ! -type d ! -type f ! -type l
        # shellcheck disable=SC2016 # the inner shell has these variables
        find . -type l -exec sh -c 'for link; do
            case $(readlink -f -- "$link") in "$0"/*) ;; *) printf "%s\n" "$link" ;; esac
        done' "$(pwd -P)" {} +
    } 2>/dev/null | head -n 1
}

# mine FOLDER: whether it is a folder of this user, and no link to one.
mine() { [ -d "$1" ] && ! [ -L "$1" ] && [ "$(stat -c %u -- "$1")" = "$(id -u)" ]; }

# own FOLDER: make a folder that no other user can enter; one of another user is not taken.
own() { { [ -d "$1" ] || mkdir -m 700 -- "$1"; } && mine "$1"; }

# put FILE: FILE gets what is read here, whole at every moment. The part has a name that nobody can
# know, and a link that has the name of FILE is replaced.
put() {
    fresh=$(mktemp job/.part-XXXXXX) || return 1
    if cat >"$fresh" && chmod +rw "$fresh" && mv -fT -- "$fresh" "$1"; then return; fi
    rm -f -- "$fresh"
    return 1
}

# submitted: whether job/job.sh is the script that was submitted; sets script to the SHA-256 of that.
submitted() {
    script=$(sed -nE 's/^ *"script_sha256": "([0-9a-f]{64})".*/\1/p' run.json)
    [ -n "$script" ] && right job/job.sh "$script"
}

# check_script: refuse another script: this one is the batch system's copy, tasks run job/job.sh.
check_script() {
    if ! submitted; then
        stopped 65 "job/job.sh is another script than the one that was submitted: run the recipe again"
    fi
}

# ready: engine, image and data on this node.
ready() {
    engine=/example/bin/apptainer
    if ! [ -x "$engine" ]; then engine=$(find_engine); fi
    engine_folder=$(dirname -- "$engine")
    machine_flags
}

# right PATH DIGEST: whether a file or a data set is what was submitted; of one without a digest,
# whether it is there.
right() {
    file=$1
    if [ -d "$file" ]; then file=$file/dataset.json; fi
    if [ -z "$2" ]; then
        [ -r "$file" ]
    else
        sum=$(sha256sum <"$file") && [ "${sum%% *}" = "$2" ]
    fi
}

# check_data: whether the data, wherever they are now, are those that were submitted.
check_data() {
    :
    if ! right "$data1" '4444444444444444444444444444444444444444444444444444444444444444'; then
        fail 65 "$name: other data than those submitted: $data1"
    fi
}

# any PATH...: whether one of them is there.
any() {
    for one; do if [ -e "$one" ]; then return; fi; done
    return 1
}

# check_fabric: say where the ranks would take sockets in silence, as no device is there to be shown.
check_fabric() {
    if any /sys/class/infiniband/* && ! any /dev/infiniband /dev/hfi1*; then
        printf 'job.sh: warning: %s: /sys/class/infiniband lists a network card, but there is no /dev/infiniband /dev/hfi1*: the ranks may take sockets; the site file can name its devices\n' "$name"
    fi
    if any /sys/class/cxi/* && ! any /dev/cxi*; then
        printf 'job.sh: warning: %s: /sys/class/cxi lists a network card, but there is no /dev/cxi*: the ranks may take sockets; the site file can name its devices\n' "$name"
    fi
}

# node LINK SCRIPT: what has to be right on this node before ranks are started; tells of the machine.
# SCRIPT is the SHA-256 of the script that was submitted.
node() {
    name=$(uname -n)
    if ! right job/job.sh "$2"; then
        fail 65 "$name: job/job.sh is another script than the one that was submitted"
    fi
    if ! [ -r "$image" ]; then fail 66 "$name: the image $image is not there"; fi
    check_data
    ready
    if ! right "$image" 2222222222222222222222222222222222222222222222222222222222222222; then
        fail 65 "$name: $image has changed since it was submitted: sha256:${sum%% *}"
    fi
    if ! try=$(mktemp job/.node-XXXXXX) || ! rm -f -- "$try"; then
        fail 73 "$name: cannot write into the run directory"
    fi
    if ! env -i "PATH=$engine_folder:$PATH" "$engine" --quiet exec --containall --no-home --cleanenv \
        ${userns:+--userns} --pwd / "$image" true >&2; then
        fail 69 "$name: Apptainer cannot start a container here" "$(obstacle)"
    fi
    check_fabric
    host_facts
    put "$1.$rank" <<END
{"hostname": $hostname, "os": $os, "kernel": $kernel, "architecture": $architecture, "processor": $processor, "cores": $cores, "memory_gib": $memory_gib, "cpu_flags": $cpu_flags, "accelerators": $accelerators, "python": null}
END
}

# show FOLDER: let the container see it, too; adds to mounts.
show() {
    place=$(replace "$1" '"' '""')
    mounts="${mounts:+$mounts
}type=bind,\"source=$place\",\"destination=$place\""
}

# task WORD...: one rank. What its launcher tells it reaches the container, and nothing else does.
task() {
    ready
    more=$#
    if [ "$rank" -eq 0 ]; then printf '%s' "${SLURM_STEP_ID-}" | put job/.step; fi
    for name in $(env | sed -nE 's/^((SLURM|PMI|PMIX|OMPI|JSM)_[A-Za-z0-9_]*)=.*/\1/p'); do
        eval "value=\${$name-}"
        set -- "$@" "APPTAINERENV_$name=$value"
    done
    mounts=
    # --containall shows no device of the host but GPUs: without these, NCCL and UCX take sockets.
    for device in /dev/infiniband /dev/hfi1* /dev/cxi*; do
        if [ -e "$device" ]; then show "$device"; fi
    done
    # Where the ranks of a node meet each other and who has started them.
    for place in "${PMIX_SERVER_TMPDIR-}" "$(meeting)"; do
        if [ -d "$place" ]; then show "$place"; fi
    done
    if [ -n "${HOME+set}" ]; then set -- "$@" "HOME=$HOME"; fi
    if [ -n "${LANG+set}" ]; then set -- "$@" "LANG=$LANG"; fi
    if [ -n "${TMPDIR+set}" ]; then set -- "$@" "TMPDIR=$TMPDIR"; fi
    if [ -n "${XDG_RUNTIME_DIR+set}" ]; then set -- "$@" "XDG_RUNTIME_DIR=$XDG_RUNTIME_DIR"; fi
    if [ -n "${SOURCE_DATE_EPOCH+set}" ]; then set -- "$@" "SOURCE_DATE_EPOCH=$SOURCE_DATE_EPOCH"; fi
    if [ -n "$mounts" ]; then set -- "$@" "APPTAINER_MOUNT=$mounts"; fi
    set -- "$@" \
        APPTAINERENV_MASTER_ADDR="$TRIMARAN_FIRST" APPTAINERENV_MASTER_PORT="$TRIMARAN_PORT" \
        PATH="$engine_folder":/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin \
        APPTAINERENV_OMP_NUM_THREADS=1 \
        "$engine" \
        --quiet \
        run \
        --containall \
        --no-home \
        --cleanenv \
        --no-eval \
        ${userns:+--userns} \
        --pwd \
        /out \
        --mount \
        type=bind,source=/example/data,destination=/data,ro \
        --mount \
        type=bind,source=/example/runs/1,destination=/out \
        "$image" \
        train \
        --data=/data \
        --out=/out \
        --model=resnet20 \
        --strategy=ddp \
        --steps=120 \
        --batch-size-per-rank=64 \
        --base-lr=0.1 \
        --base-batch=64 \
        --warmup-steps=20 \
        --schedule=cosine \
        --momentum=0.9 \
        --weight-decay=0.0001 \
        --label-smoothing=0.0 \
        --precision=auto \
        --threads=1 \
        --seed=17 \
        '--note=a b'
    # The words that were given come last: those of a link that goes on.
    while [ "$more" -gt 0 ]; do
        word=$1
        shift
        set -- "$@" "$word"
        more=$((more - 1))
    done
    exec env -i "$@"
}

# newest: step of the newest checkpoint; 0 without one.
newest() {
    step=0
    for file in checkpoints/step-*.npz; do
        if [ -f "$file" ]; then
            step=${file##*-}
            step=${step%.npz}
            step=${step#"${step%%[!0]*}"}
        fi
    done
    printf '%s' "${step:-0}"
}

# end CODE REASON: write down how this link ended, whole at every moment.
end() {
    put "$link.end.json" <<END
{"ended": "$(now)", "exit_status": $1, "step": $(newest), "reason": $(json "$2"), "files": $(hashes)}
END
    printf 'job.sh: exit status %s%s\n' "$1" "${2:+: $2}" | tee -a log.txt >&2
}

# refuse CODE REASON: write down why no rank was started; what starts some removes it.
refuse() {
    put job/refused.json <<END
{"job": $(json "$job"), "exit_status": $1, "reason": $(json "$2")}
END
}

# stopped CODE LINE...: end with a reason before any rank was started.
stopped() {
    code=$1
    shift
    printf 'job.sh: %s\n' "$@" >>log.txt
    refuse "$code" "$1" || :
    fail "$code" "$@"
}

# begin: a new link of the chain; sets link, number, and the step that it begins with.
begin() {
    number=0
    for file in job/link-????.json; do if [ -e "$file" ]; then number=$((number + 1)); fi; done
    if [ "$number" -gt 0 ]; then
        link=job/link-$(printf %04d "$number")
        other=$(sed -nE '1s/.*"job": "([^"]+)".*/\1/p' "$link.json")
        if ! [ -e "$link.end.json" ] && [ -n "$other" ] && [ "$other" != "$job" ] && active "$other"; then
            stopped 73 "the job $other runs in $out: this one ends"
        fi
    fi
    number=$((number + 1))
    link=job/link-$(printf %04d "$number")
    if ! (set -C && : >"$link.json"); then stopped 73 "another job began in $out"; fi
    before=$(newest)
    began=$(now)
}

# stalled: whether the link before this one has made no progress, either.
stalled() {
    [ "$number" -gt 1 ] || return 1
    one=job/link-$(printf %04d $((number - 1))).json
    [ "$(sed -nE '1s/.*"step": ([0-9]+).*/\1/p' "$one")" = "$(newest)" ]
}

# futile: whether this job has begun twice from the step that it is still at. A batch system that ends
# and queues it by itself knows nothing of checkpoints.
futile() {
    same=0
    for file in job/link-????.json; do
        one=$(sed -nE '1s/.*"job": "([^"]+)".*"step": ([0-9]+).*/\1 \2/p' "$file" 2>/dev/null)
        if [ "$one" = "$job $(newest)" ]; then same=$((same + 1)); else same=0; fi
    done
    [ "$same" -ge 2 ]
}

# note NUMBER: add the number of a job to those of this run.
note() { { if [ -f job/ids ]; then cat job/ids; fi; printf '%s\n' "$1"; } | put job/ids; }

# queue COMMAND WORD...: have another job queued, and write down its number. It is found by its form,
# as a site may have the command say more; a job without one is found by its name.
queue() {
    now | put job/queueing || :
    answer=$("$@") || return 1
    for form in '([0-9]+(\[[0-9]*\])?\.[A-Za-z][A-Za-z0-9_.-]*)' '([0-9]+(\[[0-9]*\])?(\.[A-Za-z][A-Za-z0-9_.-]*)?)'; do
        next=$(printf '%s\n' "$answer" | tr -d '\r' | sed -nE "s/^[[:blank:]]*${form}[[:blank:]]*\$/\\1/p" | sort -u)
        if [ -n "$next" ]; then break; fi
    done
    case $next in
    '' | *[!A-Za-z0-9_.[\]-]*) printf 'job.sh: another job is queued; %s names no number: %s\n' "$1" "$answer" >>log.txt ;;
    *) note "$next" && rm -f job/queueing ;;
    esac
}

# noted: write down the number of this job, where whoever queued it was killed before doing so.
noted() {
    if [ -e job/queueing ]; then
        grep -qxF -- "$job" job/ids 2>/dev/null || note "$job"
        rm -f job/queueing
    fi
}

# listen: hear what the batch system says from now on.
listen() {
    trap 'signalled=yes; warned=yes; tell' USR1
    trap 'signalled=yes; told=yes; stop' TERM INT HUP
}

# tell: have the ranks write a checkpoint and stop, again and again until they have ended: one that
# is only being started does not listen yet. What is announced before is told once they are.
tell() {
    if [ -z "$ranks" ] || [ -n "$teller" ]; then return; fi
    (
        pause=1
        while kill -0 "$ranks" 2>/dev/null; do
            # Of all signals SIGURG ends no process: what is signalled beside the app are torchrun,
            # and the file system of the image, without which the app could write no checkpoint.
            kill -URG "$child" || :
            sleep "$pause"
            if [ "$pause" -lt 16 ]; then pause=$((pause * 2)); fi
        done
    ) >>log.txt 2>&1 &
    teller=$!
}

# stop: end what this script waits for.
stop() { if [ -n "$child" ]; then kill -TERM "$child" 2>/dev/null || :; fi; }

# await PROCESS: sets code to its exit status. A signal ends the waiting, not yet the process, which
# may write its checkpoint.
await() {
    code=
    while :; do
        signalled=
        found=0
        wait "$1" || found=$?
        # The shell knows no more of a process (127) whose end it has told together with a signal.
        if [ "$found" -eq 127 ] && [ -n "$code" ]; then break; fi
        code=$found
        if [ -z "$signalled" ] || [ "$code" -le 128 ]; then break; fi
    done
}

# in_time: end this link where its end is announced before its ranks are started.
in_time() {
    if [ -n "$told" ]; then
        end 75 "it was told to end (SIGTERM) before a rank was started"
        exit 75
    fi
    if [ -n "$warned" ]; then
        end 75 "the time limit came before a rank was started; ask for more time, then trimaran resume"
        exit 75
    fi
}

# look: check every node, and write down on which this link is.
look() {
    tasks=$nodes
    length=$(wc -c 2>/dev/null <log.txt) || length=0
    mpirun -n "$nodes" --map-by ppr:1:node --bind-to none /bin/sh job/job.sh node "$link" "$script" >>log.txt 2>&1 &
    child=$!
    if [ -n "$told" ]; then stop; fi
    await "$child"
    child=
    if [ "$code" -ne 0 ]; then
        tail -n 20 log.txt >&2
        rm -f -- "$link.json" "$link".[0-9]*
        why=$(tail -c +$((length + 1)) log.txt | sed -nE 's/^job\.sh: //p' | head -n 1)
        if [ -n "$told" ]; then why="it was told to end (SIGTERM) before a rank was started"; fi
        refuse "$code" "${why:-$(tail -n 1 log.txt)}" || :
        exit "$code"
    fi
    # The node of rank 0, which need not be the one that this script runs on.
    TRIMARAN_FIRST=$(sed -nE 's/.*"hostname": "([^"]+)".*/\1/p' "$link.0")
    export TRIMARAN_FIRST
    hosts=
    one=0
    while [ "$one" -lt "$nodes" ]; do
        hosts="$hosts${hosts:+, }$(cat "$link.$one")"
        rm -f -- "$link.$one"
        one=$((one + 1))
    done
    put "$link.json" <<END
{"number": $number, "job": $(json "$job"), "started": "$began", "step": $before, "hosts": [$hosts]}
END
    rm -f job/refused.json
}

# train: start the ranks and wait for them; sets code to their exit status.
train() {
    if ! submitted; then
        end 65 "job/job.sh is another script than the one that was submitted"
        exit 65
    fi
    rm -f job/.step # of the link before
    tasks=$((nodes * 1))
    set --
    if [ "$number" -gt 1 ]; then
        set -- --resume=auto
    fi
    set -- mpirun -n "$tasks" --map-by ppr:1:node --bind-to none -x TRIMARAN_FIRST -x TRIMARAN_PORT --mca ess_base_forward_signals SIGURG /bin/sh job/job.sh task "$@"
    printf 'job.sh: job %s, link %s: %s\n' "$job" "$number" "$(shell_line "$@")" >>log.txt
    "$@" >>log.txt 2>&1 &
    child=$! ranks=$!
    if [ -n "$warned" ]; then tell; fi # it came while they were started
    if [ -n "$told" ]; then stop; fi
    await "$child"
    trap '' USR1 TERM INT HUP
    if [ -n "$teller" ]; then kill "$teller" 2>/dev/null || :; fi
    child='' ranks='' teller=''
    # What starts ranks has statuses of its own where some were stopped.
    if [ "$code" -ne 0 ] && [ -n "$warned$told" ] && [ "$(newest)" -gt "$before" ]; then code=75; fi
    code=$(cause "$code")
    if [ -z "$told" ] && preempted "$code"; then code=75 warned=preempted; fi
}

# leave: end what goes on beside the ranks, and remove what is nowhere to stay.
leave() {
    kill "$timer" 2>/dev/null || :
    trap - EXIT
}

cd -- "$out" || fail 73 "the run directory $out is gone"
case ${1-} in
node)
    node "$2" "$3"
    exit
    ;;
task)
    shift
    task "$@"
    ;;
esac

warned='' told='' child='' ranks='' teller=''
listen
other=$(foreign)
if [ -n "$other" ]; then
    why="$other is no plain file of this run alone: remove it, then trimaran resume"
    if ! [ -L job ]; then refuse 73 "$why" || :; fi
    fail 73 "$why"
fi
check_script
noted || :
if futile; then
    stopped 75 "no progress: the job has begun twice from step $(newest), and been ended before the next checkpoint; trimaran resume goes on from there"
fi
begin
TRIMARAN_PORT=$(printf '%s' "$job" | tr -cd 0-9)
TRIMARAN_PORT=$((20000 + 1$TRIMARAN_PORT % 10000))
export TRIMARAN_PORT
# PBS says nothing before it ends a job.
(sleep 540 & trap 'kill $!; exit' TERM; wait $! && kill -USR1 $$) >/dev/null 2>&1 &
timer=$!
trap leave EXIT
look
in_time
train
if [ "$code" -ne 75 ] || [ -z "$warned" ]; then
    why=$(explain)
    if [ -z "$why" ] && [ -n "$told" ] && [ "$code" -ne 0 ]; then why="it was told to end (SIGTERM)"; fi
    end "$code" "$why"
    exit "$code"
fi
case $warned in
preempted) why="preempted" ;;
*) why="the time limit came" ;;
esac
if [ "$(newest)" -le "$before" ] && { [ "$warned" = yes ] || stalled; }; then
    end 75 "no progress: $why, and no checkpoint was written; ask for more time, then trimaran resume"
    exit 75
fi
if grep -qxF -- "$job" job/cancelled 2>/dev/null; then
    end 75 "cancelled: trimaran resume goes on from step $(newest)"
    exit 75
fi
end 75 "$why: it goes on from step $(newest)"
leave # while the job has its nodes
again || {
    end 75 "$why, and PBS does not take the job once more: trimaran resume goes on from step $(newest)"
    exit 75
}
