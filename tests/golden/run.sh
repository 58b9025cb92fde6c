#!/bin/sh
# Runs resnet-imagenet/cpu-quickstart from this folder, as `trimaran run` does.
# Needs Apptainer, sh and coreutils; touches no network. Written by Trimaran 0.1.0.
set -eu
LC_ALL=C
export LC_ALL
unset CDPATH

usage() {
    cat <<'END'
usage: sh run.sh [--data DIR] [--out DIR] [--verify-only]

  --data DIR     packed data set fashion-mnist, read-only
  --out DIR      run directory to make; default: runs/resnet-imagenet/cpu-quickstart/TIME
  --verify-only  only check this folder, and DIR of --data, against the checksums

exit codes: that of the app (0 done, 2 arguments, 3 data, 4 diverged, 75 stopped, can go on),
64 wrong usage, 65 damaged, 69 no usable Apptainer or another processor,
73 the run directory cannot be made
END
}

program=run.sh
gpu_device=

# Functions that the script of a job and the run.sh of a bundle share. The script that contains
# them sets `program`, its own name, and `gpu_device`, the file that the driver of the image's
# GPUs makes in /dev (empty for an image that uses no GPU).

# fail CODE LINE...: print the lines as messages of this script, and exit with status CODE. CODE and
# the first line are also written into the new file `failure`, unless it is empty.
fail() {
    code=$1
    shift
    if [ -n "${failure:-}" ]; then
        (set -C && printf '%s %s\n' "$code" "$1" >"$failure") 2>/dev/null || :
    fi
    for line; do printf '%s: %s\n' "$program" "$line"; done >&2
    exit "$code"
}

# replace TEXT OLD NEW: print TEXT with NEW in place of each OLD.
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

# csv_field TEXT: print TEXT as a field of comma-separated values, quoted only if need be.
csv_field() {
    case $1 in
    *[,\"]*) printf '"%s"' "$(replace "$1" '"' '""')" ;;
    *) printf '%s' "$1" ;;
    esac
}

# json TEXT: print TEXT as a JSON string, without its control characters (no path here has any).
json() {
    text=$(printf '%s' "$1" | tr -d '\000-\037\177')
    text=$(replace "$text" "\\" "\\\\")
    printf '"%s"' "$(replace "$text" '"' "\\\"")"
}

# json_list WORD...: print the words as a JSON list of strings.
json_list() {
    comma=
    printf '['
    for word; do
        printf '%s%s' "$comma" "$(json "$word")"
        comma=', '
    done
    printf ']'
}

# json_object NAME=VALUE...: print a JSON object of strings.
json_object() {
    comma=
    printf '{'
    for word; do
        printf '%s%s: %s' "$comma" "$(json "${word%%=*}")" "$(json "${word#*=}")"
        comma=', '
    done
    printf '}'
}

# shell_line WORD...: print the words as one line that can be pasted into a shell.
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

# Characters in UTF-8 that a terminal does not show, or that reverse the text after them. Among
# them are U+200B to U+200F, U+2028 to U+202E and U+2060 to U+206F.
unseen=$(printf '\302[\200-\237\255]|\330\234|\341\240\216|\342\200[\213-\217\250-\256]|\342\201[\240-\257]|\357\273\277|\363\240')

# seen WORD: print WORD in quotes. If it has a character that is not shown, all of its characters
# outside ASCII are printed as a call of printf that makes them.
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

# absolute PATH: print PATH as an absolute path.
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

# find_engine: print the path of Apptainer, which some sites install under its older name.
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

# obstacle: print why no container can start here, if a setting of the kernel is the reason.
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

# host_facts GPU: set hostname, os, kernel, architecture, processor, cores, memory_gib, cpu_flags and
# accelerators to facts of this machine, each as a JSON value. If GPU, the number or UUID of a GPU, is
# not empty, accelerators has this GPU alone.
host_facts() {
    only=${1-}
    hostname=$(json "$(uname -n)")
    # shellcheck source=/dev/null
    os=$(json "$(if [ -r /etc/os-release ]; then . /etc/os-release; fi; printf '%s' "${PRETTY_NAME:-$(uname -s)}")")
    kernel=$(json "$(uname -r)")
    architecture=$(json "$(uname -m)")
    cores=$(env -u OMP_NUM_THREADS -u OMP_THREAD_LIMIT nproc)
    model=$(uname -p)
    flags='' implementer='' part='' named=''
    while IFS=: read -r key value; do
        case $key in
        'model name'*) model=${value# } named=yes ;;
        flags* | Features*) flags=$value ;;
        'CPU implementer'*) implementer=${value# } ;;
        'CPU part'*) part=${value# } ;;
        '') break ;; # the next core
        esac
    done </proc/cpuinfo
    if [ -z "$named" ] && [ -n "$part" ]; then model=$(arm_processor "$implementer $part"); fi
    processor=$(json "$model")
    set --
    for flag in avx avx2 f16c fma avx_vnni avx512f avx512bw avx512dq avx512vl \
        avx512_bf16 avx512_fp16 avx512_vnni amx_tile amx_bf16 amx_fp16 amx_int8 \
        asimd asimddp asimdhp bf16 i8mm sve svebf16 svei8mm sve2 sme; do
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
    if command -v nvidia-smi >/dev/null && gpus=$(nvidia-smi ${only:+"--id=$only"} --query-gpu=name --format=csv,noheader); then
        while IFS= read -r gpu_name; do set -- "$@" "$gpu_name"; done <<END
