#!/usr/bin/env python3
"""Run a model in the least memory that holds one token cycle of experts, and compare it with all in memory.

    check_slice.py ADIT MODEL [GOLDEN]

Streamed runs are in a memory control group (version 1, so it needs root) of as much as makes the budget 96 % of it,
which is what adit takes at most of what there is. GOLDEN is a program `golden MODEL "1,7,33" OUT.f32` that writes
llama.cpp's logits (F32 keys and values); with it they are compared too, which needs numpy.
"""
import json
import os
import subprocess
import sys
import tempfile

MIB = 1 << 20
GROUPS = "/sys/fs/cgroup/memory"
TOKENS = [(at * 7919 + 13) % 49152 for at in range(24)]


def plan(adit, model, memory):
    command = [adit, "plan", model, "-o", "json", "--disk", "1", "-c", "64", "--memory", str(memory)]
    done = subprocess.run(command, capture_output=True, text=True)
    return json.loads(done.stdout) if done.returncode == 0 else None


def least_budget(adit, model, cycle):
    """In whole MiB."""
    low, high = 0, 1 << 24
    while high - low > 1:
        middle = (low + high) // 2
        done = plan(adit, model, middle * MIB)
        if done and done["experts"]["slots"] >= cycle:
            high = middle
        else:
            low = middle
    return high * MIB


class Group:
    def __init__(self, limit):
        self.path = f"{GROUPS}/check_slice_{os.getpid()}"
        os.mkdir(self.path)
        self.write("memory.limit_in_bytes", limit)

    def write(self, name, value):
        with open(f"{self.path}/{name}", "w") as file:
            file.write(str(value))

    def peak(self):
        with open(f"{self.path}/memory.max_usage_in_bytes") as file:
            return int(file.read())

    def run(self, *command):
        enter = lambda: self.write("cgroup.procs", os.getpid())
        done = subprocess.run(command, capture_output=True, text=True, check=True, preexec_fn=enter)
        return done.stdout


def logits(run, adit, model, folder, *more):
    out = f"{folder}/rows.f32"
    run(adit, "logits", model, "--tokens", ",".join(map(str, TOKENS)), "-o", out, *more)
    with open(out, "rb") as file:
        return file.read()


def compare(golden, adit, model, folder, run):
    import numpy as np
    ours = np.frombuffer(logits(run, adit, model, folder, "--kv", "f32"), "<f4").reshape(len(TOKENS), -1)
    run(golden, model, ",".join(map(str, TOKENS)), f"{folder}/golden.f32")
    theirs = np.fromfile(f"{folder}/golden.f32", "<f4").reshape(ours.shape)
    off = np.abs(ours - theirs).max(1) / (theirs.max(1) - theirs.min(1))
    best = int((ours.argmax(1) == theirs.argmax(1)).sum())
    print(f"llama.cpp: largest difference of a row, as a share of its range: median {np.median(off):.4f}, "
          f"most {off.max():.4f}, above 0.02 in {int((off > 0.02).sum())} rows; best token equal in {best} of "
          f"{len(TOKENS)}")


def main():
    adit, model, *golden = sys.argv[1:]
    experts = plan(adit, model, 1 << 50)["experts"]
    cycle = experts["token_cycle"]
    budget = least_budget(adit, model, cycle)
    slots = plan(adit, model, budget)["experts"]["slots"]
    print(f"{experts['experts']} experts of {experts['slot_bytes']} bytes, {cycle} a token; {slots} slots in {budget}")
    plain = lambda *command: subprocess.run(command, capture_output=True, text=True, check=True).stdout
    group = Group(int(budget / 0.955))
    try:
        with tempfile.TemporaryDirectory() as folder:
            memory = ["--memory", str(budget)]
            one_by_one = logits(group.run, adit, model, folder, *memory, "--chunk", "1")
            in_chunks = logits(group.run, adit, model, folder, *memory)
            resident = logits(plain, adit, model, folder)
            print("the same bits:", one_by_one == in_chunks == resident)
            bench = [adit, "bench", model, "-p", "0", "-n", "16", "-o", "json"]
            rates = [json.loads(run(*bench, *more))["decode_tok_per_s"]
                     for run, more in [(group.run, [*memory, "-r", "3"]), (plain, ["-r", "9"])]]
            print(f"peak of the group {group.peak()}; tok/s streamed {rates[0]:.1f}, all in memory {rates[1]:.1f}")
            if golden:
                compare(golden[0], adit, model, folder, plain)
    finally:
        os.rmdir(group.path)


if __name__ == "__main__":
    main()
