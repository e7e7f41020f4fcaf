#!/usr/bin/env python3
"""culet quantize from outside: output, comparison, refusals, Ctrl-C.

Usage: cli_convert_test.py PATH_OF_CULET [unittest options]
Runs on the tiny models of tests/golden.
"""
import json
import os
import signal
import struct
import subprocess
import sys
import tempfile
import time
import unittest
from pathlib import Path

GOLDEN = Path(__file__).resolve().parent / "golden"
LLAMA = str(GOLDEN / "tiny/llama/model.gguf")     # float32, 4 layers, rows of 64 and 160
WIDE = str(GOLDEN / "tiny/llama-quant/model-bf16.gguf")   # rows of 256
BERT = str(GOLDEN / "tiny/bert/model.gguf")
CULET = ""                                        # set by main()
CLEAN = {k: v for k, v in os.environ.items() if not k.startswith("CULET_")}


def culet(*arguments, stdin=b"", env=None):
    return subprocess.run([CULET, *arguments], input=stdin, capture_output=True, timeout=100,
                          env=CLEAN | (env or {}))


class Case(unittest.TestCase):
    def setUp(self):
        self.temporary = tempfile.TemporaryDirectory()
        self.folder = Path(self.temporary.name)
        self.out = str(self.folder / "out.gguf")

    def tearDown(self):
        self.temporary.cleanup()

    def files(self):
        return sorted(p.name for p in self.folder.iterdir())

    def good(self, *arguments, **more):
        done = culet(*arguments, **more)
        self.assertEqual(done.returncode, 0, done.stderr)
        return done

    def fails(self, status, *arguments, **more):
        done = culet(*arguments, **more)
        self.assertEqual(done.returncode, status, done.stderr)
        self.assertEqual(done.stdout, b"")
        text = done.stderr.decode()
        self.assertEqual(text.count("\n"), 1, text)
        return text


class Quantize(Case):
    def test_a_model_that_runs(self):
        done = self.good("quantize", WIDE, self.out, "Q4_K_M")
        text = done.stdout.decode()
        self.assertIn(f"{self.out}: Q4_K_M, ", text)
        self.assertIn("bits per weight", text)
        self.assertRegex(text, r"Q4_K +\d+ tensors")
        self.assertEqual(done.stderr, b"")
        self.assertEqual(self.files(), ["out.gguf"])
        shown = json.loads(self.good("show", self.out, "--json").stdout)
        self.assertIn("Q6_K", json.dumps(shown["tensor_types"]))
        self.good("run", self.out, "--raw", "the", "--temp", "0", "-n", "4")

    def test_json(self):
        done = self.good("quantize", LLAMA, self.out, "Q8_0", "--json")
        value = json.loads(done.stdout)
        self.assertEqual(value["path"], self.out)
        self.assertEqual(value["type"], "Q8_0")
        self.assertEqual(value["bytes"], os.path.getsize(self.out))
        self.assertEqual(value["source_bytes"], os.path.getsize(LLAMA))
        self.assertEqual(value["types"][0]["type"], "Q8_0")
        self.assertEqual(value["notes"], [])
        self.assertNotIn("check", value)
        self.assertGreater(value["bits_per_weight"], 8.5)
        self.assertLess(value["bits_per_weight"], 9.5)

    def test_other_types_for_some_tensors(self):
        self.good("quantize", WIDE, self.out, "Q4_0", "--keep", "head=Q8_0", "--keep",
                  "blk.*.ffn_up.weight=F16")
        shown = json.loads(self.good("show", self.out, "--json").stdout)
        self.assertEqual({"Q4_0", "Q8_0", "F16", "F32"} - set(json.dumps(shown).split('"')), set())

    def test_rows_that_do_not_divide_are_told(self):
        done = self.good("quantize", LLAMA, self.out, "Q4_K")
        self.assertIn("blk.*.attn_q.weight (4 tensors) gets Q5_0 instead of Q4_K: its rows of 64 "
                      "values are no multiple of 256\n", done.stderr.decode())

    def test_names_of_models(self):
        repo = self.folder / "hub/models--org--repo"
        for part in ("refs", "snapshots/" + "a" * 40):
            (repo / part).mkdir(parents=True)
        (repo / "refs/main").write_text("a" * 40)
        (repo / "snapshots" / ("a" * 40) / "tiny-F32.gguf").symlink_to(LLAMA)
        self.good("quantize", "org/repo", self.out, "F16", env={"HF_HUB_CACHE": str(repo.parent)})

    def test_the_same_bytes_for_any_threads(self):
        first = self.folder / "first.gguf"
        self.good("quantize", WIDE, str(first), "Q5_K_M", "--threads", "1")
        self.good("quantize", WIDE, self.out, "Q5_K_M", "--threads", "3")
        self.assertEqual(first.read_bytes(), Path(self.out).read_bytes())

    def test_usage(self):
        self.assertIn("no type; use F32, F16,", self.fails(2, "quantize", LLAMA, self.out, "Q9_0"))
        self.assertIn("is not WHICH=TYPE",
                      self.fails(2, "quantize", LLAMA, self.out, "Q8_0", "--keep", "head"))
        self.assertIn("--check", self.fails(2, "quantize", LLAMA, self.out, "Q8_0", "--precise"))
        self.fails(2, "quantize", LLAMA, self.out)
        self.assertIn("no tensor is called 'x'",
                      self.fails(1, "quantize", LLAMA, self.out, "Q8_0", "--keep", "x=F16"))
        self.assertEqual(self.files(), [])

    def test_files_that_cannot_be(self):
        own = self.folder / "own.gguf"
        own.write_bytes(Path(LLAMA).read_bytes())
        self.assertIn("is a file of the model",
                      self.fails(1, "quantize", str(own), str(own), "Q8_0"))
        self.assertEqual(own.read_bytes(), Path(LLAMA).read_bytes())
        self.assertIn("/none/a.gguf'", self.fails(1, "quantize", LLAMA, str(own.parent / "none/a.gguf"),
                                                  "Q8_0"))
        (self.folder / "text").write_text("no model")
        self.assertIn("text", self.fails(1, "quantize", str(self.folder / "text"), self.out, "Q8_0"))
        self.assertEqual(self.files(), ["own.gguf", "text"])

    def test_interrupted(self):
        # Two billion zeros that take no room on the disk.
        rows, source = 1 << 21, self.folder / "zeros.gguf"
        name, key = b"blk.0.ffn_up.weight", b"general.architecture"
        head = b"GGUF" + struct.pack("<IQQ", 3, 1, 1)
        head += struct.pack("<Q", len(key)) + key + struct.pack("<IQ", 8, 1) + b"x"
        head += struct.pack("<Q", len(name)) + name + struct.pack("<IQQIQ", 2, 1024, rows, 1, 0)
        head += bytes(-len(head) % 32)
        with open(source, "wb") as file:
            file.write(head)
            file.truncate(len(head) + 2 * 1024 * rows)
        Path(self.out).write_text("old")
        process = subprocess.Popen([CULET, "quantize", str(source), self.out, "Q4_K"], env=CLEAN,
                                   stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        end = time.monotonic() + 60
        while len(self.files()) < 3 and time.monotonic() < end:
            time.sleep(0.01)
        self.assertEqual(len(self.files()), 3)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=60)
        self.assertEqual((process.returncode, out, err), (130, b"", b"stopped\n"))
        self.assertEqual(self.files(), ["out.gguf", "zeros.gguf"])
        self.assertEqual(Path(self.out).read_text(), "old")