$gpus
END
    fi
    # The driver of AMD's GPUs describes each GPU and each processor in a folder of its own.
    count=0
    for node in /sys/class/kfd/kfd/topology/nodes/*/properties; do
        if [ -r "$node" ] && amd_gpu "$node"; then
            case ${only:-$count} in
            "$count") set -- "$@" "$gpu_name" ;;
            *[!0-9]*) if [ "$count" -eq 0 ]; then set -- "$gpu_name"; fi ;; # a UUID: all are alike
            esac
            count=$((count + 1))
        fi
    done
    accelerators=$(json_list "$@")
}

# arm_processor "IMPLEMENTER PART": print the name of an Arm processor with these two numbers of
# /proc/cpuinfo. The names are those of lscpu (util-linux, sys-utils/lscpu-arm.c).
arm_processor() {
    case $1 in
    '0x41 0xd07') echo 'Arm Cortex-A57' ;;
    '0x41 0xd08') echo 'Arm Cortex-A72' ;;
    '0x41 0xd0c') echo 'Arm Neoverse-N1' ;;
    '0x41 0xd40') echo 'Arm Neoverse-V1' ;;
    '0x41 0xd49') echo 'Arm Neoverse-N2' ;;
    '0x41 0xd4f') echo 'Arm Neoverse-V2' ;;
    '0x41 0xd83') echo 'Arm Neoverse-V3AE' ;;
    '0x41 0xd84') echo 'Arm Neoverse-V3' ;;
    '0x41 0xd8e') echo 'Arm Neoverse-N3' ;;
    '0x43 0x0af') echo 'Cavium ThunderX2-99xx' ;;
    '0x46 0x001') echo 'Fujitsu A64FX' ;;
    '0x48 0xd01') echo 'HiSilicon Kunpeng-920' ;;
    '0xc0 0xac3') echo 'Ampere-1' ;;
    '0xc0 0xac4') echo 'Ampere-1a' ;;
    *) printf 'Arm processor %s\n' "$1" ;;
    esac
}

# amd_gpu PROPERTIES: succeed if the file describes a GPU of AMD, and set gpu_name to its name. A
# processor has no compute units (simd_count 0). 4098 is AMD's number in the list of PCI vendors.
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
    gpu_name="AMD ${product:-GPU} (gfx$((version / 10000))$(printf '%x%x' $((version / 100 % 100)) $((version % 100))))"
}

# hashes: print the SHA-256 of each file that the app has left for the verdict, as a JSON object.
hashes() {
    set --
    for file in metrics.jsonl result.json fabric.log; do
        if [ -f "$file" ] && ! [ -L "$file" ]; then
            sum=$(sha256sum <"$file")
            set -- "$@" "$file=${sum%% *}"
        fi
    done
    json_object "$@"
}

# now: print the time, in UTC.
now() { date -u +%Y-%m-%dT%H:%M:%SZ; }

# machine_flags: set userns and gpu, each to "yes" where Apptainer needs an option for it on this
# machine. Also takes the folder off an `engine` that `env` could not start.
machine_flags() {
    # Root in a container often lacks CAP_SYS_RESOURCE (bit 24). Apptainer, started by such a root,
    # would fail when it sets limits; with a user namespace it sets none.
    userns=
    while read -r key value; do
        if [ "$key" = CapEff: ] && [ "$(id -u)" -eq 0 ] &&
            [ $((0x$value >> 24 & 1)) -eq 0 ]; then
            userns=yes
        fi
    done </proc/self/status
    # If the driver is loaded, the container gets the GPUs.
    gpu=
    # shellcheck disable=SC2034 # a command for GPUs reads it
    if [ -n "$gpu_device" ] && [ -e "$gpu_device" ]; then gpu=yes; fi
    # `env` would take a path with an equals sign for a variable. PATH has its folder.
    case $engine in *=*) engine=${engine##*/} ;; esac
}

# check FOLDER SUMS: compare the files of FOLDER with their checksums.
check() {
    printf 'verifying %s\n' "$1" >&2
    if ! (cd -- "$1" && sha256sum --check --strict --quiet -- "$2" >&2); then
        fail 65 "$1 is damaged or incomplete: the lines above name the files" "copy it again"
    fi
}

