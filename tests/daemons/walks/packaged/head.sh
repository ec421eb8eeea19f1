# Both packages: a promise is made, the later version is installed and has it, both are removed and purged.
inside sh -c "dpkg --no-triggers -i /tmp/*.deb"
left >"$out/installed"
mkdir -p "$root/etc/outrider"
cat >"$root/etc/outrider/outriderd.yaml" <<END
version: 1
link: {rate: 50MB, reserve: at-once, spread: 1s}
backend: {kind: embedded, nodes: "n[1-2]", cpus: 1, memory: 1GiB, pool: 10MB}
END
head -c 300000 /dev/zero >"$root/var/image.raw"
served() {
    begun outriderd --init-if-empty
    wait_for outrider status
}
inside outriderd --check
served
inside outrider reserve --name walk --image file:///var/image.raw --nodes 1 --duration 30m --start now+1hour
ended
inside sh -c "dpkg --no-triggers -i /tmp/next/*.deb"
served
inside outrider list >"$out/listed"
ended
packager -r outrider outrider-node
[ ! -e "$root/usr/lib/outrider" ] && [ -e "$root/var/lib/outrider/outriderd.sqlite" ] && echo "state kept by a removal"
packager -P outrider outrider-node
rm -r "$root/etc/outrider" "$root/var/image.raw"
left >"$out/left"
