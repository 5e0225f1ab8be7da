# SPDX-License-Identifier: GPL-2.0
"""The benchmark's report: usage: bench.py OUT LOG...

Reads the measures (lines `bench: {...}`) in the logs of runs of the suite `bench`; writes OUT.md, OUT.json
and OUT.svg. Fails when a budget is missed, or a measure does not count. Without the rows that a budget
needs it is not judged.
"""

import datetime
import json
import math
import sys

KIB, MIB = 1 << 10, 1 << 20
SIZES = (4 * KIB, 64 * KIB, MIB, 16 * MIB, 128 * MIB)
SHADOWS = (64 * KIB, MIB, 16 * MIB)


class Missing(Exception):
    pass


class Rows:
    def __init__(self, logs):
        self.all, self.bad, self.release = [], [], "?"
        for log in logs:
            with open(log, errors="replace") as f:
                for line in f:
                    if not line.startswith("bench: {"):
                        continue
                    row = json.loads(line[7:])
                    if "bad" in row:
                        self.bad.append(row["bad"])
                    elif "kernel release" in row:
                        self.release = row["kernel release"]
                    else:
                        self.all.append(row)

    def get(self, what, op, size=4 * KIB, shadow=None, field="kernel", disk="inline", cpus=1):
        for row in self.all:
            if (row["what"], row["op"], row["size"], row["disk"], row["cpus"]) == (what, op, size, disk, cpus) \
                    and shadow in (None, row["shadow"]):
                return row[field]
        raise Missing(f"{what} {op} {size}")

    def some(self, values):
        """Those of the values, as functions, that can be had; at least one."""
        found = []
        for value in values:
            try:
                found.append(value())
            except Missing:
                pass
        if not found:
            raise Missing("all")
        return found


def ratio(rows, what, reference, size, op):
    return rows.get(what, op, size) / rows.get(reference, op, size)