# record STATUS ENDED SECONDS EXIT_STATUS FILES: write run.json, which is complete at every moment.
record() {
    status=$1
    ended=$2
    seconds=$3
    exit_status=$4
    files=$5
    cat >"$out/.run.json.part" <<END
{
  "schema_version": 2,
  "status": ${status},
  "trimaran": "0.1.0",
  "recipe": {
    "name": "resnet-imagenet/cpu-quickstart",
    "sha256": "1111111111111111111111111111111111111111111111111111111111111111",
    "card_sha256": "6666666666666666666666666666666666666666666666666666666666666666",
    "changed": {},
    "nodes": null
  },
  "image": {
    "name": "resnet-imagenet-torch-cpu",
    "engine": "apptainer",
    "reference": ${image_path},
    "digest": "sha256:2222222222222222222222222222222222222222222222222222222222222222",
    "inputs": "3333333333333333333333333333333333333333333333333333333333333333",
    "architecture": "amd64",
    "signature": null,
    "emulated": false,
    "publishable": true
  },
  "modified": [],
  "data": [
    {
      "name": "fashion-mnist",
      "path": ${data_path_0},
      "sha256": "4444444444444444444444444444444444444444444444444444444444444444"
    }
  ],
  "initial": null,
  "git": {
    "revision": "5555555555555555555555555555555555555555",
    "dirty": false
  },
  "launch": {
    "image": {
      "name": "resnet-imagenet-torch-cpu",
      "engine": "apptainer",
      "reference": ${image_path},
      "digest": "sha256:2222222222222222222222222222222222222222222222222222222222222222",
      "inputs": "3333333333333333333333333333333333333333333333333333333333333333"
    },
    "node": {
      "program": ${engine_path},
      "image": ${image_path},
      "global_options": [],
      "options": ${engine_options},
      "environment": ${engine_environment}
    },
    "mounts": [
      {
        "source": $(json "$data"),
        "target": "/data",
        "writable": false,
        "image": false
      },
      {
        "source": $(json "$out"),
        "target": "/out",
        "writable": true,
        "image": false
      }
    ],
    "environment": {
      "OMP_NUM_THREADS": "2"
    },
    "workdir": "/out",
    "module": "resnet_imagenet",
    "launcher": [],
    "arguments": [
      "train",
      "--data=/data",
      "--out=/out",
      "--model=resnet20",
      "--epochs=3",
      "--batch-size-per-rank=64",
      "--base-lr=0.2",
      "--warmup-epochs=0.5",
      "--schedule=cosine",
      "--momentum=0.9",
      "--weight-decay=0.0005",
      "--label-smoothing=0.0",
      "--precision=auto",
      "--threads=1",
      "--seed=17"
    ],
    "overlay": null,
    "task_starter": [],
    "shared_node": false,
    "site_options": [],
    "site_environment": {}
  },
  "command": {
    "argv": ${argv},
    "env": ${environment},
    "shell": ${shell}
  },
  "site": null,
  "fabric": null,
  "job": null,
  "host": {
    "hostname": ${hostname},
    "os": ${os},
    "kernel": ${kernel},
    "architecture": ${architecture},
    "processor": ${processor},
    "cores": ${cores},
    "memory_gib": ${memory_gib},
    "cpu_flags": ${cpu_flags},
    "accelerators": ${accelerators},
    "python": null
  },
  "nodes": [],
  "environment": null,
  "started": ${started},
  "resumed": [],
  "ended": ${ended},
  "seconds": ${seconds},
  "exit_status": ${exit_status},
  "files": ${files}
}
END
    mv -f -- "$out/.run.json.part" "$out/run.json"
}

data=
out=
verify_only=
while [ $# -gt 0 ]; do
    case $1 in
    --data | --out)
        if [ -z "${2-}" ]; then fail 64 "$1 needs a folder"; fi
        case $1 in
        --data) data=$(absolute "$2") ;;
        --out) out=$(absolute "$2") ;;
        esac
        shift
        ;;
    --verify-only) verify_only=yes ;;
    -h | --help)
        usage
        exit 0
        ;;
    *) fail 64 "unknown argument: $1" "see: sh run.sh --help" ;;
    esac
    shift
done

if [ -z "$verify_only" ] && [ "$(uname -m)" != x86_64 ]; then
    fail 69 "this machine is $(uname -m), and the image in this bundle is for x86_64" \
        "make a bundle for this machine: trimaran bundle ... --arch"
fi

bundle=$(absolute "$(cd -- "$(dirname -- "$0")" && pwd -P)")
image=$bundle/image.sif
check "$bundle" SHA256SUMS
if [ -n "$data" ]; then check "$data" "$bundle/data.sha256"; fi
if [ -n "$verify_only" ]; then
    printf 'every file is as it was packed\n'
    exit 0
