#!/bin/sh
# What `make tools` runs: installs Debian packages that tests try or compare with, as root.
# Nothing asks a question. Grid Engine is installed without a cluster, and its daemons are told not to
# start, now or when the machine boots: tests begin their own, in namespaces.
# A configuration that is there already is left as it is.

defaults=/etc/default/gridengine

unconfigured() {
    command -v debconf-set-selections >/dev/null || return 0
    echo "gridengine-common shared/gridengineconfig boolean false" | debconf-set-selections
    [ -e "$defaults" ] || printf '%s\n' \
        "# Installed for Outrider's tests, which begin daemons of their own." \
        SGE_START_MASTERD=no SGE_START_EXECD=no \
        SGE_ROOT=/var/lib/gridengine SGE_CELL=default 'SGE_ARCH=`"$SGE_ROOT/util/arch"`' >"$defaults"
}

# Neither a registry that anybody may push to nor a container runtime is to run on a machine because of tests.
unstarted() {
    unit=/etc/systemd/system/$1.service
    [ -e "$unit" ] || { mkdir -p "${unit%/*}" && ln -sf /dev/null "$unit"; }
}

# Tests begin database servers of their own, too: the package is to make and start none.
clusterless() {
    file=/etc/postgresql-common/createcluster.conf
    [ -e "$file" ] || { mkdir -p "${file%/*}" && echo "create_main_cluster = false" >"$file"; }
}

[ "$(id -u)" = 0 ] && command -v apt-get >/dev/null || exit 1
apt-get update -qq || exit 1
dpkg -s gridengine-common >/dev/null 2>&1 || unconfigured
for package in docker-registry containerd; do
    dpkg -s "$package" >/dev/null 2>&1 || unstarted "$package"
done
dpkg -s postgresql-common >/dev/null 2>&1 || clusterless
# Grid Engine's packages want a mail reader, and that wants something that sends mail. Where there is none,
# the smallest will do: without it, apt would bring a mail server.
[ -e /usr/sbin/sendmail ] || set -- "$@" msmtp-mta
DEBIAN_FRONTEND=noninteractive apt-get install -qq -y --no-install-recommends \
    -o Dpkg::Options::=--force-confold "$@" >/dev/null </dev/null