class Check(Case):
    def setUp(self):
        super().setUp()
        self.text = self.folder / "text"
        self.text.write_text("the thing and the other thing, in a sentence of some length. " * 8)

    def check(self, kind, *more):
        done = self.good("quantize", WIDE, self.out, kind, "--json", "--check", str(self.text), *more)
        return json.loads(done.stdout)["check"]

    def test_a_copy_does_not_differ(self):
        check = self.check("BF16")
        self.assertEqual(check["mean_divergence"], 0)
        self.assertEqual(check["max_divergence"], 0)
        self.assertEqual(check["same_top"], 1)
        self.assertEqual(check["source_nll"], check["new_nll"])

    def test_smaller_types_differ_more(self):
        found = [self.check(kind, "--precise") for kind in ("Q8_0", "Q5_K", "Q4_K", "Q2_K")]
        for a, b in zip(found, found[1:]):
            self.assertLess(a["mean_divergence"], b["mean_divergence"])
        for check in found:
            self.assertGreaterEqual(check["max_divergence"], check["mean_divergence"])
            self.assertEqual(check["tokens"], found[0]["tokens"])

    def test_against_score(self):
        """The surprisals are those that culet score finds for the same tokens."""
        check = self.check("Q4_0")
        for model, key in ((WIDE, "source_nll"), (self.out, "new_nll")):
            last = json.loads(self.good("score", model, str(self.text)).stdout.splitlines()[-1])
            # score predicts the first token after BOS, too
            lines = [json.loads(line) for line in
                     self.good("score", model, str(self.text)).stdout.splitlines()[:-1]]
            nll = [line["nll"] for line in lines[2:]]
            self.assertEqual(len(nll), check["tokens"])
            self.assertAlmostEqual(sum(nll) / len(nll), check[key], places=9)
            self.assertEqual(last["tokens"], len(lines))

    def test_for_people(self):
        done = self.good("quantize", WIDE, self.out, "Q4_0", "--check", "-",
                         stdin=self.text.read_bytes())
        self.assertRegex(done.stdout.decode(),
                         r"compared on \d+ tokens, in nats:\n.*mean 0\.\d+, largest \d")

    def test_what_cannot_be_compared(self):
        self.assertIn("encoder", self.fails(1, "quantize", BERT, self.out, "Q8_0", "--check",
                                            str(self.text)))
        (self.folder / "empty").write_text("")
        self.assertIn("fewer than two tokens",
                      self.fails(1, "quantize", WIDE, self.out, "Q8_0", "--check",
                                 str(self.folder / "empty")))
        self.assertIn("none", self.fails(1, "quantize", WIDE, self.out, "Q8_0", "--check",
                                         str(self.folder / "none")))
        self.assertEqual(self.files(), ["empty", "text"])


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    CULET = os.path.abspath(sys.argv.pop(1))
    unittest.main()