def per_block(rows, what):
    """What each further 4 KiB costs, through 16 MiB of shadow memory."""
    small, large = (rows.get(what, "read", size, 16 * MIB) for size in (4 * KIB, MIB))
    return (large - small) / (MIB // (4 * KIB) - 1)


def registration(rows, what, size):
    return sum(rows.get(what, step, size) for step in ("mmap", "MAP", "munmap"))


def growth(rows, what, base, sizes=(4 * KIB,)):
    """Per cent."""
    return max(rows.some(lambda size=size: 100 * (ratio(rows, what, base, size, "read") - 1) for size in sizes))


# Name, unit, budget, what to try for, how to get it (twice, if what is tried for is another thing);
# for the last one more is better.
BUDGETS = [
    ("P2PDMA, 4 KiB", "x pread", 1.25, 1.10,
     lambda r: max(r.some(lambda op=op: ratio(r, "p2pdma", "pread", 4 * KIB, op) for op in ("read", "write"))), None),
    ("P2PDMA, 64 KiB and above", "x pread on 4 KiB pages; x pread on huge pages", 0.6, 1.25,
     lambda r: max(r.some(lambda s=s, op=op: ratio(r, "p2pdma", "pread", s, op)
                          for s in SIZES[1:] for op in ("read", "write"))),
     lambda r: max(r.some(lambda s=s, op=op: ratio(r, "p2pdma", "pread huge", s, op)
                          for s in SIZES[1:] for op in ("read", "write")))),
    ("callback mode, 4 KiB, any shadow size", "instructions", 7000, 6000,
     lambda r: max(r.some(lambda s=s, op=op: r.get("callback", op, 4 * KIB, s)
                          for s in SHADOWS for op in ("read", "write"))), None),
    ("callback mode, per further 4 KiB, contiguous", "instructions", 300, 120,
     lambda r: per_block(r, "callback"), None),
    ("callback mode, per further 4 KiB, scrambled", "instructions", 350, 150,
     lambda r: per_block(r, "callback scrambled"), None),
    ("256 reads of 4 KiB in one batch, per entry", "x io_submit", 1.1, 0.9,
     lambda r: r.get("p2pdma", "batch") / r.get("io_submit", "batch"), None),
    ("mmap + MAP + munmap, 16 MiB, callback mode", "instructions", 1_200_000, 500_000,
     lambda r: registration(r, "callback", 16 * MIB), None),
    ("the same in P2PDMA mode, untouched", "instructions", 200_000, 60_000,
     lambda r: registration(r, "p2pdma", 16 * MIB), None),
    ("host memory for such a buffer", "bytes", 64 * KIB, 16 * KIB,
     lambda r: r.get("p2pdma", "memory", 16 * MIB, field="bytes"), None),
    ("rw statistics on, per 4 KiB", "% more", 3, 1,
     lambda r: max(r.some(lambda w=w: growth(r, w + " with statistics", w) for w in ("p2pdma", "callback"))), None),
    ("O_DIRECT of others, our tables registered", "% more", 2, 1,
     lambda r: max(r.some(lambda w=w: growth(r, w + " with tables", w, SIZES[:3])
                          for w in ("pread", "pread huge"))), None),
    ("two CPUs against one", "x", 1.9, 1.97,
     lambda r: min(r.some(lambda w=w: 2 * r.get(w, "read by 1", cpus=2) / r.get(w, "read by 2", cpus=2)
                          for w in ("p2pdma", "callback"))), None),
]


def number(value):
    if value >= 1000:
        return f"{value:,.0f}"
    return f"{value:.3g}"


def judge(rows):
    """Lines of the table of budgets, and how many were missed."""
    lines = ["| measure | unit | budget | measured | | then try for | measured | |",
             "|---|---|---|---|---|---|---|---|"]
    missed = 0
    for name, unit, budget, attempt, measure, other in BUDGETS:
        more = name == BUDGETS[-1][0]
        try:
            value = measure(rows)
            tried = other(rows) if other else value
        except Missing:
            lines.append(f"| {name} | {unit} | {number(budget)} | not measured | | {number(attempt)} | | |")
            continue
        met, reached = ((value >= budget, tried >= attempt) if more else (value <= budget, tried <= attempt))
        missed += not met
        lines.append(f"| {name} | {unit} | {number(budget)} | {number(value)} | {'met' if met else '**missed**'} "
                     f"| {number(attempt)} | {number(tried)} | {'reached' if reached else 'no'} |")
    return lines, missed


def size_text(size):
    return f"{size // MIB} MiB" if size >= MIB else f"{size // KIB} KiB" if size else "-"


def table(rows):
    fields = ("kernel", "most", "rep", "apart", "atomic", "user", "requests", "segments")
    lines = ["| what | operation | size | shadow | disk | CPUs | " + " | ".join(fields) + " |",
             "|---" * (6 + len(fields)) + "|"]
    for row in rows.all:
        if "kernel" not in row:
            continue
        cells = [row["what"], row["op"], size_text(row["size"]), size_text(row["shadow"]), row["disk"],
                 str(row["cpus"])]
        cells += [f"{row[field]:,}" if field in row else "" for field in fields]
        lines.append("| " + " | ".join(cells) + " |")
    return lines


SERIES = [("pread", None, "pread, 4 KiB pages", "#888888"), ("pread huge", None, "pread, huge pages", "#222222"),
          ("p2pdma", None, "nvidia-fs, P2PDMA", "#76b900"), ("callback", 16 * MIB, "nvidia-fs, callbacks", "#1f77b4")]


def picture(rows):
    """Cost against size, both logarithmic."""
    width, height, left, top, right, bottom = 720, 440, 80, 30, 190, 60
    lines = []
    for what, shadow, name, colour in SERIES:
        points = []
        for size in SIZES:
            try:
                points.append((size, rows.get(what, "read", size, shadow)))
            except Missing:
                pass
        if points:
            lines.append((name, colour, points))
    if not lines:
        return None
    sizes = sorted({s for _, _, points in lines for s, _ in points})
    low, high = math.log2(sizes[0]), max(math.log2(sizes[-1]), math.log2(sizes[0]) + 1)
    costs = [c for _, _, points in lines for _, c in points]
    floor, ceiling = math.floor(math.log10(min(costs))), math.ceil(math.log10(max(costs)))

    def x(size):
        return left + (math.log2(size) - low) / (high - low) * (width - left - right)

    def y(cost):
        return height - bottom - (math.log10(cost) - floor) / max(ceiling - floor, 1) * (height - top - bottom)

    out = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" font-family="sans-serif" font-size="12">',
           f'<rect width="{width}" height="{height}" fill="white"/>',
           f'<text x="{left}" y="18" font-size="14">Kernel instructions of a READ, by its size</text>']
    for power in range(floor, ceiling + 1):
        at = y(10 ** power)
        out.append(f'<line x1="{left}" y1="{at:.1f}" x2="{width - right}" y2="{at:.1f}" stroke="#dddddd"/>')
        out.append(f'<text x="{left - 8}" y="{at + 4:.1f}" text-anchor="end">{10 ** power:,}</text>')
    for size in sizes:
        out.append(f'<text x="{x(size):.1f}" y="{height - bottom + 18}" text-anchor="middle">{size_text(size)}</text>')
    ends = []
    for name, colour, points in sorted(lines, key=lambda line: line[2][-1][1]):
        path = " ".join(f"{x(s):.1f},{y(c):.1f}" for s, c in points)
        out.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2"/>')
        out += [f'<circle cx="{x(s):.1f}" cy="{y(c):.1f}" r="3" fill="{colour}"/>' for s, c in points]
        at = y(points[-1][1])
        if ends and ends[-1] - at < 14:
            at = ends[-1] - 14
        ends.append(at)
        out.append(f'<text x="{width - right + 10}" y="{at + 4:.1f}" fill="{colour}">{name}</text>')
    return "\n".join(out + ["</svg>", ""])


def main():
    out, logs = sys.argv[1], sys.argv[2:]
    rows = Rows(logs)
    budgets, missed = judge(rows)
    today = datetime.date.today().isoformat()
    text = [f"{today}, kernel {rows.release}, QEMU TCG, time by instructions.", "", *budgets, "",
            *(f"- does not count: {bad}" for bad in rows.bad), "", *table(rows), ""]
    with open(out + ".md", "w") as f:
        f.write("\n".join(text))
    with open(out + ".json", "w") as f:
        json.dump({"date": today, "kernel": rows.release, "rows": rows.all, "bad": rows.bad}, f, indent=1)
    drawing = picture(rows)
    if drawing:
        with open(out + ".svg", "w") as f:
            f.write(drawing)
    print("\n".join(budgets))
    print(f"{missed} budgets missed, {len(rows.bad)} measures do not count")
    sys.exit(1 if missed or rows.bad else 0)


if __name__ == "__main__":
    main()
