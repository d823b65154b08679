#!/usr/bin/env bash
# Java 17 and Maven are what the interoperability tests need. Installs them where that is possible (Debian, as root),
# otherwise says in one sentence what is missing. Never fails: flintlog itself needs no Java.
set -u

has_java() {
    command -v mvn >/dev/null && command -v javac >/dev/null || return 1
    local major
    major=$(javac -version 2>&1 | sed -n 's/^javac \([0-9]*\).*/\1/p')
    [ "${major:-0}" -ge 17 ]
}

has_java && exit 0
if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
    echo "installing openjdk-17-jdk-headless and maven"
    { apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq openjdk-17-jdk-headless maven; } >/dev/null
    has_java && exit 0
fi
echo "Java 17 and Maven are missing, so tests against the real RocketMQ store are left out: install openjdk-17-jdk-headless and maven." >&2
exit 0
