#!/bin/bash
# packages.sh TREE PACKAGES OUT: in an overlay of a Debian's tree, which stays as it is, the packages are installed,
# a promise is made, the later version is installed, and all are removed and purged.
set -eu
exec unshare --mount --pid --fork --propagation private bash -eu -c '
tree=$1 packages=$2 out=$3 work=$(mktemp -d)
mount -t tmpfs tmpfs "$work"
mkdir "$work/upper" "$work/scratch" "$work/root"
root=$work/root
mount -t overlay overlay -o "lowerdir=$tree,upperdir=$work/upper,workdir=$work/scratch" "$root"
mount -t proc proc "$root/proc"
for folder in tmp run; do mount -t tmpfs tmpfs "$root/$folder"; done
mount --rbind /dev "$root/dev"
cp -r "$packages"/*.deb "$packages/next" "$root/tmp/"

# Not what dpkg and its logs say, nor the copies that tools for users make of what was before.
snapshot() (
    cd "$root"
    find . -xdev \( -path ./var/lib/dpkg -o -path ./var/log -o -path ./tmp -o -path ./run -o -path ./proc -o -path ./dev \) -prune \
        -o -type f -printf "%p %m %u %g " -exec sha256sum {} \; -o -printf "%p %y %m %u %g %l\n" |
        grep -vE "^\./etc/(passwd|group|shadow|gshadow|subuid|subgid)- |^\./etc/\.pwd\.lock |/ld\.so\.cache |/var/cache/ldconfig" | sort
)
inside() { chroot "$root" env PATH=/usr/sbin:/usr/bin:/sbin:/bin LC_ALL=C DEBIAN_FRONTEND=noninteractive "$@"; }
served() {
    inside outriderd --init-if-empty 2>>"$root/tmp/log" &
    for _ in $(seq 240); do
        if inside outrider status >/dev/null 2>&1; then return; fi
        sleep 0.5
    done
    cat "$root/tmp/log"
    exit 1
}
ended() {
    pkill -TERM -f head/bin/outriderd || :
    while pgrep -f head/bin/outriderd >/dev/null; do sleep 0.2; done
}

snapshot >"$out/before"
inside sh -c "dpkg -i /tmp/*.deb"
mkdir -p "$root/etc/outrider"
cat >"$root/etc/outrider/outriderd.yaml" <<END
version: 1
link: {rate: 50MB, reserve: at-once, spread: 1s}
backend: {kind: embedded, nodes: "n[1-2]", cpus: 1, memory: 1GiB, pool: 10MB}
END
head -c 300000 /dev/zero >"$root/var/image.raw"
inside outriderd --check
served
inside outrider reserve --name walk --image file:///var/image.raw --nodes 1 --duration 30m --start now+1hour
ended
inside sh -c "dpkg -i /tmp/next/*.deb"
served
inside outrider list >"$out/listed"
ended
inside dpkg -r outrider outrider-node
[ ! -e "$root/usr/lib/outrider" ] && [ -e "$root/var/lib/outrider/outriderd.sqlite" ] && echo "state kept by a removal"
inside dpkg -P outrider outrider-node
rm -r "$root/etc/outrider" "$root/var/image.raw"
snapshot >"$out/after"
' bash "$@"
