# SPDX-License-Identifier: GPL-2.0
"""Boots one guest and runs one suite in it; `run` starts this inside the root.

/work is the folder of all runs: images and initramfs parts that every run copies, and a folder for
each run with its drives, its BARs and serial.log.
"""

import argparse
import contextlib
import ctypes
import fcntl
import glob
import hashlib
import itertools
import os
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import time

import supervise

HERE = os.path.dirname(os.path.abspath(__file__))
TREE = os.path.dirname(os.path.dirname(HERE))
WORK = "/work"
BUILD = os.environ["NVFS_BUILD"]
GIB = 1 << 30
MD_CHUNK = 64 << 10

# The kernel's folder, what it is told at boot, and how much more time it gets.
FLAVOURS = {
    "stock": ("/kernel", "", 1),
    "debug": ("/kernel-debug", "kasan_multi_shot kmemleak=on", 4),
}
CPUS = {"max": "max,la57=off", "epyc": "EPYC"}
# QEMU's device (before all others) and the kernel's options.
IOMMUS = {
    "none": ([], ""),
    "intel": (["-device", "intel-iommu,intremap=on"], "intel_iommu=on"),
    "intel-pt": (["-device", "intel-iommu,intremap=on"], "intel_iommu=on iommu=pt"),
    # Without dma-remap=on every drive times out.
    "amd": (["-device", "amd-iommu,dma-remap=on"], ""),
}
GPUS = ("gpu0", "gpu1")
DRIVES = ("ext4", "xfs", "md0", "md1", "raw", "far")


def arguments():
    p = argparse.ArgumentParser(prog="run")
    p.add_argument("suite", help="selftests/suites/SUITE.sh")
    p.add_argument("--cpu", choices=CPUS, default="max")
    p.add_argument("--iommu", choices=IOMMUS, default="none")
    p.add_argument("--topology", choices=TOPOLOGIES, default="switch")
    p.add_argument("--bar", default="256M", metavar="SIZE", help="of each GPU, with M or G")
    p.add_argument("--smp", type=int, default=2, metavar="N")
    p.add_argument("--timeout", type=float, default=900, metavar="SECONDS",
                   help="four times as much on the debug kernel")
    p.add_argument("--flavour", choices=FLAVOURS, default="stock")
    p.add_argument("--hook", action="store_true", help="the drives' driver is selftests/nvme_hook")
    p.add_argument("--errors", choices=DRIVES, metavar="SERIAL",
                   help="a drive that fails reads at byte 671088640 and writes at byte 838860800")
    p.add_argument("--bench", action="store_true",
                   help="instructions are counted: the plugin of selftests/bench, and time goes by them")
    p.add_argument("--profile", action="store_true", help="with --bench: where they are, too")
    p.add_argument("--append", default="", metavar="TEXT",
                   help="for the kernel's command line; NAME=VALUE is an environment variable of the suite")
    p.add_argument("--extra", default="", metavar="TEXT", help="for QEMU's command line")
    p.add_argument("--keep", action="store_true", help="keep the drives and the BARs")
    return p.parse_args()


def once(path, make):
    """Makes a file that all runs share, unless it is there. MAKE gets the path to write to."""
    if not os.path.exists(path):
        new = f"{path}.{os.getpid()}"
        make(new)
        os.rename(new, path)
    return path


def quiet(*command):
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)


def sparse(path, size):
    with open(path, "wb") as f:
        f.truncate(size)


def mkfs(path, size, *command):
    sparse(path, size)
    quiet(*command, path)


# Nothing is left for the guest to initialise in the background.
EXT4 = ("mkfs.ext4", "-q", "-F", "-b", "4096", "-N", "4096", "-J", "size=16",
        "-E", "lazy_itable_init=0,lazy_journal_init=0")
XFS = ("mkfs.xfs", "-q", "-f")


