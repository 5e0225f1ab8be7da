# SPDX-License-Identifier: GPL-2.0
"""The host's side of one run: judges what the guest prints and answers its requests.

Requests, one line each on the guest's ttyS1, and their one-line replies (`error ...` when
impossible). TARGET is gpu0 or gpu1 (the memory behind the BAR) or the serial of a drive; numbers
are decimal or 0x:

    qmp JSON                                    ok JSON         what the monitor returns
    event NAME DEVICE SECONDS                   ok JSON         waits for a monitor event
    sha256 TARGET OFFSET LENGTH                 HEX
    bytes TARGET OFFSET LENGTH                  HEX             at most 1024 bytes
    compare TARGET OFFSET LENGTH SEED [FIRST]   ok | bad INDEX  of the first wrong word
    fill TARGET OFFSET LENGTH BYTE              ok
    pattern TARGET OFFSET LENGTH SEED [FIRST]   ok              writes what compare expects
    drive SERIAL REQUEST OFFSET ...             as REQUEST SERIAL OFFSET ...

Word i of the pattern, 64 bits and little-endian, is SEED * 0x9e3779b97f4a7c15 + i; FIRST (0) is
the index of the word at OFFSET.
"""

import array
import hashlib
import json
import os
import re
import threading

MULTIPLIER = 0x9E3779B97F4A7C15
CHUNK_WORDS = 1 << 16
CHUNK = 8 * CHUNK_WORDS
MAX_REPLY = 3500

BAD_LINE = re.compile(
    r"BUG:|WARNING:|DMAR: \[|DMAR: DRHD: handling fault|AMD-Vi.*(?i:fault|event)|Oops|rcu:.*stall"
    r"|RCU.*stall|INFO: task|INFO: possible|UBSAN|KASAN|DMA-API:|general protection|Call Trace"
    r"|soft lockup|unregistered|refcount|Kernel panic")
# An allocation that failed, on purpose or not, is no fault; its backtrace comes next.
FAILED_ALLOCATION = re.compile(r"vmalloc error: size|page allocation failure: order")
# What the module says has no addresses of the kernel.
ADDRESS = re.compile(r"nvidia.fs.*\bf{4}[0-9a-f]{12}\b")
# Said at boot by healthy kernels.
GOOD_LINE = re.compile(r"DMA-API: (preallocated|debugging (enabled|disabled))")


def pattern(seed, first, length):
    """The bytes of the pattern, in pieces that are valid until the next one is asked for."""
    # In an aligned chunk only the two low bytes of the words differ, so the others are filled in
    # by whole columns.
    low = array.array("H", range(CHUNK_WORDS)).tobytes()
    chunk = bytearray(CHUNK)
    chunk[0::8] = low[0::2]
    chunk[1::8] = low[1::2]
    word = seed * MULTIPLIER + first
    while length > 0:
        word %= 1 << 64
        start = word % CHUNK_WORDS
        for column, byte in enumerate((word >> 16).to_bytes(6, "little"), 2):
            chunk[column::8] = bytes([byte]) * CHUNK_WORDS
        n = min(length, CHUNK - 8 * start)
        yield memoryview(chunk)[8 * start:8 * start + n]
        word += CHUNK_WORDS - start
        length -= n


class Judge:
    """Counts the results and keeps a list of all that makes the run a failure."""

    def __init__(self):
        self.passed = self.failed = self.skipped = 0
        self.problems = []
        self.exit = None
        self.began = False      # the guest's init has said something
        self.stray = False      # the kernel met a breakpoint that it had taken away
        self.excused = False    # the next backtrace is that of a failed allocation
        self.sections = 0
        self.planned = None     # results that the open section announced
        self.seen = 0           # and has had

    def problem(self, text):
        self.problems.append(text)

    def close_section(self):
        if self.planned is None and self.seen:
            self.problem(f"{self.seen} results without a plan")
        elif self.planned is not None and self.planned != self.seen:
            self.problem(f"{self.planned} results planned, {self.seen} seen")
        elif self.planned is not None:
            self.sections += 1
        self.planned, self.seen = None, 0

    def plan(self, number):
        if self.planned is not None:
            self.close_section()
        self.planned = number
        if self.seen:
            self.close_section()

    def result(self, good, text):
        if self.planned is not None and self.seen == self.planned:
            self.close_section()
        self.seen += 1
        if not good:
            self.failed += 1
        elif re.search(r"# *SKIP\b", text, re.I):
            self.skipped += 1
        else:
            self.passed += 1

    def output(self, line):
        """One line of the suite. Returns whether it is for people to see."""
        self.began = True
        if found := re.match(r"(not )?ok \d+\b(.*)", line):
            self.result(not found[1], found[2])
        elif found := re.match(r"1\.\.(\d+)\b", line):
            self.plan(int(found[1]))
        elif found := re.match(r"TB: exit (\d+)$", line):
            self.exit = int(found[1])
            return False
        elif line.startswith("Bail out!"):
            self.problem(line)
        else:
            return line.startswith("#")
        return True

    def kernel(self, line):
        self.stray |= "Oops: int3" in line
        if FAILED_ALLOCATION.search(line):
            self.excused = True
        elif self.excused and "Call Trace:" in line:
            self.excused = False
        elif BAD_LINE.search(line) and not GOOD_LINE.search(line):
            self.problem("kernel log: " + line)
        elif ADDRESS.search(line):
            self.problem("an address in the kernel's log: " + line)

    def no_machine(self):
        """Whether the emulator failed before there was anything to judge. With several threads QEMU's
        TCG may let a CPU meet the breakpoint by which the kernel has just patched its code."""
        return self.stray and not self.began

    def finish(self, qemu_code):
        self.close_section()
        if not self.sections and not self.problems:
            self.problem("no plan")
        if self.exit is None:
            self.problem("the guest did not reach its end")
        elif self.exit:
            self.problem(f"the suite ended with {self.exit}")
        if qemu_code != 1 and not self.exit:
            self.problem(f"QEMU ended with {qemu_code}")


