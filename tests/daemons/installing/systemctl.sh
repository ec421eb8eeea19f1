#!/bin/sh
# Stands for systemctl on hosts without systemd: runs what a unit's ExecStart says, in the background.
folder=/run/systemd/system
# As DefaultEnvironment of systemd-system.conf.
[ ! -e /etc/systemd/environment ] || { set -a; . /etc/systemd/environment; set +a; }
pid_of() { cat "$folder/$1.pid" 2>/dev/null; }
is_active() { pid=$(pid_of "$1") && kill -0 "$pid" 2>/dev/null; }
start() {
    is_active "$1" && return
    command=$(sed -n 's/^ExecStart=//p' "/etc/systemd/system/$1.service") || exit 5
    mkdir -p /run/outrider
    setsid sh -c 'echo $$ >"$1"; shift; exec "$@"' sh "$folder/$1.pid" $command </dev/null >>"/var/log/$1.log" 2>&1 &
    # A unit of the type notify has started when it is ready.
    socket=/run/outrider/$([ "$1" = cachemgr ] && echo cachemgr || echo outriderd).sock
    for _ in $(seq 200); do [ -S $socket ] && return; sleep 0.1; done
    cat "/var/log/$1.log" >&2
    exit 1
}
stop() {
    is_active "$1" || return 0
    kill "$(pid_of "$1")"
    for _ in $(seq 300); do is_active "$1" || break; sleep 0.1; done
}
verb=$1 unit=
shift
for word in "$@"; do case $word in --now) now=yes ;; --*) ;; *) unit=${word%.service} ;; esac; done
case $verb in
daemon-reload) ;;
is-active) is_active "$unit" || exit 3 ;;
enable) [ -z "$now" ] || start "$unit" ;;
disable) [ -z "$now" ] || stop "$unit" ;;
start) start "$unit" ;;
stop) stop "$unit" ;;
restart) stop "$unit"; start "$unit" ;;
*) echo "systemctl: $verb is not known here" >&2; exit 1 ;;
esac
