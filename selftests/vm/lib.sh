# SPDX-License-Identifier: GPL-2.0
# Shared by the test bed's scripts: where things are, and how to run a command inside the
# Debian 13 root. Sourced, never run.

set -eu

VM=$(cd "$(dirname "$0")" && pwd)
TREE=$(cd "$VM/../.." && pwd)

# The cache: safe to delete at any time, made anew by `setup`.
CACHE=${NVFS_CACHE:-${XDG_CACHE_HOME:-${HOME:-/root}/.cache}/nvidia-fs-testbed}
ROOT=$CACHE/root
# Two trees that share a cache build and run apart.
BUILD=/build/$(printf '%s' "$TREE" | cksum | cut -d' ' -f1)
RUNS=$CACHE/run/${BUILD##*/}

say() { printf '%s\n' "testbed: $*" >&2; }
die() { say "error: $*"; exit 1; }

# in_root COMMAND...: runs a command inside the root, with this tree read-only at /src and the
# folder of all runs at /work.
# The mounts live in a mount namespace of their own, so nothing is left behind.
in_root() {
	mkdir -p "$RUNS"
	# So that no `setup` takes the root away meanwhile.
	ROOT=$ROOT TREE=$TREE WORK=$RUNS flock --shared "$CACHE/lock" unshare --mount --propagation private sh -c '
		set -e
		mount -t proc proc "$ROOT/proc"
		mount --rbind /sys "$ROOT/sys"
		mount --rbind /dev "$ROOT/dev"
		mkdir -p "$ROOT/src" "$ROOT/work"
		mount --bind "$TREE" "$ROOT/src"
		mount -o remount,bind,ro "$ROOT/src"
		mount --bind "$WORK" "$ROOT/work"
		cp -L /etc/resolv.conf "$ROOT/etc/resolv.conf" 2>/dev/null || true
		exec chroot "$ROOT" /usr/bin/env -i HOME=/root TERM=dumb LC_ALL=C.UTF-8 \
			DEBIAN_FRONTEND=noninteractive TMPDIR=/tmp \
			PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin "$@"
	' sh "$@"
}

# kernel_release: the release of the Debian kernel that `setup` chose.
kernel_release() { cat "$ROOT/kernel/release"; }
