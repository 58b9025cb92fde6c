# Facts of the group `places`: the folders of runs, the queue, and the clock.
# Variables that the caller may set before: scheduler (slurm, pbs or lsf) and partition (its name).
# place_data has one line for each packed data set.
: "${scheduler:=}" "${partition:=}"

fact clock date +%s
file_fact mountinfo /proc/self/mountinfo
value temporary "${TMPDIR:-/tmp}"

# places_folder NAME PATH: print PATH, then four lines about the folder, or about the nearest folder
# above it that exists: its path, `writable` or `read-only`, df's columns, and the device.
places_folder() {
    if [ -z "$2" ]; then return; fi
    # shellcheck disable=SC2016 # the inner shell expands its arguments
    fact "place.$1" sh -c '
        folder=$2
        while [ -n "$folder" ] && ! [ -d "$1$folder" ]; do folder=${folder%/*}; done
        cd -- "$1${folder:-/}" || exit 1
        printf "%s\n" "$2" "${folder:-/}"
        if [ -w . ]; then echo writable; else echo read-only; fi
        df -k --output=fstype,size,avail,itotal,iavail,target . | tail -n 1
        df --output=source . | tail -n 1' sh "$root" "$2"
}

places_folder cache "$place_cache"
places_folder scratch "$place_scratch"
places_folder local "$place_local"
# A folder that does not answer costs 5 seconds each time.
if [ "$place_runs" != "$place_scratch" ]; then places_folder runs "$place_runs"; fi

# places_data NUMBER PATH: print the facts of one packed data set.
places_data() {
    places_folder "data-$1" "$2"
    if [ "$status" = 124 ]; then return; fi
    # shellcheck disable=SC2016
    fact "files.$1" sh -c 'cd -- "$1$2" && find . -type f | head -n 10001 | wc -l' sh "$root" "$2"
    if ! command -v lfs >/dev/null; then return; fi
    # The stripes of at most 20 files of more than 1 GiB: one line for each.
    # shellcheck disable=SC2016
    fact "stripes.$1" sh -c 'cd -- "$1$2" || exit 1
        find . -type f -size +1048576k | head -n 20 | while IFS= read -r file; do
            lfs getstripe -c "$file"
        done' sh "$root" "$2"
    fact "stripe-default.$1" lfs getstripe -d "$root$2"
}

places_number=0
while IFS= read -r places_line; do
    if [ -z "$places_line" ]; then continue; fi
    places_number=$((places_number + 1))
    places_data "$places_number" "$places_line"
done <<END
$place_data
END

fact quota quota -w -p
if command -v lfs >/dev/null; then
    places_user=$(id -u)
    # Mount points contain `\040` for a blank; such a mount has no quota here.
    while read -r _ _ _ _ places_mount places_rest; do
        case " $places_rest " in
            *" - lustre "*) fact "lustre-quota.$places_mount" lfs quota -q -u "$places_user" "$places_mount" ;;
        esac
    done <"$root/proc/self/mountinfo"
fi

case $scheduler in
    slurm)
        fact queues scontrol --all --oneliner show partition
        # Each kind of node once: a large cluster has thousands of nodes.
        # shellcheck disable=SC2016 # sed reads \1
        fact kinds-of-nodes sh -c 'scontrol --all --oneliner show node |
            sed -nE "s/^NodeName=.* (Arch=[^ ]+) .*(AvailableFeatures=[^ ]*) .*(Partitions=[^ ]+).*/\1 \2 \3/p" | sort -u'
        ;;
    pbs) fact queues qstat -Q -f ;;
    lsf) if [ -n "$partition" ]; then fact queues bqueues -l "$partition"; fi ;;
esac
