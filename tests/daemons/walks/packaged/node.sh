# The node's package: an image is put into the pool, the later version is installed and has it, then it is purged.
inside sh -c "dpkg --no-triggers -i /tmp/outrider-node_*.deb"
left >"$out/installed"
head -c 300000 /dev/zero >"$root/tmp/image.raw"
served() {
    begun cachemgr serve
    wait_for cachemgr ls
}
inside cachemgr init --limit 10MB
served
inside cachemgr add file:///tmp/image.raw
ended
inside sh -c "dpkg --no-triggers -i /tmp/next/outrider-node_*.deb"
inside dpkg-query -W -f "\${Version}" outrider-node >"$out/version"
served
inside cachemgr ls >"$out/listed"
ended
packager -r outrider-node
[ ! -e "$root/usr/lib/outrider" ] && [ -e "$root/var/cache/outrider/pool.json" ] && echo "state kept by a removal"
packager -P outrider-node
left >"$out/left"
