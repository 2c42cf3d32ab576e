#!/bin/sh
# Installs a package into a folder, runs what it has installed, updates it and removes it: sh deploy/install.sh FILE.deb|FILE.rpm VERSION
# One of Debian is purged, too. The machine stays as it is. The package's scripts run in the folder, where a program takes the place of
# systemctl. What an ordinary user may not do, root may in a namespace. Where there are none, the scripts of Debian's package only learn
# which folder it is, and that of Red Hat cannot be installed.
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

mkdir -p "$root/var/lib/procaas" "$root/run/systemd/system" "$root/bin"
touch "$root/systemctl.log"
sh=$(command -v sh)
for file in "$sh" $(ldd "$sh" | grep -o '/[^ ]*'); do
	mkdir -p "$root/${file%/*}" && cp -L "$file" "$root/$file"
done
[ -e "$root/bin/sh" ] || cp -L "$sh" "$root/bin/sh"
printf '#!/bin/sh\necho "$*" >>/systemctl.log\n' >"$root/bin/systemctl"
chmod +x "$root/bin/systemctl"
chrooted=yes
if chroot "$root" /bin/sh -c : 2>/dev/null; then
	run() { chroot "$root" "$@"; }
	told() { [ "$(cat "$root/systemctl.log")" = "$1" ] || wrong "the scripts told systemd: $(cat "$root/systemctl.log"), want: $1"; }
else
	chrooted=no
	echo "no chroot here: the scripts of the package only learn its root, and nothing of it is checked by its program" >&2
	run() { program=$1 && shift && "$root$program" "$@"; }
	told() { :; }
fi
case $package in
*.deb)
	mkdir -p "$root/var/lib/dpkg/info" "$root/var/lib/dpkg/updates"
	touch "$root/var/lib/dpkg/status"
	set -- --root="$root" --log=/dev/null --force-not-root --force-confold
	[ "$chrooted" = yes ] || set -- "$@" --force-script-chrootless
	set -- dpkg "$@"
	install=--install remove=--remove verify=--verify zsh=vendor-completions left=etc/procaas/node.yaml
	;;
*.rpm)
	[ "$chrooted" = yes ] || wrong "rpm needs root, or a machine whose users have namespaces"
	# The database in the folder is empty, so it does not know the package of the shell either.
	set -- rpm --root "$root" --dbpath /var/lib/rpm --nodeps
	install="-U --replacepkgs" remove=-e verify=-V zsh=site-functions left=etc/procaas/node.yaml.rpmsave
	;;
*) wrong "want a package of Debian or Red Hat" ;;
esac

"$@" $install "$package"
told daemon-reload
run /usr/bin/procaas version --format json | grep -q "\"$version\"" || wrong "its program has another version than $version"
has etc/procaas/flows usr/share/doc/procaas/copyright usr/lib/systemd/system/procaas.service
sed "s,=/usr/bin/procaas,=$root/usr/bin/procaas," "$root/usr/lib/systemd/system/procaas.service" >"$root/procaas.service"
systemd-analyze verify --man=no "$root/procaas.service"
has usr/share/man/man1/procaas.1.gz usr/share/man/man1/procaas-serve.1.gz
gunzip -t "$root"/usr/share/man/man1/*.gz
bash -c '. "$1" && complete -p procaas' bash "$root/usr/share/bash-completion/completions/procaas" >/dev/null
has usr/share/fish/vendor_completions.d/procaas.fish usr/share/zsh/$zsh/_procaas

cp "$root/usr/share/doc/procaas/examples/ping.yaml" "$root/etc/procaas/flows/"
[ -z "$("$@" $verify procaas)" ] || wrong "$1 $verify names files"
echo 'max-in-flight: 17' >>"$root/etc/procaas/node.yaml"
: >"$root/systemctl.log"
"$@" $install "$package"
! grep disable "$root/systemctl.log" || wrong "an upgrade stops the node"
grep -q 'max-in-flight: 17' "$root/etc/procaas/node.yaml" || wrong "an upgrade replaces /etc/procaas/node.yaml"
[ "$chrooted" = no ] || run /usr/bin/procaas serve --config /etc/procaas/node.yaml --check

touch "$root/var/lib/procaas/procaas.db"
: >"$root/systemctl.log"
"$@" $remove procaas
told "disable --now procaas.service
daemon-reload"
lacks usr/bin/procaas usr/lib/systemd/system/procaas.service usr/share/man/man1/procaas.1.gz
has "$left" etc/procaas/flows/ping.yaml
case $package in *.deb)
	"$@" --purge procaas
	lacks etc/procaas/node.yaml var/lib/dpkg/info/procaas.list
	;;
esac
has etc/procaas/flows/ping.yaml
[ -e "$root/var/lib/procaas/procaas.db" ] || wrong "the store is taken, too"
