"""The program that runs a job inside its guest: plain shell, so that any Linux can.

Whatever begins it (cloud-init, or the first program of a guest that is made for jobs) mounts the
disk with the serial number `job` and runs `sh run` on it; nothing is installed in the guest.
"""

from __future__ import annotations

RUNNER = r"""#!/bin/sh
# Runs a job in its guest. What it says of the job goes to the port outrider.control, in this order:
#   joined           it has its name and address among the job's machines
#   ready            the working folder is here, the script waits for GO
#   began            the script begins
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

# An empty disk is made usable once; a guest that was saved has it mounted.
makes_scratch() {
    for make in mkfs.ext4 mkfs.xfs mkfs.ext2 mke2fs; do
        ! PATH=$PATH:/usr/sbin:/sbin command -v "$make" >/dev/null || break
    done
    PATH=$PATH:/usr/sbin:/sbin "$make" "$1" >/dev/null && mkdir -p /scratch && mount "$1" /scratch &&
        chmod 1777 /scratch
}

fails() {
    echo "failed $1" >&3
    echo "exit 125" >&3
    exit 125
}

# The names of all machines of the job, and this one's address on the network between them.
joins() {
    read -r name <"$here/place" && mkdir -p /etc && cat "$here/hosts" >>/etc/hosts || return 1
    cp "$here/names" "$own/hosts" && chmod 644 "$own/hosts"
    hostname "$name" && echo "$name" >/etc/hostname
    ip link set dev lo up
    while read -r mac address mtu; do
        sets_up "$mac" "$address" "$mtu" || return 1
    done <"$here/cards"
}

sets_up() {
    for each in /sys/class/net/*; do
        if [ "$(cat "$each/address" 2>/dev/null)" = "$1" ]; then
            [ -f "$own/card" ] || echo "${each##*/}" >"$own/card"
            # cloud-init may have given the address before.
            ip link set dev "${each##*/}" mtu "$3" up && {
                ip address show dev "${each##*/}" | grep -qF " $2" ||
                    ip address add "$2" dev "${each##*/}"
            }
            return
        fi
    done
    echo "outrider: the guest has no card with the address $1: its kernel lacks virtio_net" >&2
    return 1
}

# Lets the job's machines reach each other as root by ssh, with the key that was made for this job. Their
# network is theirs alone, so the name of a machine is enough to trust it.
lets_in() {
    keys=$(PATH=$PATH:/usr/bin awk -F: '$1 == "root" { print $6 }' /etc/passwd)/.ssh
    mkdir -p "$keys" && chmod 700 "$keys" || return 1
    cp "$here/key" "$keys/outrider" && chmod 600 "$keys/outrider"
    cat "$here/key.pub" >>"$keys/authorized_keys" && chmod 600 "$keys/authorized_keys"
    {
        printf 'Host %s\n' "$(tr '\n' ' ' <"$here/names")"
        printf '    %s\n' 'User root' 'IdentityFile ~/.ssh/outrider' 'StrictHostKeyChecking no' \
            'UserKnownHostsFile /dev/null' 'LogLevel ERROR'
    } >>"$keys/config"
    # Where the guest's own listens already, that one lets the key in.
    server=$(PATH=$PATH:/usr/sbin:/sbin command -v sshd) || return 0
    mkdir -p /run/sshd && [ -f "$own/host" ] || ssh-keygen -q -t ed25519 -N '' -f "$own/host"
    "$server" -f /dev/null -h "$own/host" -o PasswordAuthentication=no \
        -o KbdInteractiveAuthentication=no -o StrictModes=no -o "PidFile=$own/sshd.pid" || return 0
}

if [ -f "$here/place" ]; then
    joins 2>&5 >&2 || fails joining
    [ ! -f "$here/key" ] || lets_in >/dev/null 2>&1 || echo "outrider: ssh cannot be set up in the guest" >&5
    echo joined >&3
fi

scratch=$(disk scratch)
if [ -n "$scratch" ]; then
    makes_scratch "$scratch" 2>&5 || fails scratch
    export OUTRIDER_SCRATCH=/scratch
fi

# What has no file system that this kernel knows is found at the same place as the disk itself.
reads() {
    [ -n "$1" ] && mkdir -p /data || return 1
    [ ! -e "/data/$2" ] || return 1
    mkdir "/data/$2"
    mount -o ro "$1" "/data/$2" 2>/dev/null || mount -o ro,noload "$1" "/data/$2" 2>/dev/null || {
        rmdir "/data/$2" && ln -s "$1" "/data/$2"
    }
}

if [ -f "$here/data" ]; then
    while read -r name; do
        reads "$(disk "$name")" "$name" 2>&5 || fails "data $name"
    done <"$here/data"
fi

folder=
if [ -f "$here/folder" ]; then
    folder=$(cat "$here/folder")
    { mkdir -p "$folder" && cd "$folder" && tar -xf "$(disk work)"; } 2>&5 || fails copying-in
fi
# What its user wants done at the first boot; cloud-init does that where it is.
if [ -f "$here/user-data" ] && [ ! -d /run/cloud-init ]; then
    cp "$here/user-data" "$own/user-data" && chmod 700 "$own/user-data"
    case $(head -c 2 "$own/user-data") in
    '#!') (. "$here/environment" && exec "$own/user-data") </dev/null >&4 2>&5 3>&- || fails user-data ;;
    *)
        echo "outrider: this guest has no cloud-init: its user data have to be a script" >&5
        fails user-data ;;
    esac
fi
while read -r name; do
    echo "outrider: the variable $name cannot be set in the guest" >&5
done <"$here/left-out"

if [ -f "$here/waits" ]; then
    echo ready >&3
    exec 6<"$(port outrider.signals)"
    # Without anybody on the node who is connected nothing can be read.
    until read -r name <&6; do sleep 0.1; done
    exec 6<&-
    echo "signalled $name" >&3
    if [ "$name" != GO ]; then
        echo "exit 143" >&3
        exit 143
    fi
fi

separate=
command -v setsid >/dev/null 2>&1 && separate=setsid
echo began >&3
(
    . "$here/environment"
    if [ -f "$own/hosts" ]; then
        export OUTRIDER_HOSTS="$own/hosts" HYDRA_HOST_FILE="$own/hosts"
        export OMPI_MCA_orte_default_hostfile="$own/hosts"
        # MPICH would offer others the card by which ssh comes in, where they reach nobody.
        export UCX_NET_DEVICES="$(cat "$own/card")"
    fi
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
if [ -n "$folder" ] && [ -f "$here/brings-back" ]; then
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
