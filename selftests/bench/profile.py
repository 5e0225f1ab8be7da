# SPDX-License-Identifier: GPL-2.0
"""Says where the instructions of each measure are: usage: profile.py FOLDER [LINES], with the folder of
a run of the suite `bench` with --bench --profile --keep and PROFILE=1."""

import bisect
import collections
import json
import sys


def symbols(path):
    """The kernel's, as the guest left them on the drive `raw`: sorted addresses, and names."""
    found = []
    with open(path, "rb") as f:
        # Behind the text are zeros, without an end of line.
        for line in iter(lambda: f.readline(4096), b""):
            words = line.split(b"\0")[0].split()
            if len(words) < 3:
                break
            module = words[3].decode() + " " if len(words) > 3 else ""
            found.append((int(words[0], 16), module + words[2].decode()))
    found.sort()
    return [a for a, _ in found], [n for _, n in found]


def main():
    folder, lines = sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 60
    addresses, names = symbols(f"{folder}/raw")
    with open(f"{folder}/serial.log", errors="replace") as f:
        rows = [json.loads(line[7:]) for line in f if line.startswith("bench: {")]
    rows = [row for row in rows if "ops" in row]
    profiles = []
    with open(f"{folder}/profile") as f:
        for line in f:
            if line == "profile\n":
                profiles.append(collections.Counter())
                continue
            address, count = line.split()
            # The first symbol that begins in these 16 bytes, else the one before.
            at = bisect.bisect_right(addresses, int(address, 16) + 15) - 1
            profiles[-1][names[at]] += int(count)
    for row, profile in zip(rows, profiles):
        print(f"\n{row['what']}, {row['op']} of {row['size']} bytes, shadow {row['shadow']}: {row['kernel']}")
        for name, count in profile.most_common(lines):
            print(f"{count / row['ops']:10.1f}  {name}")


if __name__ == "__main__":
    main()
