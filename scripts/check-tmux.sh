#!/usr/bin/env bash
# tmux is what the test of `flintlog top` at a real terminal needs. Installs it where that is possible (Debian, as root),
# otherwise says in one sentence what is missing. Never fails: flintlog itself needs no tmux.
set -u

command -v tmux >/dev/null && exit 0
if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
    echo "installing tmux"
    { apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq tmux; } >/dev/null
    command -v tmux >/dev/null && exit 0
fi
echo "tmux is missing, so the test of \`flintlog top\` at a terminal is left out: install tmux." >&2
exit 0