fi
if [ -z "$data" ]; then
    fail 64 "the data are not in this bundle: give --data DIR" \
        "DIR is the packed data set fashion-mnist (trimaran data get fashion-mnist names it)"
fi

if [ -z "$out" ]; then
    out=$(absolute runs/resnet-imagenet/cpu-quickstart)
    out=$out/$(date -u +%Y%m%d-%H%M%S)
fi
if [ -e "$out" ] && { ! [ -d "$out" ] || [ -n "$(ls -A -- "$out")" ]; }; then
    fail 73 "$out exists and is not empty: a run is never overwritten" "choose another --out"
fi

engine=$(find_engine)
engine_folder=$(dirname -- "$engine")
machine_flags

# The exact command of `trimaran run`: first the complete environment, then the arguments.
set -- PATH="$engine_folder":/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin
if [ -n "${HOME+set}" ]; then set -- "$@" "HOME=$HOME"; fi
if [ -n "${LANG+set}" ]; then set -- "$@" "LANG=$LANG"; fi
if [ -n "${TMPDIR+set}" ]; then set -- "$@" "TMPDIR=$TMPDIR"; fi
if [ -n "${XDG_RUNTIME_DIR+set}" ]; then set -- "$@" "XDG_RUNTIME_DIR=$XDG_RUNTIME_DIR"; fi
if [ -n "${SOURCE_DATE_EPOCH+set}" ]; then set -- "$@" "SOURCE_DATE_EPOCH=$SOURCE_DATE_EPOCH"; fi
engine_environment=$(json_object "$@")
engine_options=$(json_list ${userns:+--userns})
engine_path=$(json "$engine")
set -- "$@" \
    APPTAINERENV_OMP_NUM_THREADS=2
variables=$#
environment=$(json_object "$@")
if ! env -i "$@" "$engine" --quiet exec --containall --no-home --cleanenv \
    ${userns:+--userns} --pwd / "$image" true >&2; then
    fail 69 "Apptainer cannot start a container here" "$(obstacle)"
fi
set -- "$@" \
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
    type=bind,"$(csv_field source="$data")",destination=/data,ro \
    --mount \
    type=bind,"$(csv_field source="$out")",destination=/out \
    "$image" \
    train \
    --data=/data \
    --out=/out \
    --model=resnet20 \
    --epochs=3 \
    --batch-size-per-rank=64 \
    --base-lr=0.2 \
    --warmup-epochs=0.5 \
    --schedule=cosine \
    --momentum=0.9 \
    --weight-decay=0.0005 \
    --label-smoothing=0.0 \
    --precision=auto \
    --threads=1 \
    --seed=17
argv=$(shift "$variables" && json_list "$@")
shell=$(json "$(shell_line env -i "$@")")

host_facts
image_path=$(json "$image")
data_path_0=$(json "$data")
started="\"$(now)\""
began=$(date +%s)
# mkdir without -p: of two runs that start in the same second, only one makes the folder.
# In an existing empty folder, the run that makes the lock file owns the folder.
if ! { [ -d "$out" ] || { mkdir -p -- "$(dirname -- "$out")" && mkdir -- "$out"; }; } ||
    ! (set -C && : >"$out/.lock") ||
    ! cp -- "$bundle/recipe.yaml" "$bundle/app.yaml" "$out/"; then
    fail 73 "the run directory $out cannot be made, or another run began there"
fi
record '"running"' null null null '{}'
printf 'run directory %s\n' "$out" >&2

cd -- "$out"
: >log.txt # before the app: tail may start first
env -i "$@" </dev/null >>log.txt 2>&1 &
child=$!
stopped=
trap 'stopped=yes; signalled=yes; kill -TERM "$child" 2>/dev/null || :' HUP INT TERM
tail -n +1 -f -s 0.2 --pid="$child" log.txt &
while :; do
    signalled=
    code=0
    wait "$child" || code=$?
    # A signal ends `wait`, but not the child, which may still write its checkpoint.
    if [ -z "$signalled" ] || [ "$code" -le 128 ]; then break; fi
done
wait

if [ "$code" -eq 0 ]; then
    status='"completed"'
elif [ "$code" -eq 75 ] || [ -n "$stopped" ]; then
    status='"interrupted"'
else
    status='"failed"'
fi
if [ "$code" -eq 0 ]; then rm -rf -- .caches; fi # a run that resumes would compile again
record "$status" "\"$(now)\"" $(($(date +%s) - began)) "$code" "$(hashes)"
printf 'run directory %s: exit status %s\n' "$out" "$code" >&2
if [ "$code" -eq 0 ]; then printf 'its verdict: %s\n' "$(shell_line trimaran report "$out")" >&2; fi
exit "$code"
