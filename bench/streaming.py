#!/usr/bin/env python3
"""Runs the experiments of docs/streaming.md, writes their tables into it and their plots beside it.

Usage: bench/streaming.py [--build DIR] [--results DIR] [EXPERIMENT ...]

EXPERIMENT: quality fourway sinks gemma long needle kv fork; none: all, in this order. `report` runs
nothing. Every run of bench/stream_bench is kept as one JSON file in the results folder
(default build/streaming-results) and not repeated; tables and plots are made of the files that are
there, so that an interrupted evening is not lost. Delete a file to measure it again.

The text is the King James Bible as Debian's bible-kjv prints it, without the labels of the verses.
Models come from the user's cache (scripts/fetch_model).
"""
import argparse
import datetime
import json
import math
import os
import random
import re
import struct
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "streaming.md"
OUT = ROOT / "docs" / "streaming"
MODELS = {  # short name: (name in the catalogue, shown as)
    "smollm2": ("smollm2-135m-instruct", "SmolLM2-135M-Instruct Q4_1"),
    "gemma3": ("gemma-3-270m", "Gemma 3 270M Q4_K_M"),
    "qwen": ("qwen2.5-coder-0.5b-instruct", "Qwen2.5-Coder-0.5B-Instruct Q4_K_M"),
}
LENGTH = 20000  # tokens of the experiments on quality
GRID_LENGTH = 8000  # of the sixteen variants of Gemma
POSITIONS = 200
TRAINED = 8192  # SmolLM2
LLAMA_CPP_Q8 = {"smollm2": 0.0042, "gemma3": 0.0076, "qwen": 0.016}  # mean KL, 4 x 1,024 tokens


# ---------------------------------------------------------------------------------------- running


class Lab:
    def __init__(self, build, results):
        self.bench = build / "bench" / "stream_bench"
        self.results = results
        self.results.mkdir(parents=True, exist_ok=True)
        self.paths = {}

    def model(self, name):
        if name not in self.paths:
            fetch = [ROOT / "scripts" / "fetch_model", MODELS[name][0]]
            self.paths[name] = Path(subprocess.check_output(fetch, text=True).strip())
        return self.paths[name]

    def bible(self):
        path = self.results / "kjv.txt"
        if not path.exists():
            prose = subprocess.check_output(
                ["bible", "-f", "gen1:1-rev22:21"], text=True, stdin=subprocess.DEVNULL)
            path.write_text(re.sub(r"^[1-3]?[A-Za-z]+\d+:\d+ ", "", prose, flags=re.M))
        return path

    def text(self):
        """The beginning, more than 100,000 tokens of it."""
        path = self.results / "kjv-head.txt"
        if not path.exists():
            path.write_text(self.bible().read_text()[:700_000])
        return path

    def run(self, name, model, *args, text=None):
        """One run of stream_bench, or what it printed when it was done before."""
        done = self.load(name)
        if done:
            return done
        path = model if isinstance(model, Path) else self.model(model)
        command = [self.bench, path, text or self.text(), *args]
        command += ["--nll", self.results / f"{name}.nll"]
        print(f"{datetime.datetime.now():%H:%M:%S} {name}", file=sys.stderr, flush=True)
        load = os.getloadavg()[0]
        result = json.loads(subprocess.check_output(list(map(str, command)), text=True))
        result["load"] = [load, os.getloadavg()[0]]
        result["date"] = f"{datetime.date.today()}"
        temporary = self.results / f"{name}.tmp"
        temporary.write_text(json.dumps(result))
        temporary.rename(self.results / f"{name}.json")
        return result

    def load(self, name):
        path = self.results / f"{name}.json"
        return json.loads(path.read_text()) if path.exists() else None

    def nll(self, name):
        path = self.results / f"{name}.nll"
        return [float(x) for x in path.read_text().split()] if path.exists() else None


def stream(sink_count, window):
    return ["--sinks", sink_count, "--window", window]


def patch_context(source, target, length):
    """A copy of a GGUF file that says it was trained for `length` tokens."""
    data = bytearray(source.read_bytes())
    key = b"llama.context_length" + struct.pack("<I", 4)  # a uint32 follows
    at = data.index(key) + len(key)
    data[at:at + 4] = struct.pack("<I", length)
    target.write_bytes(data)


# ------------------------------------------------------------------------------------ experiments


def recomputed_name(model, view):
    return f"{model}-4-{view - 4}-recompute"


