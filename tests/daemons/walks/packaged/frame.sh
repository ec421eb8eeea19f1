#!/bin/bash
# frame.sh TREE PACKAGES OUT STEPS: in an overlay of a Debian's tree, which stays as it is, the file STEPS is carried
# out with the functions below. `left` lists what differs from the tree, as far as it is a package's doing.
set -eu
exec unshare --mount --pid --fork --propagation private bash -eu -c '
tree=$1 packages=$2 out=$3 steps=$4 work=$(mktemp -d)
mount -t tmpfs tmpfs "$work"
mkdir "$work/upper" "$work/scratch" "$work/root"
upper=$work/upper root=$work/root
mount -t overlay overlay -o "lowerdir=$tree,upperdir=$upper,workdir=$work/scratch" "$root"
mount -t proc proc "$root/proc"
for folder in tmp run; do mount -t tmpfs tmpfs "$root/$folder"; done
mount --rbind /dev "$root/dev"
cp -r "$packages"/*.deb "$packages/next" "$root/tmp/"

entered="env PATH=/usr/sbin:/usr/bin:/sbin:/bin LC_ALL=C DEBIAN_FRONTEND=noninteractive"
inside() { chroot "$root" $entered "$@"; }
begun() {
    (exec chroot "$root" $entered "$@" 2>>"$root/tmp/log") &
    daemon=$!
}
ended() {
    kill -TERM "$daemon"
    wait "$daemon" || :
}
# Triggers are others: they bring caches of manual pages up to date.
packager() { inside dpkg --no-triggers "$@"; }
# Not what dpkg and its logs say, nor the copies that tools for users make of what was before.
left() (
    cd "$upper"
    find . \( -path ./var/lib/dpkg -o -path ./var/log -o -path ./tmp -o -path ./run -o -path ./dev \) -prune -o -print |
        grep -vE "^\./etc/((passwd|group|shadow|gshadow|subuid|subgid)-|\.pwd\.lock|ld\.so\.cache)$|^\./var/cache/ldconfig" | sort |
        while read -r path; do
            if [ -c "$path" ]; then echo "gone $path"
            elif [ ! -e "$tree/$path" ] && [ ! -L "$tree/$path" ]; then echo "new $path"
            elif [ "$(stat -c "%F %a %u %g" "$path")" != "$(stat -c "%F %a %u %g" "$tree/$path")" ]; then echo "other $path"
            elif [ -L "$path" ]; then [ "$(readlink "$path")" = "$(readlink "$tree/$path")" ] || echo "link $path"
            elif [ -f "$path" ]; then cmp -s "$path" "$tree/$path" || echo "changed $path"
            fi
        done
)
wait_for() {
    for _ in $(seq 480); do
        if inside "$@" >/dev/null 2>&1; then return; fi
        sleep 0.5
    done
    cat "$root/tmp/log"
    exit 1
}
. "$steps"
' bash "$@"
