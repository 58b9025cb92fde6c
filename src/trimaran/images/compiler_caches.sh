# Compiled code is kept in the folder that a job mounts; else in the run directory; else in a folder
# of /tmp; else in the user's cache. No other user can enter it. APPTAINERENV_NAME overrides NAME.
if [ -w /caches ]; then
    compiled=/caches # the job has checked its file system, once on each node
else
    compiled=/tmp
    if [ -n "${TMPDIR:-}" ] && [ -w "$TMPDIR" ]; then compiled=$TMPDIR; fi
    compiled=$compiled/trimaran-caches-$(id -u)
    if [ -w /out ]; then compiled=/out/.caches; fi
    mkdir -m 700 "$compiled" 2>/dev/null || true
    case $(stat -c '%u %a %F' "$compiled" 2>/dev/null) in
    "$(id -u) 700 directory" | "$(id -u) 2700 directory") ;;
    *)
        if [ -w "$HOME" ]; then other=$HOME/.cache; else other=$(mktemp -d); fi
        mkdir -p "$other"
        echo "compiled code is kept in $other: $compiled is not a private folder of this user" >&2
        compiled=$other ;;
    esac
    # The known types are local file systems, as stat names them. All others may be on a network.
    kind=$(stat -f -c %T "$compiled" 2>/dev/null || true)
    case $kind in
    bcachefs | btrfs | ext2/ext3 | f2fs | jfs | overlayfs | ramfs | reiserfs | tmpfs | xfs | zfs) ;;
    *) echo "compiled code is kept in $compiled, on a file system that may be on a network: ${kind:-unknown}" >&2 ;;
    esac
fi
