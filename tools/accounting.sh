#!/bin/sh
# Slurm's accounting daemon and its database from Debian, unpacked into a folder and not installed: tests run
# them from there, and nothing of theirs is started with the machine. Usage: tools/accounting.sh FOLDER
set -e
packages="slurmdbd slurm-wlm-mysql-plugin mariadb-server mariadb-server-core galera-4 libmariadb3 libsnappy1v5 liburing2"
mkdir -p "$1"
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
# Downloads are made as _apt, which has to be able to write there.
chmod 755 "$folder"
chown _apt "$folder" 2>/dev/null || :
cd "$folder"
apt-get download --quiet $packages
cd - >/dev/null
for package in "$folder"/*.deb; do dpkg -x "$package" "$1"; done
touch "$1/.ready"
