# Compiled code is kept in the folder that a job mounts; else in the run directory; else in a folder
# of /tmp; else in the user's cache. No other user can enter it. APPTAINERENV_NAME overrides NAME.
if [ -w /caches ]; then
    compiled=/caches
else
    compiled=/tmp
    if [ -n "${TMPDIR:-}" ] && [ -w "$TMPDIR" ]; then compiled=$TMPDIR; fi
    compiled=$compiled/trimaran-caches-$(id -u)
    if [ -w /out ]; then
        compiled=/out/.caches
        case $(stat -f -c %T /out 2>/dev/null) in
        afs | ceph | cifs | fhgfs | gpfs | lustre | nfs | panfs | smb2)
            echo "compiled code is kept in the run directory, on a network file system" >&2 ;;
        esac
    fi
    mkdir -m 700 "$compiled" 2>/dev/null || true
    case $(stat -c '%u %a %F' "$compiled" 2>/dev/null) in
    "$(id -u) 700 directory" | "$(id -u) 2700 directory") ;;
    *)
        if [ -w "$HOME" ]; then other=$HOME/.cache; else other=$(mktemp -d); fi
        echo "compiled code is kept in $other: $compiled is not a private folder of this user" >&2
        compiled=$other ;;
    esac
fi