class Monitor(threading.Thread):
    """QEMU's monitor."""

    def __init__(self, socket):
        super().__init__(daemon=True)
        self.stream = socket.makefile("rwb", buffering=0)
        self.changed = threading.Condition()
        self.replies = {}
        self.requests = 0
        self.events = []
        self.start()

    def run(self):
        for line in self.stream:
            message = json.loads(line)
            if "QMP" in message:    # its greeting
                self.stream.write(b'{"execute": "qmp_capabilities", "id": "hello"}\n')
                continue
            if message.get("id") == "hello":
                continue
            with self.changed:
                if "event" in message:
                    self.events.append(message)
                elif "return" in message or "error" in message:
                    self.replies[message.get("id")] = message
                self.changed.notify_all()

    def request(self, command):
        self.requests += 1
        own = self.requests
        self.stream.write(json.dumps(command | {"id": own}).encode() + b"\n")
        with self.changed:
            if not self.changed.wait_for(lambda: own in self.replies, 300):
                raise ValueError("the monitor does not answer")
            reply = self.replies.pop(own)
        if "error" in reply:
            raise ValueError(json.dumps(reply["error"]))
        return reply["return"]

    def event(self, name, device, seconds):
        def matching():
            return [e for e in self.events
                    if e["event"] == name and e.get("data", {}).get("device") == device]
        with self.changed:
            if not self.changed.wait_for(matching, seconds):
                raise ValueError(f"no {name} of {device} in {seconds} s")
            event = matching()[0]
            self.events.remove(event)
        return event


class Control(threading.Thread):
    """The guest's requests."""

    def __init__(self, socket, monitor, files, log):
        super().__init__(daemon=True)
        self.stream = socket.makefile("rwb", buffering=0)
        self.monitor = monitor
        self.files = files      # target name: path
        self.log = log
        self.start()

    def run(self):
        for line in self.stream:
            line = line.decode(errors="replace").strip()
            try:
                reply = self.answer(line)
            except Exception as e:  # the guest must have a reply, whatever it asked
                reply = f"error {e}" if isinstance(e, ValueError) else f"error {e!r}"
            reply = reply.replace("\n", " ")[:MAX_REPLY]
            self.log(f"<host> {line[:200]} -> {reply[:200]}")
            self.stream.write(reply.encode() + b"\n")

    def answer(self, line):
        request, _, rest = line.partition(" ")
        if request == "qmp":
            return "ok " + json.dumps(self.monitor.request(json.loads(rest)))
        if request == "event":
            name, device, seconds = rest.split()
            return "ok " + json.dumps(self.monitor.event(name, device, float(seconds)))
        words = rest.split()
        if request == "drive":
            request, words = words[1], words[:1] + words[2:]
        if request not in ("sha256", "bytes", "compare", "fill", "pattern"):
            raise ValueError(f"no such request: {request}")
        target, *numbers = words
        if target not in self.files:
            raise ValueError(f"no such target: {target}")
        offset, length, *more = [int(n, 0) for n in numbers]
        fd = os.open(self.files[target], os.O_RDWR)
        try:
            if offset < 0 or length < 0 or offset + length > os.fstat(fd).st_size:
                raise ValueError(f"beyond the end of {target}")
            return getattr(self, request)(fd, offset, length, *more)
        finally:
            os.close(fd)

    @staticmethod
    def sha256(fd, offset, length):
        digest = hashlib.sha256()
        while length:
            data = os.pread(fd, min(length, CHUNK), offset)
            digest.update(data)
            offset += len(data)
            length -= len(data)
        return digest.hexdigest()

    @staticmethod
    def bytes(fd, offset, length):
        if length > 1024:
            raise ValueError("at most 1024 bytes")
        return os.pread(fd, length, offset).hex()

    @staticmethod
    def compare(fd, offset, length, seed, first=0):
        done = 0
        for want in pattern(seed, first, length):
            data = os.pread(fd, len(want), offset + done)
            if data != want:
                wrong = next(i for i in range(0, len(want), 8) if data[i:i + 8] != want[i:i + 8])
                return f"bad {first + (done + wrong) // 8}"
            done += len(want)
        return "ok"

    @staticmethod
    def fill(fd, offset, length, byte):
        data = bytes([byte]) * CHUNK
        for done in range(0, length, CHUNK):
            os.pwrite(fd, data[:length - done], offset + done)
        return "ok"

    @staticmethod
    def pattern(fd, offset, length, seed, first=0):
        for data in pattern(seed, first, length):
            offset += os.pwrite(fd, data, offset)
        return "ok"


class Lines(threading.Thread):
    """Reads one of the guest's serial lines and hands on each whole text line."""

    def __init__(self, socket, take):
        super().__init__(daemon=True)
        self.socket = socket
        self.take = take
        self.start()

    def run(self):
        for line in self.socket.makefile("rb"):
            self.take(line.decode(errors="replace").rstrip())
