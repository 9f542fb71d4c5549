#!/bin/sh
# Make a container of the namespaces that this script is the first process of, as a runtime does.
# $1 is its root, $2 the id on the node of its root user, $3 whether its root may be written.
# Each line of the input is a mount: source, target, and ro or rw, in the order of mounting.
set -eu
root=$1 owner=$2 access=$3

mount --make-rprivate /
mount --bind "$root" "$root"
for place in bin sbin lib lib64; do
  if test -d "/usr/$place"; then
    mkdir -p "$root/usr/$place"
    mount --bind -o ro "/usr/$place" "$root/usr/$place"
  fi
done
mount -t proc proc "$root/proc"
mount --bind /dev "$root/dev"

# What is mounted on is made where an image lacks it, by the container's root user.
made() {
  if test -z "$1" || test -e "$1"; then
    return 0
  fi
  made "${1%/*}"
  mkdir -m 755 "$1"
  chown "$owner:$owner" "$1"
}
while read -r source target mode; do
  if test -d "$source"; then
    made "$root$target"
  elif test ! -e "$root$target"; then
    made "$root${target%/*}"
    : >"$root$target"
    chown "$owner:$owner" "$root$target"
  fi
  mount --bind "$source" "$root$target"
  mount -o "remount,bind,nosuid,$mode" "$root$target"
done
if test "$access" = ro; then
  mount -o remount,bind,ro "$root"
fi

cd "$root"
pivot_root . .
umount -l .
cd /
if test "$owner" = 0; then
  echo ready
  exec sleep infinity
fi
exec unshare --user sh -c 'echo ready && exec sleep infinity'