def quality(lab, views=(1024, 512, 2048), models=("smollm2", "gemma3")):
    for view in views:
        for model in models:
            lab.run(recomputed_name(model, view), model, *stream(4, view - 4), "--tokens", LENGTH,
                    "--step", 128, "--recompute", POSITIONS)


def fourway(lab):
    quality(lab, views=(1024,), models=("smollm2",))
    lab.run("smollm2-0-1024", "smollm2", *stream(0, 1024), "--tokens", LENGTH, "--step", 128)
    if not lab.load("smollm2-dense"):
        with tempfile.TemporaryDirectory() as folder:
            raised = Path(folder) / "raised.gguf"
            patch_context(lab.model("smollm2"), raised, 32768)
            lab.run("smollm2-dense", raised, "--dense", "--tokens", LENGTH, "--step", 128)


def sinks(lab):
    for sink_count in (0, 1, 2, 8):
        lab.run(f"smollm2-{sink_count}-{1024 - sink_count}", "smollm2", *stream(sink_count, 1024 - sink_count),
                "--tokens", LENGTH, "--step", 128)


def gemma(lab):
    lab.run("gemma3-dense", "gemma3", "--dense", "--tokens", GRID_LENGTH, "--step", 128)
    for view in (1024, 4096, 512, 2048):
        for sink_count in (4, 0, 1, 8):
            lab.run(f"gemma3-{sink_count}-{view - sink_count}", "gemma3", *stream(sink_count, view - sink_count),
                    "--tokens", GRID_LENGTH, "--step", 128)


def long(lab):
    for model in ("smollm2", "gemma3"):
        lab.run(f"{model}-long", model, *stream(4, 4092), "--tokens", 100000, "--step", 64,
                "--last", "--young", 5000)


NEEDLE_VIEW = 512
DISTANCES = (50, 200, 350, 450, 550, 700, 1000)
NUMBERS = ("7481", "2936", "5108")


def needle_text(lab, number, distance, planted):
    """Prose, the needle, `distance` tokens of prose or so, and the beginning of the needle again."""
    verses = lab.bible().read_text().split("\n")
    chance = random.Random(f"{number} {distance}")
    start = chance.randrange(2000, 20000)

    def prose(tokens):
        nonlocal start
        out = []
        while tokens > 0:
            out.append(verses[start])
            tokens -= 1.28 * len(verses[start].split())
            start += 1
        return out

    lines = prose(NEEDLE_VIEW + 100)
    lines += [f"The secret number is {number}."] if planted else []
    lines += prose(distance)
    path = lab.results / f"needle-{number}-{distance}-{int(planted)}.txt"
    path.write_text("\n".join(lines) + f"\nThe secret number is {number}")
    return path


def needle(lab):
    for model in ("smollm2", "gemma3"):
        for kind in ("stream", "dense", "without"):
            for distance in DISTANCES:
                for number in NUMBERS:
                    text = needle_text(lab, number, distance, kind != "without")
                    how = ["--dense"] if kind == "dense" else stream(4, NEEDLE_VIEW - 4)
                    lab.run(f"needle-{model}-{kind}-{distance}-{number}", model, *how, "--tokens",
                            0, "--step", 64, "--last", "--tail", 5, "--find",
                            f"secret number is {number}.", text=text)


KV_TYPES = ("q8_0", "f16", "bf16")
STRETCHES = 4


def kv(lab):
    for kind in KV_TYPES:
        for precise in ([], ["--precise"]):
            for model in MODELS:
                for i in range(STRETCHES):
                    lab.run(f"kv-{model}-{kind}{''.join(precise)}-{i}", model, "--dense",
                            "--reference", "--tokens", 1024, "--skip", 5000 * i, "--keys", kind,
                            "--values", kind, *precise)


def fork(lab):
    for model in ("smollm2", "gemma3"):
        lab.run(f"fork-{model}", model, *stream(4, 4092), "--tokens", 4000, "--step", 128, "--last",
                "--fork")


EXPERIMENTS = {f.__name__: f for f in (quality, fourway, sinks, gemma, long, needle, kv, fork)}


# -------------------------------------------------------------------------------- tables and plots


def table(head, rows):
    if not rows:
        return "Not measured yet.\n"
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    lines += ["| " + " | ".join(str(x) for x in row) + " |" for row in rows]
    return "\n".join(lines) + "\n"


def mean(values):
    values = list(values)
    return sum(values) / len(values) if values else math.nan


