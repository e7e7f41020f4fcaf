#!/usr/bin/env python3
"""culet quantize and culet convert from outside: output, comparison, refusals, Ctrl-C.

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
        self.assertIn("is an input file",
                      self.fails(1, "quantize", str(own), str(own), "Q8_0"))
        self.assertEqual(own.read_bytes(), Path(LLAMA).read_bytes())
        self.assertIn("/none/a.gguf'", self.fails(1, "quantize", LLAMA, str(own.parent / "none/a.gguf"),
                                                  "Q8_0"))
        (self.folder / "text").write_text("no model")
        self.assertIn("text", self.fails(1, "quantize", str(self.folder / "text"), self.out, "Q8_0"))
        self.assertEqual(self.files(), ["own.gguf", "text"])

    # Verifies files.making-quantized-files.
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
        for number, status in ((signal.SIGINT, 130), (signal.SIGTERM, 143)):
            self.interrupt(source, number, status)

    def interrupt(self, source, number, status):
        Path(self.out).write_text("old")
        process = subprocess.Popen([CULET, "quantize", str(source), self.out, "Q4_K"], env=CLEAN,
                                   stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        end = time.monotonic() + 60
        while len(self.files()) < 3 and time.monotonic() < end:
            time.sleep(0.01)
        self.assertEqual(len(self.files()), 3)
        process.send_signal(number)
        out, err = process.communicate(timeout=60)
        self.assertEqual((process.returncode, out, err), (status, b"", b"stopped\n"))
        self.assertEqual(self.files(), ["out.gguf", "zeros.gguf"])
        self.assertEqual(Path(self.out).read_text(), "old")


class Check(Case):
    def setUp(self):
        super().setUp()
        self.text = self.folder / "text"
        self.text.write_text("the thing and the other thing, in a sentence of some length. " * 8)

    def test_the_text_is_not_overwritten(self):
        done = culet("quantize", WIDE, str(self.text), "Q8_0", "--check", str(self.text))
        self.assertEqual(done.returncode, 1)
        self.assertIn(b"the text of --check itself", done.stderr)
        self.assertTrue(self.text.read_text().startswith("the thing"))

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

    # Verifies files.making-quantized-files.
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


def gguf(path):
    """(metadata, {name: (dims, bytes)}) of a file of float32 tensors."""
    data = Path(path).read_bytes()
    tensors, entries = struct.unpack_from("<QQ", data, 8)
    scalar = {4: "<I", 5: "<i", 6: "<f", 7: "<?"}
    at = 24

    def text():
        nonlocal at
        size = struct.unpack_from("<Q", data, at)[0]
        at += 8 + size
        return data[at - size:at].decode()

    def value(kind):
        nonlocal at
        if kind == 8:
            return text()
        if kind == 9:
            element, count = struct.unpack_from("<IQ", data, at)
            at += 12
            return [value(element) for _ in range(count)]
        at += struct.calcsize(scalar[kind])
        return struct.unpack_from(scalar[kind], data, at - struct.calcsize(scalar[kind]))[0]

    def number(code):
        nonlocal at
        at += struct.calcsize(code)
        return struct.unpack_from(code, data, at - struct.calcsize(code))[0]

    metadata = {}
    for _ in range(entries):
        key = text()
        metadata[key] = value(number("<I"))
    found = []
    for _ in range(tensors):
        name = text()
        dims = [number("<Q") for _ in range(number("<I"))]
        number("<I")
        found.append((name, dims, number("<Q")))
    start = (at + 31) // 32 * 32
    out = {}
    for name, dims, offset in found:
        count = 1
        for dim in dims:
            count *= dim
        out[name] = (dims, data[start + offset:start + offset + 4 * count])
    return metadata, out


class Convert(Case):
    """Qwen 2 changes nothing of its tensors but their names."""
    QWEN = str(GOLDEN / "tiny/qwen2/model.gguf")
    LAYER = {"attn_norm": "input_layernorm", "attn_q": "self_attn.q_proj", "attn_k": "self_attn.k_proj",
             "attn_v": "self_attn.v_proj", "attn_output": "self_attn.o_proj", "ffn_up": "mlp.up_proj",
             "ffn_norm": "post_attention_layernorm", "ffn_gate": "mlp.gate_proj", "ffn_down": "mlp.down_proj"}
    TOP = {"token_embd.weight": "model.embed_tokens.weight", "output_norm.weight": "model.norm.weight"}
    WORDS = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|"
             r"\s*[\r\n]+|\s+(?!\S)|\s+")

    def published(self, name="Tiny-Qwen"):
        folder = self.folder / name
        folder.mkdir()
        metadata, tensors = gguf(self.QWEN)
        header, body = {}, b""
        for name, (dims, data) in tensors.items():
            if name in self.TOP:
                new = self.TOP[name]
            else:
                _, layer, rest = name.split(".", 2)
                inner, kind = rest.rsplit(".", 1)
                new = f"model.layers.{layer}.{self.LAYER[inner]}.{kind}"
            header[new] = {"dtype": "F32", "shape": dims[::-1], "data_offsets": [len(body), len(body) + len(data)]}
            body += data
        text = json.dumps(header).encode()
        (folder / "model.safetensors").write_bytes(struct.pack("<Q", len(text)) + text + body)
        of = {key.removeprefix("qwen2."): value for key, value in metadata.items()}
        config = {"architectures": ["Qwen2ForCausalLM"], "num_hidden_layers": of["block_count"],
                  "hidden_size": of["embedding_length"], "intermediate_size": of["feed_forward_length"],
                  "num_attention_heads": of["attention.head_count"], "rope_theta": of["rope.freq_base"],
                  "num_key_value_heads": of["attention.head_count_kv"], "vocab_size": 512,
                  "max_position_embeddings": of["context_length"], "tie_word_embeddings": True,
                  "rms_norm_eps": of["attention.layer_norm_rms_epsilon"]}
        (folder / "config.json").write_text(json.dumps(config))
        tokens, kinds = metadata["tokenizer.ggml.tokens"], metadata["tokenizer.ggml.token_type"]
        plain = {t: i for i, t in enumerate(tokens) if kinds[i] == 1}
        added = [{"id": i, "content": t, "special": True} for i, t in enumerate(tokens) if kinds[i] == 3]
        steps = [{"type": "Split", "pattern": {"Regex": self.WORDS}, "behavior": "Isolated", "invert": False},
                 {"type": "ByteLevel", "use_regex": False}]
        (folder / "tokenizer.json").write_text(json.dumps({
            "added_tokens": added, "pre_tokenizer": {"type": "Sequence", "pretokenizers": steps},
            "decoder": {"type": "ByteLevel"},
            "model": {"type": "BPE", "vocab": plain, "merges": metadata["tokenizer.ggml.merges"]}}))
        (folder / "tokenizer_config.json").write_text(json.dumps(
            {"eos_token": "<|im_end|>", "bos_token": "<|endoftext|>", "add_bos_token": False}))
        return folder

    # Verifies files.conversion.
    def test_the_same_predictions(self):
        done = self.good("convert", str(self.published()), self.out, "--json")
        value = json.loads(done.stdout)
        self.assertEqual((value["type"], value["runs"], value["notes"]), ("F32", True, []))
        self.assertEqual(value["bytes"], os.path.getsize(self.out))
        self.assertEqual(done.stderr, b"")
        text = b"the thing in there"
        self.assertEqual(self.good("score", self.out, "-", stdin=text).stdout,
                         self.good("score", self.QWEN, "-", stdin=text).stdout)
        self.assertEqual(json.loads(self.good("show", self.out, "--json").stdout)["name"], "Tiny-Qwen")

    def test_a_type(self):
        done = self.good("convert", str(self.published()), self.out, "--type", "Q8_0", "--keep", "embd=F16")
        self.assertIn(f"{self.out}: Q8_0, ", done.stdout.decode())
        found = json.loads(self.good("show", self.out, "--json").stdout)
        self.assertEqual({"Q8_0", "F16", "F32"} - set(json.dumps(found).split('"')), set())

    def test_a_family_of_ones_own(self):
        family = self.folder / "mine.family"
        family.write_text("family qwen2\nmodels None\ninclude qwen2\n"
                          "require hidden_size == 65 : the width is {hidden_size}, not 65\n")
        folder = str(self.published())
        self.assertIn("the width is 64, not 65", self.fails(1, "convert", folder, self.out, "--family", str(family)))
        family.write_text("family qwen2\ninclude qwen2\n")
        self.good("convert", folder, self.out, "--family", str(family))
        family.write_text("family qwen2\ninclude qwen\n")
        self.assertIn("mine.family:2: there is no family file 'qwen'",
                      self.fails(1, "convert", folder, self.out, "--family", str(family)))

    def test_what_cannot_run_here_is_told(self):
        family = self.folder / "mine.family"
        family.write_text("family qwen9\ninclude qwen2\n")
        done = self.good("convert", str(self.published()), self.out, "--family", str(family))
        self.assertIn("the file is written, but cannot be run here: ", done.stderr.decode())
        self.assertIn("qwen9", done.stderr.decode())

    # Verifies files.conversion.
    def test_folders_that_cannot_be(self):
        none = self.folder / "none"
        self.assertIn("is not a folder", self.fails(1, "convert", str(none), self.out))
        none.mkdir()
        self.assertIn("has no config.json", self.fails(1, "convert", str(none), self.out))
        (none / "config.json").write_text('{"architectures": ["Other"]}')
        (none / "pytorch_model.bin").write_text("")
        self.assertIn("has no *.safetensors; its other files", self.fails(1, "convert", str(none), self.out))
        folder = self.published()
        before = (folder / "tokenizer.json").read_bytes()
        self.assertIn("is an input file in the folder", self.fails(1, "convert", str(folder), str(folder / "tokenizer.json")))
        self.assertEqual((folder / "tokenizer.json").read_bytes(), before)
        (folder / "tokenizer_config.json").unlink(missing_ok=True)
        (folder / "tokenizer_config.json").symlink_to("/no/such/blob")     # as an unfinished download leaves it
        self.assertIn("tokenizer_config.json", self.fails(1, "convert", str(folder), self.out))
        (folder / "tokenizer_config.json").unlink()
        (folder / "config.json").write_text("{")
        self.assertIn("config.json: JSON error", self.fails(1, "convert", str(folder), self.out))
        (folder / "config.json").write_text('{"architectures": ["GPT2LMHeadModel"]}')
        self.assertIn("'GPT2LMHeadModel' are not known; there are ", self.fails(1, "convert", str(folder), self.out))
        weights = folder / "model.safetensors"
        weights.write_bytes(weights.read_bytes()[:-100])
        self.assertIn("model.safetensors: the data of", self.fails(1, "convert", str(folder), self.out))
        self.assertIn("no type; use", self.fails(2, "convert", str(folder), self.out, "--type", "Q1"))
        self.assertFalse(Path(self.out).exists())


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    CULET = os.path.abspath(sys.argv.pop(1))
    unittest.main()