def stripe(source, path, member):
    """Every second chunk of a file, as the MEMBER'th drive of a raid0 of two has it."""
    sparse(path, os.path.getsize(source) // 2)
    with open(source, "rb") as f, open(path, "r+b") as out:
        for i in range(member, os.path.getsize(source) // MD_CHUNK, 2):
            f.seek(i * MD_CHUNK)
            data = f.read(MD_CHUNK)
            if data.count(0) != MD_CHUNK:
                out.seek(i // 2 * MD_CHUNK)
                out.write(data)


def images():
    """The drives' first contents, by serial."""
    recipe = hashlib.sha256(repr((EXT4, XFS, MD_CHUNK)).encode())
    folder = f"{WORK}/images/{recipe.hexdigest()[:16]}"
    os.makedirs(folder, exist_ok=True)
    # The two halves of the array must be of one file system: one run at a time makes them.
    lock = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    fcntl.flock(lock, fcntl.LOCK_EX)
    ext4 = once(f"{folder}/ext4", lambda new: mkfs(new, 8 * GIB, *EXT4))
    xfs = once(f"{folder}/xfs", lambda new: mkfs(new, 8 * GIB, *XFS))
    md = once(f"{folder}/md", lambda new: mkfs(new, 2 * GIB, *EXT4))
    drives = {
        "ext4": ext4,
        "xfs": xfs,
        "md0": once(f"{folder}/md0", lambda new: stripe(md, new, 0)),
        "md1": once(f"{folder}/md1", lambda new: stripe(md, new, 1)),
        "raw": once(f"{folder}/raw", lambda new: sparse(new, 8 * GIB)),
        "far": ext4,
    }
    os.close(lock)
    return drives


def base_initramfs(kernel):
    """The part of the initramfs that no test changes, made again when its recipe changes."""
    recipe = hashlib.sha256()
    for path in [f"{HERE}/mkinitrd", f"{kernel}/release", *sorted(glob.glob(f"{HERE}/guest/*.c")),
                 f"{TREE}/selftests/lib/host.c", f"{TREE}/selftests/lib/host.h"]:
        with open(path, "rb") as f:
            recipe.update(f.read())
    recipe.update(str(os.stat(f"{kernel}/vmlinuz").st_mtime_ns).encode())
    os.makedirs(f"{WORK}/initramfs", exist_ok=True)
    return once(f"{WORK}/initramfs/{recipe.hexdigest()[:16]}.cpio",
                lambda new: quiet(f"{HERE}/mkinitrd", kernel, new))


def initramfs(kernel, flavour, suite, folder):
    """The initramfs of one run: the base, then ours as a second archive."""
    build = f"{BUILD}/{flavour}"
    ours = f"{folder}/ours"
    os.makedirs(f"{ours}/modules")
    os.makedirs(f"{ours}/tests")
    for module in glob.glob(f"{build}/*.ko") + glob.glob(f"{build}/selftests/*/*.ko"):
        shutil.copy(module, f"{ours}/modules")
    for program in glob.glob(f"{build}/selftests/bin/*"):
        shutil.copy(program, f"{ours}/tests")
    for script in glob.glob(f"{HERE}/guest/*.sh"):
        shutil.copy(script, ours)
    shutil.copy(f"{HERE}/guest/init", ours)
    shutil.copy(f"{TREE}/docs/admin.md", ours)
    with open(f"{ours}/suite", "w") as f, open(f"{TREE}/selftests/suites/{suite}.sh") as text:
        f.write(". /functions.sh\n" + text.read() + "\nfinish\n")
    out = f"{folder}/initramfs"
    shutil.copy(base_initramfs(kernel), out)
    with open(out, "ab") as f:
        names = subprocess.run(["find", "."], cwd=ours, check=True, capture_output=True).stdout
        subprocess.run(["cpio", "-o", "-H", "newc", "--quiet"], cwd=ours, check=True, input=names, stdout=f)
    shutil.rmtree(ours)
    return out


def root_port(name, bus, number):
    return ["-device", f"pcie-root-port,id={name},bus={bus},chassis={number},slot={number}"]


def endpoint(name, bus):
    kind = f"ivshmem-plain,memdev=bar-{name}" if name in GPUS else f"nvme,drive=drive-{name},serial={name}"
    return ["-device", f"{kind},id={name},bus={bus}"]


def switch(name, root, number, endpoints):
    """A switch below a root port, with an endpoint below each of its downstream ports."""
    args = root_port(f"root-{name}", root, number)
    args += ["-device", f"x3130-upstream,id=up-{name},bus=root-{name}"]
    for slot, device in enumerate(endpoints):
        args += ["-device", f"xio3130-downstream,id=port-{device},bus=up-{name},"
                            f"chassis={10 * number + slot},slot={slot}"]
        args += endpoint(device, f"port-{device}")
    return args


def root_ports(root, number, endpoints):
    args = []
    for n, device in enumerate(endpoints, number):
        args += root_port(f"port-{device}", root, n) + endpoint(device, f"port-{device}")
    return args


def host_bridge(name, bus, node):
    return ["-device", f"pxb-pcie,id={name},bus=pcie.0,bus_nr={bus},numa_node={node}"]


NEAR, FAR = ("gpu0", "ext4", "xfs", "md0", "md1"), ("gpu1", "far")
FAR_BRIDGE = host_bridge("pxb1", 128, 1)


def two_switches():
    return (switch("near", "pcie.0", 1, NEAR) + root_ports("pcie.0", 2, ("raw",)) +
            FAR_BRIDGE + switch("far", "pxb1", 8, FAR))


def only_root_ports():
    return root_ports("pcie.0", 1, (*NEAR, "raw")) + FAR_BRIDGE + root_ports("pxb1", 8, FAR)


def one_port():
    """All are functions of one device."""
    args = root_port("one", "pcie.0", 1)
    for function, device in enumerate((*NEAR, *FAR, "raw")):
        args += endpoint(device, f"one,addr=00.{function},multifunction=on")
    return args


def nodes():
    """A host bridge at each node; `raw` is on the root bus of the third, at none."""
    return (endpoint("raw", "pcie.0") + host_bridge("pxb0", 64, 0) + root_ports("pxb0", 1, NEAR) +
            FAR_BRIDGE + root_ports("pxb1", 8, FAR))


def acs():
    """Two levels of switches. What QEMU calls a root port is the only bridge of its that has ACS,
    so one stands between them, with `ext4` just below it."""
    args = root_port("root", "pcie.0", 1) + ["-device", "x3130-upstream,id=up1,bus=root"]
    args += ["-device", "xio3130-downstream,id=down1,bus=up1,chassis=10,slot=0"]
    args += ["-device", "xio3130-downstream,id=down2,bus=up1,chassis=10,slot=1"]
    args += endpoint("md0", "down2") + root_port("middle", "down1", 2)
    args += ["-device", "x3130-upstream,id=up2,bus=middle,addr=00.0,multifunction=on"]
    args += endpoint("ext4", "middle,addr=00.1,multifunction=on")
    for slot, device in enumerate(("gpu0", "xfs")):
        args += ["-device", f"xio3130-downstream,id=port-{device},bus=up2,chassis=20,slot={slot}"]
        args += endpoint(device, f"port-{device}")
    return args + root_ports("pcie.0", 3, ("md1", "raw")) + FAR_BRIDGE + root_ports("pxb1", 8, FAR)


def functions(kind, bus, slot, name):
    """A device of eight functions."""
    args = []
    for function in range(8):
        args += ["-device", f"{kind},id={name}-{function},bus={bus},addr={slot:#x}.{function},multifunction=on"]
    return args


def many():
    """Five GPUs, 70 peers, and others that are neither."""
    nic, old_nic = "e1000e,romfile=", "rtl8139,romfile="
    args = only_root_ports()
    for gpu in ("gpu2", "gpu3", "gpu4"):
        args += ["-object", f"memory-backend-ram,id=bar-{gpu},size=1M,share=on"]
    for slot in range(0x10, 0x14):
        args += functions(nic, "pcie.0", slot, f"nic{slot}")
    args += ["-device", "ivshmem-plain,memdev=bar-gpu2,id=gpu2,bus=pcie.0,addr=0x14"]
    for slot, decoy in ((0x15, "virtio-rng-pci"), (0x16, "VGA,vgamem_mb=1,romfile="), (0x17, "qemu-xhci")):
        args += ["-device", f"{decoy},bus=pcie.0,addr={slot:#x}"]
    for n, port in enumerate(("nics", "old", "gpu3")):
        args += ["-device", f"pcie-root-port,id=p-{port},bus=pcie.0,addr={0x18 + n:#x},chassis={40 + n},slot={40 + n}"]
    args += functions(nic, "p-nics", 0, "nic")
    args += ["-device", "pcie-pci-bridge,id=old,bus=p-old"]
    for slot in range(1, 4):
        args += functions(old_nic, "old", slot, f"old{slot}")
    args += ["-device", "ivshmem-plain,memdev=bar-gpu4,id=gpu4,bus=old,addr=4"]
    return args + ["-device", "ivshmem-plain,memdev=bar-gpu3,id=gpu3,bus=p-gpu3"]


# The PCI devices. In the first two, gpu1 and the drive `far` are below the second host bridge.
TOPOLOGIES = {"switch": two_switches, "rootports": only_root_ports, "oneport": one_port,
              "nodes": nodes, "acs": acs, "many": many}


def counting(opts, folder):
    """With one thread and time by instructions, counts repeat to half a percent."""
    if not opts.bench:
        return ["-accel", "tcg,thread=multi"]
    plugin = f"{BUILD}/{opts.flavour}/selftests/bench/plugin/count.so"
    if opts.profile:
        plugin += f",profile={folder}/profile"
    if opts.smp > 1:
        # QEMU 11.1 crashes when one thread runs several CPUs with a plugin, and time can go by
        # instructions with one thread only.
        return ["-accel", "tcg,thread=multi", "-plugin", plugin]
    return ["-accel", "tcg,thread=single", "-icount", "shift=1,sleep=on", "-plugin", plugin]


def node_gib(opts):
    """GiB of a node. KASAN has a byte for eight of what two modules map of each BAR."""
    if opts.flavour == "debug" and opts.bar.endswith("G"):
        return 1 + int(opts.bar[:-1]) // 2
    return 1


def machine(smp, node_gib):
    """Two nodes, and two sockets: two nodes in one socket make the kernel warn."""
    if smp == 1:
        nodes, cpus = ["0", None], "1"
    elif smp % 2 == 0:
        half = smp // 2
        nodes, cpus = [f"0-{half - 1}", f"{half}-{smp - 1}"], f"{smp},sockets=2,cores={half}"
    else:
        sys.exit("run: --smp must be 1 or even")
    args = ["-M", "q35", "-smp", cpus, "-m", f"{2 * node_gib}G"]
    for n, which in enumerate(nodes):
        args += ["-object", f"memory-backend-ram,id=node{n},size={node_gib}G",
                 "-numa", f"node,nodeid={n},memdev=node{n}" + (f",cpus={which}" if which else "")]
    return args


# Sectors of 512 bytes.
BAD_SECTORS = """\
[inject-error]
event = "none"
iotype = "read"
errno = "5"
sector = "1310720"

[inject-error]
event = "none"
iotype = "write"
errno = "5"
sector = "1638400"
"""


def memory_and_drives(folder, bar, errors):
    args = []
    for gpu in GPUS:
        args += ["-object", f"memory-backend-file,id=bar-{gpu},mem-path={folder}/{gpu},size={bar},share=on"]
    for drive in DRIVES:
        file = f"{folder}/{drive}"
        if drive == errors:
            with open(f"{folder}/errors", "w") as f:
                f.write(BAD_SECTORS)
            file = f"blkdebug:{folder}/errors:{file}"
        args += ["-drive", f"if=none,id=drive-{drive},file={file},format=raw,cache=writeback"]
    return args


def qemu_command(opts, folder, lines):
    """LINES: file descriptors of the suite's output, the requests, the kernel's console, the monitor."""
    kernel, kernel_options, _ = FLAVOURS[opts.flavour]
    iommu, iommu_options = IOMMUS[opts.iommu]
    command = ["qemu-system-x86_64", *counting(opts, folder), *machine(opts.smp, node_gib(opts)),
               "-cpu", CPUS[opts.cpu], "-nodefaults", "-no-user-config", "-display", "none",
               "-no-reboot", "-net", "none"]
    for name, fd in zip(("suite", "requests", "console"), lines):
        command += ["-chardev", f"socket,id={name},fd={fd}", "-serial", f"chardev:{name}"]
    command += ["-chardev", f"socket,id=monitor,fd={lines[3]}", "-mon", "chardev=monitor,mode=control"]
    command += ["-device", "isa-debug-exit,iobase=0xf4,iosize=0x04"]
    append = ["console=ttyS2,115200", "ignore_loglevel", "no_timer_check", "panic=-1", "oops=panic",
              f"TB_TOPOLOGY={opts.topology}", f"TB_CPU={opts.cpu}", f"TB_IOMMU={opts.iommu}",
              f"TB_BAR={opts.bar}", f"TB_FLAVOUR={opts.flavour}",
              f"TB_NVME={'hooked' if opts.hook else 'stock'}",
              kernel_options, iommu_options, opts.append]
    command += ["-kernel", f"{kernel}/vmlinuz", "-initrd", f"{folder}/initramfs", "-append", " ".join(append)]
    command += iommu + memory_and_drives(folder, opts.bar, opts.errors) + TOPOLOGIES[opts.topology]()
    return command + shlex.split(opts.extra)


def die_with_parent():
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)


# linux/socket.h: as SO_SNDBUF, beyond the system's limit.
SO_SNDBUFFORCE = 32


def serial_lines(count):
    """Pairs of sockets, ours and QEMU's, with room for all that a kernel has to say at once.

    QEMU writes each character by itself, and of these the usual buffer holds 278. What finds it full is
    lost, in the middle of a line: the kernel does not wait for a serial line that is slow.
    """
    pairs = [socket.socketpair() for _ in range(count)]
    for _, theirs in pairs:
        try:
            theirs.setsockopt(socket.SOL_SOCKET, SO_SNDBUFFORCE, 256 << 20)
        except PermissionError:
            theirs.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 256 << 20)
    return pairs


def boot(opts, folder, judge):
    """Runs QEMU to its end or to the time limit."""
    pairs = serial_lines(4)
    command = qemu_command(opts, folder, [theirs.fileno() for _, theirs in pairs])
    log = open(f"{folder}/serial.log", "w", buffering=1)
    log.write(shlex.join(command) + "\n")

    def suite_line(line):
        log.write(line + "\n")
        if judge.output(line):
            print(line, flush=True)

    def kernel_line(line):
        log.write(line + "\n")
        judge.kernel(line)

    qemu = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                            pass_fds=[theirs.fileno() for _, theirs in pairs], preexec_fn=die_with_parent)
    for _, theirs in pairs:
        theirs.close()
    output, requests, console, monitor = [ours for ours, _ in pairs]
    readers = [supervise.Lines(output, suite_line), supervise.Lines(console, kernel_line)]
    files = {name: f"{folder}/{name}" for name in GPUS + DRIVES}
    supervise.Control(requests, supervise.Monitor(monitor), files, lambda text: log.write(text + "\n"))
    limit = opts.timeout * FLAVOURS[opts.flavour][2]
    try:
        code = qemu.wait(limit)
    except subprocess.TimeoutExpired:
        judge.problem(f"time limit of {limit:g} s")
        qemu.kill()
        code = qemu.wait()
    for reader in readers:
        reader.join()
    judge.finish(code)


