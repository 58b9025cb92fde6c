# ---------------------------------------------------------------- facts of the machine itself

value uid "$(id -u)"
value capabilities "$(sed -n 's/^CapEff:[[:blank:]]*//p' "$root/proc/self/status" 2>/dev/null)"
fact machine uname -m
fact cores nproc
value memory "$(sed -nE 's/^MemTotal: *([0-9]+) kB.*/\1/p' "$root/proc/meminfo" 2>/dev/null)"
value processor "$(sed -nE 's/^model name[[:blank:]]*: *//p' "$root/proc/cpuinfo" 2>/dev/null | head -n 1)"
# Arm: two numbers instead of a name, such as `0x41 0xd4f`.
value processor-numbers "$(sed -nE 's/^CPU (implementer|part)[[:blank:]]*: *//p' "$root/proc/cpuinfo" 2>/dev/null | head -n 2 | tr '\n' ' ')"
file_fact processor-khz /sys/devices/system/cpu/cpu0/cpufreq/cpuinfo_max_freq
value cpu-flags "$(sed -nE 's/^(flags|Features)[[:blank:]]*: *//p' "$root/proc/cpuinfo" 2>/dev/null | head -n 1)"

# machine_memory: print the smallest memory limit in bytes of the control groups of this process; "max"
# if there is none. Version 2 has one hierarchy (entry 0::), version 1 one for each resource.
machine_memory() {
    machine_least=max
    machine_two=$(sed -n 's/^0:://p' "$root/proc/self/cgroup" 2>/dev/null)
    machine_one=$(sed -nE 's/^[0-9]+:([a-z,_]+,)?memory(,[a-z,_]+)?://p' "$root/proc/self/cgroup" 2>/dev/null)
    for machine_file in "/sys/fs/cgroup|$machine_two|memory.max" \
        "/sys/fs/cgroup/memory|$machine_one|memory.limit_in_bytes"; do
        machine_top=$root${machine_file%%|*} machine_name=${machine_file##*|}
        machine_path=${machine_file#*|}
        machine_path=${machine_path%|*}
        while :; do
            machine_limit=$(cat "$machine_top$machine_path/$machine_name" 2>/dev/null) || machine_limit=max
            case $machine_limit in
            max | '' | *[!0-9]*) ;;
            *)
                if [ "$machine_least" = max ] || [ "$machine_limit" -lt "$machine_least" ]; then
                    machine_least=$machine_limit
                fi
                ;;
            esac
            case $machine_path in
            ?*/*) machine_path=${machine_path%/*} ;;
            ?*) machine_path='' ;;
            *) break ;;
            esac
        done
    done
    printf '%s' "$machine_least"
}
value cgroup-memory "$(machine_memory)"

machine_own=
for machine_folder in "${HOME:-/nonexistent}"/.local/lib/python3*/site-packages; do
    if [ -d "$machine_folder" ] && [ -n "$(ls -A -- "$machine_folder" 2>/dev/null)" ]; then
        machine_own=$machine_folder
    fi
done
value user-site "$machine_own"