def steps(low, high):
    """Round numbers over a range, about five."""
    raw = (high - low) / 5
    unit = 10 ** math.floor(math.log10(raw))
    step = next(unit * m for m in (1, 2, 2.5, 5, 10) if unit * m >= raw)
    first = math.floor(low / step) * step
    count = math.ceil((high - first) / step - 1e-9)
    return [first + i * step for i in range(count + 1)]


COLORS = ("#1b6ca8", "#c8553d", "#3a7d44", "#7a4b94", "#b8860b", "#555555")
DASHES = ("", "6 3", "2 3", "8 3 2 3", "4 2", "1 2")


def plot(name, title, x_label, y_label, series, low=None, marks=()):
    """Writes an SVG line plot, returns the line that shows it. series: (label, xs, ys); marks: (x, label) vertical lines."""
    series = [s for s in series if s[1]]
    if not series:
        return ""
    width, height, left, right, top, bottom = 880, 340, 62, 240, 40, 46
    xs = [x for _, xs, _ in series for x in xs]
    ys = [y for _, _, ys in series for y in ys]
    x_ticks = steps(min(0, *xs), max(xs))
    bottom_y = min(ys) if low is None else low
    y_ticks = steps(bottom_y, max(max(ys), bottom_y + 1e-3))

    def px(x):
        return left + (x - x_ticks[0]) / (x_ticks[-1] - x_ticks[0]) * (width - left - right)

    def py(y):
        return height - bottom - (y - y_ticks[0]) / (y_ticks[-1] - y_ticks[0]) * (
            height - top - bottom)

    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" '
        'font-family="sans-serif" font-size="12">',
        f'<rect width="{width}" height="{height}" fill="white"/>',
        f'<text x="{left}" y="20" font-size="14" font-weight="bold">{title}</text>',
    ]
    for y in y_ticks:
        out.append(f'<path d="M{left} {py(y):.1f}H{width - right}" stroke="#ddd"/>'
                   f'<text x="{left - 6}" y="{py(y) + 4:.1f}" text-anchor="end">{y:.4g}</text>')
    for x in x_ticks:
        out.append(f'<text x="{px(x):.1f}" y="{height - bottom + 16}" '
                   f'text-anchor="middle">{x:,.10g}</text>')
    for x, label in marks:
        out.append(f'<path d="M{px(x):.1f} {top}V{height - bottom}" stroke="#999" '
                   f'stroke-dasharray="3 3"/><text x="{px(x) + 4:.1f}" y="{top + 10}" fill="#666" '
                   f'font-size="11">{label}</text>')
    out.append(f'<path d="M{left} {top}V{height - bottom}H{width - right}" fill="none" '
               'stroke="black"/>')
    out.append(f'<text x="{(left + width - right) / 2}" y="{height - 10}" '
               f'text-anchor="middle">{x_label}</text>')
    out.append(f'<text transform="translate(16 {(top + height - bottom) / 2}) rotate(-90)" '
               f'text-anchor="middle">{y_label}</text>')
    for i, (label, xs, ys) in enumerate(series):
        color, dash = COLORS[i % len(COLORS)], DASHES[i % len(DASHES)]
        style = f'stroke="{color}" stroke-width="1.8" stroke-dasharray="{dash}"'
        path = "L".join(f"{px(x):.1f} {py(y):.1f}" for x, y in zip(xs, ys))
        out.append(f'<path d="M{path}" fill="none" {style}/>')
        y = top + 14 + 18 * i
        out.append(f'<path d="M{width - right + 14} {y - 4}h26" {style}/>'
                   f'<text x="{width - right + 46}" y="{y}">{label}</text>')
    out.append("</svg>")
    (OUT / f"{name}.svg").write_text("\n".join(out) + "\n")
    return f"\n![{title}](streaming/{name}.svg)\n"


def tail_mean(nll, start):
    """Mean surprisal of the tokens behind `start`."""
    return mean(nll[start:])


def report_quality(lab):
    rows = []
    for model in ("smollm2", "gemma3"):
        for view in (512, 1024, 2048):
            r = lab.load(recomputed_name(model, view))
            if r:
                rows.append((MODELS[model][1], f"4 + {view - 4:,}", r["positions"],
                             f"{r['streamed_nll']:.4f}", f"{r['recomputed_nll']:.4f}",
                             f"{r['streamed_nll'] / r['recomputed_nll']:.4f}"))
    return table(("model", "sinks + window", "positions", "streaming NLL", "recomputed NLL",
                  "ratio"), rows)


