#!/bin/sh
# Installs a package of Debian into a folder, and runs what it has installed: sh deploy/install.sh FILE.deb
set -eu
package=$1
root=$(mktemp -d)
trap 'rm -rf "$root"' EXIT
mkdir -p "$root/var/lib/dpkg/info" "$root/var/lib/dpkg/updates"
touch "$root/var/lib/dpkg/status"
dpkg --root="$root" --log=/dev/null --force-not-root --force-script-chrootless --install "$package"
"$root/usr/bin/procaas" version --format json
gunzip -t "$root"/usr/share/man/man1/procaas-serve.1.gz
bash -n "$root/usr/share/bash-completion/completions/procaas"
for file in usr/lib/systemd/system/procaas.service usr/share/fish/vendor_completions.d/procaas.fish usr/share/zsh/vendor-completions/_procaas etc/procaas/flows; do
	[ -s "$root/$file" ] || { echo "$file is missing in $package" >&2; exit 1; }
done
dpkg --root="$root" --log=/dev/null --force-not-root --force-script-chrootless --purge procaas
[ ! -e "$root/usr/bin/procaas" ]
