# ---------------------------------------------------------- facts of Apptainer and of GPUs

# engine_find: print the path of Apptainer. $apptainer is used first, as in a job.
engine_find() {
    if [ -n "$apptainer" ] && [ -x "$apptainer" ]; then
        printf '%s' "$apptainer"
    else
        command -v apptainer || command -v singularity
    fi
}

# engine_setting NAME: print one setting with which Apptainer was compiled.
engine_setting() { printf '%s\n' "$engine_compiled" | sed -n "s/^$1=//p" | head -n 1; }

# engine_lacks COMMAND OPTION...: print, as the fact apptainer-COMMAND-lacks, the options that a command
# of Apptainer does not have. Without the text of its help, for example because a slow file system
# delays it, the options are unknown.
engine_lacks() {
    engine_command=$1
    shift
    if engine_help=$(timeout -k 1 5 "$engine" "$engine_command" --help 2>&1 </dev/null); then
        engine_missing=
        for engine_option; do
            case $engine_help in
            *"$engine_option"*) ;;
            *) engine_missing="$engine_missing$engine_option " ;;
            esac
        done
        value "apptainer-$engine_command-lacks" "$engine_missing"
    else
        printf '## apptainer-%s-lacks 1\n' "$engine_command"
    fi
}

engine=$(engine_find) || engine=
value apptainer-path "$engine"
engine_compiled=
if [ -n "$engine" ]; then
    engine_said=$(timeout -k 1 5 "$engine" --version 2>&1 </dev/null)
    engine_status=$?
    # A wrapper of the site may print lines of its own before the version.
    engine_version=$(printf '%s\n' "$engine_said" | grep -m 1 '^apptainer version ') ||
        engine_version=$(printf '%s\n' "$engine_said" | head -n 1)
    printf '## apptainer-version %d\n %s\n' "$engine_status" "$engine_version"
    value apptainer-said "$engine_said"
    # The options that Trimaran uses: trimaran.launch.apptainer, trimaran.engines.apptainer.
    engine_lacks exec --containall --no-eval --no-mount --scratch --mount
    engine_lacks build --mksquashfs-args --build-arg-file --notest
    engine_compiled=$(timeout -k 1 5 "$engine" buildcfg 2>/dev/null </dev/null)
fi
engine_programs=$(engine_setting LIBEXECDIR)/apptainer/bin
engine_starter=$root$engine_programs/starter-suid
if [ -u "$engine_starter" ] && [ -x "$engine_starter" ]; then
    value apptainer-setuid "$engine_starter"
else
    value apptainer-setuid ''
fi
# The AppArmor profile with which Ubuntu's packages of Apptainer allow user namespaces to its starter only.
if [ -n "$engine_compiled" ]; then
    value apptainer-profile "$(grep -lsF -- "$engine_programs/starter" "$root"/etc/apparmor.d/* | head -n 1)"
fi

# engine_squashfuse: print the path of squashfuse, which mounts a SIF without root.
engine_squashfuse() {
    for engine_place in "$root$engine_programs" "${engine%/*}"; do
        for engine_name in squashfuse_ll squashfuse; do
            if [ -x "$engine_place/$engine_name" ]; then
                printf '%s' "$engine_place/$engine_name"
                return
            fi
        done
    done
    command -v squashfuse_ll || command -v squashfuse
}
value squashfuse "$(engine_squashfuse)"

fact namespaces unshare --user --map-root-user true
file_fact sysctl.user.max_user_namespaces /proc/sys/user/max_user_namespaces
file_fact sysctl.kernel.unprivileged_userns_clone /proc/sys/kernel/unprivileged_userns_clone
file_fact sysctl.kernel.apparmor_restrict_unprivileged_userns \
    /proc/sys/kernel/apparmor_restrict_unprivileged_userns
value newuidmap "$(command -v newuidmap)"
engine_user=$(id -un 2>/dev/null) || engine_user=
for engine_map in subuid subgid; do
    value "$engine_map" "$(grep -E "^(${engine_user:-:}|$(id -u)):" "$root/etc/$engine_map" 2>/dev/null | head -n 1)"
