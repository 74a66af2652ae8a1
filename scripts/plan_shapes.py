#!/usr/bin/env python3
"""Print docs/shapes.md's table of what adit plans for published models.

    plan_shapes.py ADIT FOLDER SHAPE...

FOLDER holds a file SHAPE.gguf of each, as make_shape.py --sparse writes it.
"""
import json
import re
import subprocess
import sys

MEMORY = [16, 32, 48, 64]
DISKS = [3.7, 7.4]
# What memory delivers to arithmetic, GB/s: two channels of DDR5-5600 give 90 at their best.
MEMORY_GB_PER_S = 60


def plan(adit, file, memory, *more):
    command = [adit, "plan", file, "--memory", memory, "-o", "json", *more]
    done = subprocess.run(command, capture_output=True, text=True)
    return json.loads(done.stdout) if done.returncode == 0 else done.stderr.strip()


def speeds(adit, file, memory, compute_ms):
    for disk in DISKS:
        done = plan(adit, file, memory, "--disk", str(disk), "--compute", f"{compute_ms:.3f}")
        experts = done["experts"]
        if experts["slots"] == experts["experts"]:
            yield f"{1e3 / compute_ms:.1f}"
        else:
            yield " to ".join(f"{speed['tok_per_s']:.2f}" for speed in experts["speeds"])


def rows(adit, folder, shape):
    file = f"{folder}/{shape}.gguf"
    refusal = plan(adit, file, "1M")
    least = int(re.search(r"raise --memory to (\d+)MiB", refusal)[1]) * 2**20
    for memory in MEMORY:
        done = plan(adit, file, f"{memory}G", "--disk", "1")
        start = f"| {shape} | {memory} GB |"
        if isinstance(done, str):
            yield f"{start} refused | | | | | | {least / 1e9:.2f} GB |"
            continue
        terms = {term["name"]: term["bytes"] for term in done["terms"]}
        experts = done["experts"]
        compute_ms = experts["token_bytes"] / MEMORY_GB_PER_S / 1e6
        slots = terms.pop("slots")
        backbone, kv = terms.pop("backbone"), terms.pop("kv")
        sizes = [backbone, kv, sum(terms.values()), slots]
        total = " + ".join(f"{size / 1e9:.2f}" for size in sizes) + f" = {done['sum_bytes'] / 1e9:.2f}"
        share = 100 * experts["slots"] / experts["experts"]
        cycles = experts["slots"] / experts["token_cycle"]
        cells = [total, f"{share:.1f} %", f"{cycles:.1f}", *speeds(adit, file, f"{memory}G", compute_ms)]
        cells += [f"{1e3 / compute_ms:.1f}", f"{least / 1e9:.2f} GB"]
        yield f"{start} {' | '.join(cells)} |"


def main():
    adit, folder, *shapes = sys.argv[1:]
    print("| model | memory | backbone + kv + other + slots = sum, GB | experts held | token cycles | "
          + " | ".join(f"tok/s at {disk} GB/s" for disk in DISKS) + " | computing alone | least memory |")
    print("| --- | --- | --- | --- | --- | --- | --- | --- | --- |")
    for shape in shapes:
        for row in rows(adit, folder, shape):
            print(row)


if __name__ == "__main__":
    main()
