#!/bin/sh
# Make a machine of its own of the namespaces that this script is the first process of.
# What the machine writes lies below $1; nothing of it outlives the machine's last process.
set -eu
folder=$1 boot_id=$2 cgroups=$3

mount -t proc proc /proc
# What kubelet wants these to be, so that it leaves those of the real machine alone.
for sysctl in vm/overcommit_memory=1 vm/panic_on_oom=0 kernel/panic=10 kernel/panic_on_oops=1 \
  kernel/keys/root_maxkeys=1000000 kernel/keys/root_maxbytes=25000000 \
  ${boot_id:+kernel/random/boot_id="$boot_id"}; do
  name=${sysctl%%=*}
  mkdir -p "$folder/sysctl/${name%/*}"
  echo "${sysctl#*=}" >"$folder/sysctl/$name"
  mount --bind "$folder/sysctl/$name" "/proc/sys/$name"
done
test -n "$boot_id" || { # a network of its own
  mount -t sysfs sysfs /sys
  ip link set lo up
}
# What the kernel and a driver tell of devices: as it is, until a test writes more.
mkdir -p "$folder/proc/driver"
test -e "$folder/proc/devices" || cat /proc/devices >"$folder/proc/devices"
for place in driver devices; do
  mount --bind "$folder/proc/$place" "/proc/$place"
done

# Only what is below the machine's own group can be seen and made.
mount -t tmpfs tmpfs /sys/fs/cgroup
for controller in $cgroups; do
  place=/sys/fs/cgroup/${controller#name=}
  mkdir -p "$place"
  case $controller in
    name=*) options=none,$controller ;;
    *) options=$controller ;;
  esac
  mount -t cgroup -o "$options" cgroup "$place"
done

for place in usr etc opt; do
  mkdir -p "$folder/$place" "$folder/work/$place"
  mount -t overlay overlay \
    -o "lowerdir=/$place,upperdir=$folder/$place,workdir=$folder/work/$place" "/$place"
done
mkdir -p "$folder/var/lib" "$folder/var/log" "$folder/var/tmp" "$folder/run/lock"
ln -sfn /run "$folder/var/run"
mount --bind "$folder/var" /var
mount --bind "$folder/run" /run

mkdir -p "$folder/dev/pts" "$folder/dev/shm"
mount --bind "$folder/dev" /dev
while read -r name major minor; do
  test -e "/dev/$name" || mknod -m 666 "/dev/$name" c "$major" "$minor"
done <<DEVICES
null 1 3
zero 1 5
full 1 7
random 1 8
urandom 1 9
kmsg 1 11
tty 5 0
DEVICES
mount -t devpts -o newinstance,ptmxmode=0666,mode=620 devpts /dev/pts
mount -t tmpfs tmpfs /dev/shm
ln -sfn pts/ptmx /dev/ptmx
ln -sfn /proc/self/fd /dev/fd

mount --make-rshared /
touch "$folder/ready"
while :; do # whoever has lost its parent is buried here
  sleep 3600 &
  wait $!
done
