#!/usr/bin/env bash
# mkfs.ext4 is what the tests of power cuts make their disks with. Installs it where that is possible (Debian, as root),
# otherwise says in one sentence what is missing. Never fails: flintlog itself needs no file system of its own.
set -u

PATH=$PATH:/usr/sbin:/sbin
command -v mkfs.ext4 >/dev/null && exit 0
if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
    echo "installing e2fsprogs"
    { apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq e2fsprogs; } >/dev/null
    command -v mkfs.ext4 >/dev/null && exit 0
fi
echo "mkfs.ext4 is missing, so the tests of power cuts are left out: install e2fsprogs, and run them as root." >&2
exit 0
