#!/usr/bin/env python3
"""Reads what `adit run --trace` and `adit bench --trace` write: docs/trace-format.md.

    python3 read_trace.py FILE          one line for each step and layer
    python3 read_trace.py --csv FILE    one row for each pick

Or `from read_trace import read`: `header, steps = read(path)`, where `steps` yields dictionaries. Needs nothing
but Python 3.8. A file that was cut off is read up to its last whole block.
"""

import json
import struct
import sys
import zlib

MAGIC = b"# adit trace v1\n"
STEP, VISIT, PREDICTED, STEP_END, END = 1, 2, 3, 4, 5


def blocks(path):
    """The unpacked bytes of each gzip member; stops before one that is not whole."""
    with open(path, "rb") as file:
        packed = b""
        while True:
            member, parts = zlib.decompressobj(wbits=31), []
            while not member.eof:
                packed = packed or file.read(1 << 16)
                if not packed:
                    return
                parts.append(member.decompress(packed))
                packed = member.unused_data
            yield b"".join(parts)


def half(bits):
    return struct.unpack("<e", struct.pack("<H", bits))[0]


def records(block):
    words = struct.unpack("<%dI" % (len(block) // 4), block)
    at = 0
    while at < len(words):
        kind, length = words[at] & 0xFF, words[at] >> 8
        if length == 0 or at + length > len(words):
            raise ValueError("a record of %d words reaches beyond its block" % length)
        yield kind, words[at + 1 : at + length]
        at += length


def long(words, at):
    return words[at] | words[at + 1] << 32


def row(words):
    token, position, lane = words
    return {"token": token, "position": position, "lane": lane & 0x7FFFFFFF, "wants_logits": bool(lane >> 31)}


def pick(word):
    return {"expert": word & 0x3FFF, "resident": bool(word >> 15 & 1), "weight": half(word >> 16)}


def steps(all_blocks, sources):
    """Whole steps: one without its end was dropped, or failed, and is left out."""
    step = None
    for block in all_blocks:
        for kind, words in records(block):
            if kind == STEP:
                rows = [row(words[at : at + 3]) for at in range(3, len(words), 3)]
                step = {"step": long(words, 0), "rows": rows, "visits": [], "predicted": []}
            elif step is None:
                continue  # The end of the trace, or what is left of a step.
            elif kind == VISIT:
                layer, rows, used = words[0], words[1], words[2]
                picks = [pick(word) for word in words[7:]]
                by_row = [picks[at * used : (at + 1) * used] for at in range(rows)]
                visit = {"layer": layer, "bytes": long(words, 3), "wait_ns": long(words, 5), "picks": by_row}
                step["visits"].append(visit)
            elif kind == PREDICTED:
                bits = [place * 32 + bit for place, word in enumerate(words[2:]) for bit in range(32) if word >> bit & 1]
                source = sources[words[1]] if words[1] < len(sources) else str(words[1])
                step["predicted"].append({"layer": words[0], "source": source, "experts": bits})
            elif kind == STEP_END:
                step["step_ns"] = long(words, 0)
                yield step
                step = None


def read(path):
    """The header, and an iterator over the steps."""
    all_blocks = blocks(path)
    first = next(all_blocks, b"")
    if not first.startswith(MAGIC):
        raise ValueError("%s does not begin as a trace of adit's does" % path)
    header = json.loads(first[len(MAGIC) :])
    return header, steps(all_blocks, header["sources"])


def rows_of(step, visit):
    """The rows that a visit's picks belong to: in the last layer only those that want logits."""
    if len(visit["picks"]) == len(step["rows"]):
        return step["rows"]
    return [row for row in step["rows"] if row["wants_logits"]]


def main(arguments):
    as_csv = "--csv" in arguments
    paths = [argument for argument in arguments if argument != "--csv"]
    if len(paths) != 1:
        sys.exit(__doc__)
    header, all_steps = read(paths[0])
    if as_csv:
        print("step,lane,position,token,layer,rank,expert,weight,resident")
    else:
        print("%s, %d layers with experts, %d slots" % (header["model"], len(header["expert_layers"]), header["slots"]))
    for step in all_steps:
        for visit in step["visits"]:
            rows = list(zip(rows_of(step, visit), visit["picks"]))
            if as_csv:
                for place, picks in rows:
                    for rank, one in enumerate(picks):
                        front = (step["step"], place["lane"], place["position"], place["token"], visit["layer"])
                        print("%d,%d,%d,%d,%d," % front + "%d,%d,%.4g,%d" % (rank, one["expert"], one["weight"], one["resident"]))
            else:
                union = {one["expert"]: one["resident"] for _, picks in rows for one in picks}
                figures = (step["step"], len(rows), visit["layer"], sum(union.values()), len(union))
                print("step %d, %d rows, layer %d: %d of %d experts resident, " % figures
                      + "%d bytes read, %d ns waited" % (visit["bytes"], visit["wait_ns"]))


if __name__ == "__main__":
    try:
        main(sys.argv[1:])
    except BrokenPipeError:
        sys.stderr.close()  # Whoever read has seen enough.
