"""The program that runs a job inside its guest: plain shell, so that any Linux can.

Whatever begins it (cloud-init, or the first program of a guest that is made for jobs) mounts the
disk with the serial number `job` and runs `sh run` on it; nothing is installed in the guest.
"""

from __future__ import annotations

RUNNER = r"""#!/bin/sh
# Runs a job in its guest. What it says of the job goes to the port outrider.control, in this order:
#   began            the working folder is here, the script begins
#   signalled NAME   that signal was passed on to it
#   ended STATUS     the script has ended
#   copied           its working folder was copied out, whole
#   failed WHAT      something of this could not be done
#   exit STATUS      the last word: all is out
here=$(cd "${0%/*}" && pwd)

port() {
    for each in /sys/class/virtio-ports/*; do
        if [ "$(cat "$each/name" 2>/dev/null)" = "$1" ]; then
            echo "/dev/${each##*/}"
            return
        fi
    done
    echo /dev/null
}

disk() {
    for each in /sys/block/vd*; do
        if [ "$(cat "$each/serial" 2>/dev/null)" = "$1" ]; then
            echo "/dev/${each##*/}"
            return
        fi
    done
}

# A port can be opened once.
exec 3>"$(port outrider.control)" 4>"$(port outrider.out)" 5>"$(port outrider.err)"
own=/run/outrider
mkdir -p "$own" 2>/dev/null || own=$(mktemp -d)
cp "$here/script" "$own/script" && chmod 700 "$own/script"

folder=
if [ -f "$here/folder" ]; then
    folder=$(cat "$here/folder")
    if ! { mkdir -p "$folder" && cd "$folder" && tar -xf "$(disk work)"; } 2>&5; then
        echo "failed copying-in" >&3
        echo "exit 125" >&3
        exit 125
    fi
fi
while read -r name; do
    echo "outrider: the variable $name cannot be set in the guest" >&5
done <"$here/left-out"

separate=
command -v setsid >/dev/null 2>&1 && separate=setsid
echo began >&3
(
    . "$here/environment"
    [ -z "$HOME" ] || mkdir -p "$HOME" 2>/dev/null
    . "$here/arguments"
    exec $separate "$own/script" "$@"
) </dev/null >&4 2>&5 3>&- 4>&- 5>&- &
job=$!

(
    exec 4>&- 5>&- <"$(port outrider.signals)"
    while :; do
        while read -r name; do
            # Of `kill -s NAME -- -GROUP` busybox says that it failed, when it has sent it.
            { kill "-$name" "-$job" || kill "-$name" "$job"; } 2>/dev/null
            echo "signalled $name" >&3
        done
        # Nobody on the node is connected.
        sleep 1
    done
) &
reader=$!

wait "$job"
status=$?
kill "$reader" 2>/dev/null
echo "ended $status" >&3
if [ -n "$folder" ]; then
    if tar -cf - -C "$folder" . >"$(port outrider.work)" 2>&5; then
        echo copied >&3
    else
        echo "failed copying-out" >&3
    fi
fi
sync
echo "exit $status" >&3
# Where this is only a request, the node ends the machine.
poweroff 2>/dev/null
exit "$status"
"""

# cloud-init runs a script of the vendor beside whatever the user's data say.
VENDOR_DATA = r"""#!/bin/sh
mkdir -p /run/outrider-job
mount -o ro /dev/disk/by-id/virtio-job /run/outrider-job && exec sh /run/outrider-job/run
"""


def quoted(text: str) -> str:
    """A word for a shell, whatever is in it."""
    return "'" + text.replace("'", "'\\''") + "'"
