#!/bin/sh
# Installs a package of Debian into a folder, runs what it has installed, removes it, and purges it: sh deploy/install.sh FILE.deb VERSION
# The machine stays as it is. The package's scripts run in the folder, where a program takes the place of systemctl. What an ordinary user
# may not do, root may in a namespace. Where there are none, the scripts only learn which folder it is.
set -eu
package=$1 version=$2
if [ "$(id -u)" != 0 ] && unshare --map-root-user true 2>/dev/null; then
	exec unshare --map-root-user sh "$0" "$@"
fi
root=$(mktemp -d)
trap 'rm -rf "$root"' EXIT
wrong() { echo "$package: $*" >&2; exit 1; }
has() { for file in "$@"; do [ -s "$root/$file" ] || wrong "$file is missing"; done; }
lacks() { for file in "$@"; do [ ! -e "$root/$file" ] || wrong "$file is left behind"; done; }

mkdir -p "$root/var/lib/dpkg/info" "$root/var/lib/dpkg/updates" "$root/var/lib/procaas" "$root/run/systemd/system" "$root/bin"
touch "$root/var/lib/dpkg/status" "$root/systemctl.log"
sh=$(command -v sh)
for file in "$sh" $(ldd "$sh" | grep -o '/[^ ]*'); do
	mkdir -p "$root/${file%/*}" && cp -L "$file" "$root/$file"
done
[ -e "$root/bin/sh" ] || cp -L "$sh" "$root/bin/sh"
printf '#!/bin/sh\necho "$*" >>/systemctl.log\n' >"$root/bin/systemctl"
chmod +x "$root/bin/systemctl"
set -- --root="$root" --log=/dev/null --force-not-root --force-confold
chrooted=yes
if chroot "$root" /bin/sh -c : 2>/dev/null; then
	run() { chroot "$root" "$@"; }
	told() { [ "$(cat "$root/systemctl.log")" = "$1" ] || wrong "the scripts told systemd: $(cat "$root/systemctl.log"), want: $1"; }
else
	chrooted=no
	echo "no chroot here: the scripts of the package only learn its root, and nothing of it is checked by its program" >&2
	set -- "$@" --force-script-chrootless
	run() { program=$1 && shift && "$root$program" "$@"; }
	told() { :; }
fi

dpkg "$@" --install "$package"
told daemon-reload
run /usr/bin/procaas version --format json | grep -q "\"$version\"" || wrong "its program has another version than $version"
has etc/procaas/flows usr/share/doc/procaas/copyright usr/lib/systemd/system/procaas.service
sed "s,=/usr/bin/procaas,=$root/usr/bin/procaas," "$root/usr/lib/systemd/system/procaas.service" >"$root/procaas.service"
systemd-analyze verify --man=no "$root/procaas.service"
has usr/share/man/man1/procaas.1.gz usr/share/man/man1/procaas-serve.1.gz
gunzip -t "$root"/usr/share/man/man1/*.gz
bash -c '. "$1" && complete -p procaas' bash "$root/usr/share/bash-completion/completions/procaas" >/dev/null
has usr/share/fish/vendor_completions.d/procaas.fish usr/share/zsh/vendor-completions/_procaas

cp "$root/usr/share/doc/procaas/examples/ping.yaml" "$root/etc/procaas/flows/"
[ -z "$(dpkg "$@" --verify procaas)" ] || wrong "dpkg --verify names files"
echo 'max-in-flight: 17' >>"$root/etc/procaas/node.yaml"
dpkg "$@" --install "$package"
grep -q 'max-in-flight: 17' "$root/etc/procaas/node.yaml" || wrong "an upgrade replaces /etc/procaas/node.yaml"
[ "$chrooted" = no ] || run /usr/bin/procaas serve --config /etc/procaas/node.yaml --check

touch "$root/var/lib/procaas/procaas.db"
: >"$root/systemctl.log"
dpkg "$@" --remove procaas
told "disable --now procaas.service
daemon-reload"
lacks usr/bin/procaas usr/lib/systemd/system/procaas.service usr/share/man/man1
has etc/procaas/node.yaml etc/procaas/flows/ping.yaml
dpkg "$@" --purge procaas
lacks etc/procaas/node.yaml var/lib/dpkg/info/procaas.list
has etc/procaas/flows/ping.yaml
[ -e "$root/var/lib/procaas/procaas.db" ] || wrong "a purge takes the store"
