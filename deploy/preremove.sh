#!/bin/sh
# Debian says "remove", Red Hat 0. At an upgrade the node goes on, and its operator restarts it.
case "$1" in remove | 0) ;; *) exit 0 ;; esac
[ -n "${DPKG_ROOT:-}" ] || [ ! -d /run/systemd/system ] || systemctl disable --now procaas.service