@contextlib.contextmanager
def built(flavour):
    """Waits for a build that is going on, and holds off the next one."""
    os.makedirs(BUILD, exist_ok=True)
    with open(f"{BUILD}/{flavour}.lock", "a") as lock:
        fcntl.flock(lock, fcntl.LOCK_SH)
        if not os.path.exists(f"{BUILD}/{flavour}/.built"):
            sys.exit(f"run: nothing built, or the last build failed: build {flavour}")
        yield


def digest(path):
    with open(path, "rb") as f:
        return hashlib.sha256(f.read()).hexdigest()[:12]


def run_folder(name):
    """A folder of our own, locked for as long as we live; emptied of an earlier run."""
    for n in itertools.count(1):
        folder = f"{WORK}/{name}" + (f".{n}" if n > 1 else "")
        os.makedirs(folder, exist_ok=True)
        lock = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(lock)
            continue
        for entry in os.scandir(folder):
            shutil.rmtree(entry.path) if entry.is_dir() else os.remove(entry.path)
        return folder


def print_tail(path):
    with open(path) as log:
        for line in log.readlines()[-20:]:
            print("# | " + line.rstrip())


def main():
    opts = arguments()
    kernel = FLAVOURS[opts.flavour][0]
    if not os.path.exists(f"{TREE}/selftests/suites/{opts.suite}.sh"):
        sys.exit(f"run: no suite {opts.suite}")
    die_with_parent()
    start = time.monotonic()
    configuration = f"{opts.suite}-{opts.topology}-{opts.cpu}-{opts.iommu}"
    if opts.hook:
        configuration += "-hook"
    if opts.bench:
        configuration += f"-bench{opts.smp}"
    if opts.flavour != "stock":
        configuration += f"-{opts.flavour}"
    folder = run_folder(configuration)
    with built(opts.flavour):
        initramfs(kernel, opts.flavour, opts.suite, folder)
        tested = digest(f"{BUILD}/{opts.flavour}/nvidia-fs.ko")
    for serial, image in images().items():
        quiet("cp", "--sparse=always", "--reflink=auto", image, f"{folder}/{serial}")

    judge = supervise.Judge()
    boot(opts, folder, judge)
    if judge.no_machine():
        print("# the kernel met a breakpoint of its own before init, a fault of QEMU's: booted anew")
        judge = supervise.Judge()
        boot(opts, folder, judge)
    if not opts.keep:
        for name in (*GPUS, *DRIVES, "initramfs"):
            os.remove(f"{folder}/{name}")
    for problem in judge.problems:
        print(f"# problem: {problem}")
    if judge.exit is None:
        print_tail(f"{folder}/serial.log")
    failed = judge.failed or len(judge.problems)
    if failed:
        print(f'# log: {os.environ["NVFS_RUNS"]}/{os.path.basename(folder)}/serial.log')
    print(f"# {configuration}: {judge.passed} passed, {failed} failed, {judge.skipped} skipped"
          f" in {time.monotonic() - start:.1f} s, nvidia-fs.ko {tested}")
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