done
if ! [ -e "$root/dev/fuse" ]; then
    value fuse missing
elif [ -r "$root/dev/fuse" ] && [ -w "$root/dev/fuse" ]; then
    value fuse usable
else
    value fuse refused
fi

# engine_free FOLDER: print the free space in KiB of the file system of a folder, which need not exist.
engine_free() {
    engine_folder=$1
    while [ -n "$engine_folder" ] && ! [ -d "$engine_folder" ]; do
        case $engine_folder in
        */*) engine_folder=${engine_folder%/*} ;;
        *) engine_folder=. ;;
        esac
    done
    timeout -k 1 5 df -Pk -- "${engine_folder:-/}" 2>/dev/null | tail -n 1 |
        sed -nE 's/.* +[0-9]+ +[0-9]+ +(-?[0-9]+) +[0-9-]+%? .*/\1/p'
}
value build-folder "${APPTAINER_TMPDIR:-${TMPDIR:-/tmp}}"
value build-free "$(engine_free "${APPTAINER_TMPDIR:-${TMPDIR:-/tmp}}")"
if [ -n "$place_cache" ]; then
    value cache-free "$(engine_free "$place_cache")"
fi

# engine_glibc FILE: print the newest version of GLIBC that a library refers to. The names of the
# versions are in its table of strings, which is at the beginning of a library, or at its end if a
# tool has changed it. Reading the whole of a large library would take seconds.
engine_glibc() {
    { head -c 4194304 -- "$1" && tail -c 262144 -- "$1"; } 2>/dev/null |
        grep -aoE 'GLIBC_2\.[0-9]+' | sort -Vu | tail -n 1
}

# engine_bound VENDOR: print path and GLIBC version of each library of the host that Apptainer binds
# into a container with the GPUs of a vendor: those in its list whose names ldconfig knows.
engine_bound() {
    case $1 in
    nvidia) engine_list=nvliblist.conf ;;
    *) engine_list=rocmliblist.conf ;;
    esac
    engine_list=$root$(engine_setting APPTAINER_CONFDIR)/$engine_list
    # grep reads one pattern from each line: a tab, and the beginning of a name.
    engine_names=$(sed -nE 's/^[[:blank:]]*([A-Za-z0-9_+-]+\.so[A-Za-z0-9_.+-]*).*/\t\1/p' "$engine_list" 2>/dev/null)
    if [ -z "$engine_names" ]; then return; fi
    timeout -k 1 5 ldconfig -p 2>/dev/null | grep -F -- "$engine_names" |
        sed -nE 's/.*\(libc6,(x86-64|AArch64)[^)]*\) => //p' | sort -u |
        while IFS= read -r engine_library; do
            printf '%s %s\n' "$engine_library" "$(engine_glibc "$root$engine_library")"
        done
}
if [ "$gpu" = nvidia ] || [ -e "$root/dev/nvidiactl" ]; then
    value bound.nvidia "$(engine_bound nvidia)"
    fact gpus.nvidia nvidia-smi --query-gpu=name,driver_version,compute_cap,memory.total --format=csv,noheader
    file_fact driver.nvidia /proc/driver/nvidia/version
fi
if [ "$gpu" = amd ] || [ -e "$root/dev/kfd" ]; then
    value bound.amd "$(engine_bound amd)"
    file_fact driver.amd /sys/module/amdgpu/version
    # Nodes without compute units are processors.
    engine_kinds=
    for engine_node in "$root"/sys/class/kfd/kfd/topology/nodes/*/properties; do
        if [ -r "$engine_node" ] && ! grep -q '^simd_count 0$' "$engine_node"; then
            engine_kinds="$engine_kinds$(sed -n 's/^gfx_target_version //p' "$engine_node") "
        fi
    done
    value gpus.amd "${engine_kinds% }"
    value memory.amd "$(cat "$root"/sys/class/drm/card*/device/mem_info_vram_total 2>/dev/null)"
fi
