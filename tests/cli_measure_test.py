#!/usr/bin/env python3
"""culet bench, explain --profile and arch, from outside: cli_measure_test.py CULET. Shapes and sums, never speeds."""
import json
import os
import sys
import tempfile
import unittest
from pathlib import Path

import cli_test
from cli_test import GEMMA, GOLDEN, LLAMA, Case, culet

ARCH = GOLDEN.parent.parent / "arch"
SHORT = ("-p", "16", "-n", "4", "-d", "0,32", "-r", "2")


class Bench(Case):
    def bench(self, *arguments, model=GEMMA):
        done = self.ok(culet("bench", model, *arguments, "--json"))
        return json.loads(done.stdout), done.stderr.decode()

    # Verifies answers.prefill, reports-loading.xllama#58.
    def test_json(self):
        rows, progress = self.bench(*SHORT, "--threads", "1")
        self.assertEqual([row["depth"] for row in rows], [0, 32])
        self.assertIn("depth 0:", progress)
        self.assertIn("depth 32:", progress)
        for row in rows:
            self.assertEqual((row["prompt_tokens"], row["generated_tokens"], row["repetitions"]),
                             (16, 4, 2))
            self.assertEqual((row["path"], row["file_bytes"]), (GEMMA, os.path.getsize(GEMMA)))
            self.assertEqual((row["threads"], row["precise"], row["kv"]), (1, False, "f16"))
            self.assertEqual((row["architecture"], row["logits_type"]), ("gemma3", "Q8_0"))
            self.assertEqual(sum(row["tensor_types"].values()), 93)
            for phase in ("prefill", "decode"):
                low, middle, high = (row[f"{phase}_tokens_per_s{end}"]
                                     for end in ("_min", "", "_max"))
                self.assertTrue(0 < low <= middle <= high, row)
            for key in ("prefill_gop_per_s", "decode_gb_per_s", "read_gb_per_s", "load_seconds",
                        "peak_memory_bytes"):
                self.assertGreater(row[key], 0, key)
            self.assertAlmostEqual(row["decode_share_of_read_bandwidth"],
                                   row["decode_gb_per_s"] / row["read_gb_per_s"], places=6)
        # More is read for a token at the greater depth.
        bytes_a_token = [row["decode_gb_per_s"] / row["decode_tokens_per_s"] for row in rows]
        self.assertGreater(bytes_a_token[1], bytes_a_token[0])

    def test_options(self):
        (row,), _ = self.bench("-p", "16", "-n", "0", "-d", "0", "-r", "1", "--precise", "--kv",
                               "f32")
        self.assertEqual((row["precise"], row["kv"], row["decode_tokens_per_s"]),
                         (True, "f32", None))
        (row,), _ = self.bench("-p", "0", "-n", "2", "-d", "5", "-r", "1", "--kv", "f16,q8_0")
        self.assertEqual(row["kv"], "f16,q8_0")
        self.assertIsNone(row["prefill_gop_per_s"])
        self.assertGreater(row["decode_gb_per_s"], 0)

    def test_table(self):
        text = self.ok(culet("bench", GEMMA, *SHORT)).stdout.decode()
        for word in ("gemma3", "Q8_0", "read loop", "prefill", "decode", "GB/s", "\n     0 ",
                     "\n    32 "):
            self.assertIn(word, text)

    def test_a_context_that_is_too_small(self):
        self.assert_error_at_end(culet("bench", GEMMA), "4608", "2048", "-d")
        self.assert_error_at_end(culet("bench", GEMMA, "-p", "0", "-n", "0"), "nothing")

    def assert_error_at_end(self, process, *words):
        """As assert_error, but a warning about a busy machine may stand in front."""
        message = process.stderr.decode().splitlines()[-1]
        self.assertEqual((process.returncode, process.stdout), (1, b""), message)
        self.assertTrue(message.startswith("culet: "), message)
        for word in words:
            self.assertIn(word, message)

    def test_usage(self):
        for option in (["-d", "x"], ["-d", "1,"], ["-d", "-1"], ["-r", "0"], ["-p", "-1"],
                       ["--kv", "q4"]):
            self.assert_error(culet("bench", GEMMA, *option), 2, "culet bench --help")
        page = self.ok(culet("bench", "--help")).stdout.decode()
        self.assertIn("Examples:", page)
        self.assertIn("culet bench ", page)


class Profile(Case):
    def test_by_line(self):
        text = self.ok(culet("explain", GEMMA, "--profile", "-p", "16", "-n", "4")).stdout.decode()
        for word in ("prefill: 16 tokens", "decode: 4 tokens", "Gop/s", "GB/s",
                     "x = embed(token_embd)", "append kv: k, v", "everything else"):
            self.assertIn(word, text)

    def test_by_operation(self):
        text = self.ok(culet("explain", GEMMA, "--profile", "--all", "-p", "0", "-n", "2"))
        lines = text.stdout.decode().splitlines()
        self.assertNotIn("prefill", text.stdout.decode())
        plan = self.ok(culet("explain", GEMMA)).stdout.decode()
        for kernel in ("attend", "matmul_q Q8_0"):
            self.assertIn(kernel, plan)
            self.assertTrue(any(kernel in line for line in lines), kernel)
        self.assertEqual(sum("attend" in line for line in lines), 7)   # one a layer

    def test_usage(self):
        self.assert_error(culet("explain", GEMMA, "--all"), 2, "--profile")
        self.assert_error(culet("explain", GEMMA, "--profile", "-p", "0", "-n", "0"), 1, "nothing")
        self.assert_error(culet("explain", GEMMA, "--profile", "-p", "4000"), 1, "2048")