def blocks_of(nll, size=1000):
    starts = range(0, len(nll), size)
    return [s + size // 2 for s in starts], [mean(nll[max(s, 1):s + size]) for s in starts]


def report_fourway(lab):
    names = (("dense", "smollm2-dense"), ("window only (0 + 1,024)", "smollm2-0-1024"),
             ("sinks + window (4 + 1,020)", recomputed_name("smollm2", 1024)))
    series, rows = [], []
    again = lab.load(recomputed_name("smollm2", 1024))
    places = [p["token"] for p in again["at"]] if again else []
    for label, name in names:
        nll = lab.nll(name)
        if not nll:
            continue
        series.append((label, *blocks_of(nll)))
        rows.append((label, *(f"{mean(nll[a:b]):.3f}" for a, b in
                              ((1, 1000), (2000, 8000), (9000, 14000), (14000, 20000))),
                     f"{mean(nll[p] for p in places):.3f}"))
    if again:
        # Twenty positions are few: their difference to the stream says more than their own mean.
        nll = lab.nll(recomputed_name("smollm2", 1024))
        xs, ys = [], []
        for start in range(2000, LENGTH, 2000):
            here = [p["recomputed_nll"] - p["streamed_nll"] for p in again["at"]
                    if start <= p["token"] < start + 2000]
            if here:
                xs.append(start + 1000)
                ys.append(mean(nll[start:start + 2000]) + mean(here))
        series.append(("recomputed", xs, ys))
        rows.append(("recomputed", "", "", "", "", f"{again['recomputed_nll']:.3f}"))
    image = plot("fourway", "SmolLM2-135M: surprisal along 20,000 tokens", "token",
                 "NLL, nats a token", series, low=0, marks=((TRAINED, "trained length"),))
    return table(("", "tokens 1-999", "2,000-7,999", "9,000-13,999", "14,000-19,999",
                  f"at the {len(places)} positions"), rows) + image


def report_sinks(lab):
    rows, series = [], []
    for sink_count in (0, 1, 2, 4, 8):
        name = f"smollm2-{sink_count}-{1024 - sink_count}" if sink_count != 4 else recomputed_name(
            "smollm2", 1024)
        nll = lab.nll(name)
        if nll:
            rows.append((sink_count, f"{1024 - sink_count:,}", f"{tail_mean(nll, 2048):.4f}",
                         f"{math.exp(tail_mean(nll, 2048)):.2f}"))
            series.append((f"{sink_count} sinks", *blocks_of(nll)))
    image = plot("sinks", "SmolLM2-135M: how many sinks", "token", "NLL, nats a token", series,
                 low=0)
    return table(("sinks", "window", "NLL, tokens 2,048-19,999", "perplexity"), rows) + image


def report_gemma(lab):
    dense = lab.nll("gemma3-dense")
    rows, series = [], []
    for view in (512, 1024, 2048, 4096):
        cells = []
        for sink_count in (0, 1, 4, 8):
            nll = lab.nll(f"gemma3-{sink_count}-{view - sink_count}")
            cells.append(f"{tail_mean(nll, 4096):.4f}" if nll else "")
            if nll and (view == 1024 and sink_count in (0, 1, 4) or view == 4096 and sink_count == 4):
                series.append((f"{sink_count} + {view - sink_count:,}", *blocks_of(nll)))
        if any(cells):
            rows.append((f"{view:,}", *cells, f"{tail_mean(dense, 4096):.4f}" if dense else ""))
    if dense:
        series.append(("dense", *blocks_of(dense)))
    image = plot("gemma", "Gemma 3 270M: global layers stream, local layers keep 512", "token",
                 "NLL, nats a token", series, low=0)
    return table(("global layers see", "0 sinks", "1", "4", "8", "dense"), rows) + image


def report_long(lab):
    rows, resident, speed = [], [], []
    for model in ("smollm2", "gemma3"):
        r = lab.load(f"{model}-long")
        if not r:
            continue
        memory = [b["resident_bytes"] / 1e6 for b in r["blocks"]]
        times = [b["ms_per_token"] for b in r["blocks"]]
        warm = memory[5:]
        tenth = len(times) // 10
        full = times[5:]  # once the view is full, a token costs what it costs
        first, last = mean(full[:tenth]), mean(times[-tenth:])
        young = r["young"]
        rows.append((MODELS[model][1], f"{r['tokens']:,}", f"{r['evicted']:,}",
                     f"{min(warm):.1f} to {max(warm):.1f} MB",
                     f"{100 * (max(warm) - min(warm)) / min(warm):.2f} %",
                     f"{first:.2f}, {last:.2f}",
                     f"{young['ms_per_token']:.2f}, {young['ms_per_token_at_the_end']:.2f}",
                     f"{100 * (young['ratio'] - 1):+.1f} % ({100 * (young['quartiles'][0] - 1):+.1f} to "
                     f"{100 * (young['quartiles'][1] - 1):+.1f})"))
        xs = [1000 * (i + 1) for i in range(len(times))]
        resident.append((MODELS[model][1], xs, memory))
        speed.append((MODELS[model][1], xs, times))
    images = plot("long-rss", "Resident memory of the process, 4 + 4,092", "token", "MB", resident,
                  low=0)
    images += plot("long-time", "Time of a token, 4 + 4,092", "token", "ms a token", speed, low=0)
    return table(("model", "tokens", "evicted", "resident after 5,000 tokens", "spread",
                  "ms a token: 5,000-14,999, last tenth", "in turns: at 5,000, at the end",
                  "change (quartiles)"), rows) + images


def needle_probability(lab, model, kind, distance):
    """Geometric means over the numbers of the digits' probability; the mean distance."""
    nll, distances = [], []
    for number in NUMBERS:
        r = lab.load(f"needle-{model}-{kind}-{distance}-{number}")
        if not r:
            return None
        digits = [t["nll"] for t in r["tail"] if t["token"].strip() in number and t["token"].strip()]
        nll.append(sum(digits))
        if r.get("found"):
            distances.append(r["tokens"] - 4 - r["found"])
    return math.exp(-mean(nll)), mean(distances)


def report_needle(lab):
    texts = []
    for model in ("smollm2", "gemma3"):
        rows = []
        for distance in DISTANCES:
            cells = [needle_probability(lab, model, k, distance)
                     for k in ("stream", "dense", "without")]
            if all(cells):
                rows.append((f"{cells[0][1]:.0f}", *(f"{c[0]:.2g}" for c in cells)))
        if rows:
            texts.append(f"{MODELS[model][1]}:\n\n" + table(
                ("distance, tokens", f"stream 4 + {NEEDLE_VIEW - 4:,}", "dense",
                 "stream without the sentence"), rows))
    return "\n".join(texts) or table((), ())


def report_kv(lab):
    rows = []
    for model, (_, shown) in MODELS.items():
        for precise in ("", "--precise"):
            cells = []
            for kind in KV_TYPES:
                runs = [lab.load(f"kv-{model}-{kind}{precise}-{i}") for i in range(STRETCHES)]
                cells.append(f"{mean(r['mean_kl'] for r in runs):.2g}" if all(runs) else "")
            if any(cells):
                rows.append((shown, precise and "`--precise`", *cells, LLAMA_CPP_Q8[model]))
    return table(("model", "", *KV_TYPES, "llama.cpp q8_0"), rows)


def report_fork(lab):
    rows = []
    for model in ("smollm2", "gemma3"):
        r = lab.load(f"fork-{model}")
        if r:
            f = r["fork_microseconds"]
            rows.append((MODELS[model][1], f"{r['session_bytes'] / 1e6:.1f} MB",
                         f"{f['median']:.1f}", f"{f['most']:.1f}"))
    return table(("model", "session of 4,000 tokens", "median of 101 forks, us", "most"), rows)


def report(lab):
    """Tables go between `<!-- NAME -->` and `<!-- end -->` of the page."""
    OUT.mkdir(parents=True, exist_ok=True)
    page = PAGE.read_text()
    for name in EXPERIMENTS:
        text = globals()[f"report_{name}"](lab).strip()
        page = re.sub(rf"(<!-- {name} -->\n).*?(<!-- end -->)",
                      lambda match: f"{match[1]}\n{text}\n\n{match[2]}", page, flags=re.S)
    PAGE.write_text(page)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--build", type=Path, default=ROOT / "build" / "release")
    parser.add_argument("--results", type=Path, default=ROOT / "build" / "streaming-results")
    parser.add_argument("experiments", nargs="*", choices=[*EXPERIMENTS, "report", []])
    options = parser.parse_args()
    lab = Lab(options.build, options.results)
    for name in options.experiments or EXPERIMENTS:
        if name != "report":
            EXPERIMENTS[name](lab)
            report(lab)
    report(lab)


if __name__ == "__main__":
    main()
