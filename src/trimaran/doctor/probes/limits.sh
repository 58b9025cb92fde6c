# Facts of the group `limits`: what the processes on this node may use.

file_fact self-status /proc/self/status
file_fact self-limits /proc/self/limits
file_fact meminfo /proc/meminfo
file_fact thp /sys/kernel/mm/transparent_hugepage/enabled
file_fact cpufreq-driver /sys/devices/system/cpu/cpu0/cpufreq/scaling_driver
# One line per core, such as `0,64`: the CPUs (hardware threads) of the core.
# shellcheck disable=SC2016 # the inner shell expands $1
fact siblings sh -c 'cat "$1"/sys/devices/system/cpu/cpu[0-9]*/topology/thread_siblings_list | sort -u' sh "$root"
# Lines such as `node0/cpulist:0-31`.
# shellcheck disable=SC2016
fact numa sh -c 'cd "$1/sys/devices/system/node" && grep . node[0-9]*/cpulist /dev/null' sh "$root"
# Lines such as `64 powersave`.
# shellcheck disable=SC2016
fact governors sh -c 'cat "$1"/sys/devices/system/cpu/cpu[0-9]*/cpufreq/scaling_governor | sort | uniq -c' sh "$root"
fact shm df -k --output=size,avail -- "$root/dev/shm"
if [ -w "$root/dev/shm" ]; then value shm-writable yes; else value shm-writable no; fi

# limits_above FOLDER PATH FILE...: print the files of the cgroup PATH of the hierarchy at FOLDER as
# one line, then those of each cgroup above it. In a container, the upper part of PATH may not exist.
limits_above() {
    limits_folder=$root$1
    limits_path=${2%/}
    shift 2
    while :; do
        if [ -r "$limits_folder$limits_path/$1" ]; then
            for limits_file in "$@"; do
                printf '%s ' "$(cat -- "$limits_folder$limits_path/$limits_file" 2>/dev/null)"
            done
            printf '\n'
        fi
        if [ -z "$limits_path" ]; then return; fi
        limits_path=${limits_path%/*}
    done
}

# limits_of CONTROLLER V2FILE V1FILE...: print the limits of the cgroups of this process.
limits_of() {
    limits_controller=$1
    limits_v2=$2
    shift 2
    if ! [ -r "$root/proc/self/cgroup" ]; then return; fi
    while IFS=: read -r _ limits_names limits_place; do
        case ,$limits_names, in
            ,,) limits_above /sys/fs/cgroup "$limits_place" "$limits_v2" ;;
            *,"$limits_controller",*)
                limits_above "/sys/fs/cgroup/$limits_controller" "$limits_place" "$@" ;;
        esac
    done <"$root/proc/self/cgroup"
}

value cgroup-cpu "$(limits_of cpu cpu.max cpu.cfs_quota_us cpu.cfs_period_us)"
value cgroup-pids "$(limits_of pids pids.max pids.max)"