class Arch(Case):
    def setUp(self):
        holder = tempfile.TemporaryDirectory()
        self.addCleanup(holder.cleanup)
        self.folder = Path(holder.name)

    def write(self, name, old, new, source="llama"):
        text = (ARCH / f"{source}.arch").read_text()
        self.assertIn(old, text)
        path = self.folder / f"{name}.arch"
        path.write_text(text.replace(old, new))
        return str(path)

    # Verifies language.origin-and-sha256, names.status.
    def test_list(self):
        listed = self.ok(culet("arch", "list")).stdout.decode().splitlines()
        self.assertEqual([line.split()[0] for line in listed],
                         sorted(path.stem for path in ARCH.glob("*.arch")))
        shown = json.loads(culet("show", LLAMA, "--json").stdout)["architecture_file"]
        (llama,) = [line for line in listed if line.startswith("llama ")]
        self.assertIn(shown["sha256"], llama)
        self.assertIn("built in", llama)

    # Verifies language.a-folder-overrides.
    def test_list_of_a_folder_shows_what_cannot_be_used(self):
        path = self.write("llama", "model:", "mod:")
        for more in ({"env": {"CULET_ARCH_DIR": str(self.folder)}}, {}):
            flag = [] if more else ["--arch-dir", str(self.folder)]
            text = self.ok(culet("arch", "list", *flag, **more)).stdout.decode()
            (llama,) = [line for line in text.splitlines() if line.startswith("llama ")]
            self.assertIn(f"cannot be used: {path}:", llama)
            self.assert_error(culet("show", LLAMA, *flag, **more), 1, f"{path}:")

    def test_check(self):
        text = self.ok(culet("arch", "check", "qwen3")).stdout.decode()
        for word in ("qwen3.arch on top of llama.arch", "decoder", "meta.rope.freq_base", "logits"):
            self.assertIn(word, text)
        text = self.ok(culet("arch", "check", "gemma3", "--model", GEMMA)).stdout.decode()
        for word in ("head_dim = 24", "layers 0-4, 6 (6 of 7)", "window(8)", "bytes a token",
                     "blk.{i}.attn_q.weight{64,96} : Q8_0", "used (93)", "ignored (0)",
                     "optional, not in the file (1): output.weight", "runs in this version: yes"):
            self.assertIn(word, text)

    # Verifies language.missing-tensor.
    def test_check_names_the_place_of_a_mistake(self):
        path = self.write("mine", "silu(", "silv(")
        self.assert_error(culet("arch", "check", path, "--model", LLAMA), 1, f"{path}:", "silu")
        path = self.write("torn", "let heads ", "let heads (")
        self.assert_error(culet("arch", "check", path), 1, f"{path}:")
        path = self.write("short", ", ffn_norm, eps", ", ffn_nrm, eps")
        self.ok(culet("arch", "check", path))
        self.assert_error(culet("arch", "check", path, "--model", LLAMA), 1, f"{path}:", "ffn_nrm")

    def test_diff(self):
        same = self.ok(culet("arch", "diff", "llama", "llama", "--model", LLAMA))
        self.assertEqual((same.stdout, same.stderr), (b"", b""))
        path = self.write("mine", "silu(", "relu(")
        for more in ([], ["--model", LLAMA]):
            done = culet("arch", "diff", "llama", path, *more)
            self.assertEqual((done.returncode, done.stderr), (1, b""))
            lines = done.stdout.decode().splitlines()
            self.assertTrue(any(line[0] == "-" and "silu" in line for line in lines), lines)
            self.assertTrue(any(line[0] == "+" and "relu" in line for line in lines), lines)
            self.assertFalse(any("rope" in line for line in lines), lines)
        self.assert_error(culet("arch", "diff", "llama", "/no/such.arch"), 2, "/no/such.arch")

    def test_usage(self):
        self.assert_error(culet("arch"), 2, "culet arch --help")
        self.assert_error(culet("arch", "diff", "llama"), 2)
        self.assert_error(culet("arch", "check"), 2, "FILE")
        self.assert_error(culet("arch", "check", "lama"), 1, "llama", "qwen3")
        self.assert_error(culet("arch", "check", "/no/such.arch"), 1, "/no/such.arch", "arch list")
        self.assert_error(culet("arch", "check", "/dev/zero"), 1, "/dev/zero", "longer")
        self.assert_error(culet("arch", "check", "llama", "--model", "/no/such.gguf"), 1,
                          "/no/such.gguf")
        for command in (["arch"], ["arch", "list"], ["arch", "check"], ["arch", "diff"]):
            page = self.ok(culet(*command, "--help")).stdout.decode()
            self.assertIn("Examples:", page)
            self.assertIn("culet " + " ".join(command), page)


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    cli_test.CULET = os.path.abspath(sys.argv.pop(1))
    unittest.main()
