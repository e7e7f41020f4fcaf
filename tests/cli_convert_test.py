#!/usr/bin/env python3
"""culet quantize and culet convert from outside: output, comparison, refusals, Ctrl-C.

Usage: cli_convert_test.py PATH_OF_CULET [unittest options]
Runs on the tiny models of tests/golden.
"""
import json
import os
import shutil
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


DROP = object()                                   # of Field.change(): takes the member away


def safetensors(path):
    """{name: (header entry without its place, bytes)} of a file."""
    data = Path(path).read_bytes()
    size = struct.unpack_from("<Q", data)[0]
    header = json.loads(data[8:8 + size])
    header.pop("__metadata__", None)
    return {name: (entry["dtype"], entry["shape"], data[8 + size + entry["data_offsets"][0]:8 + size + entry["data_offsets"][1]])
            for name, entry in header.items()}


def write_safetensors(path, tensors):
    header, body = {}, b""
    for name, (dtype, shape, data) in tensors.items():
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [len(body), len(body) + len(data)]}
        body += data
    text = json.dumps(header).encode()
    Path(path).write_bytes(struct.pack("<Q", len(text)) + text + body)


class Field(Case):
    """Small folders that show faults which users of other engines reported; their SOURCE.md has the right results."""
    FIELD = GOLDEN / "field"

    def copy(self, case, name="model"):
        """A copy of the folder under one name, so that general.name is the same."""
        self.copies = getattr(self, "copies", 0) + 1
        folder = self.folder / f"copy{self.copies}" / name
        shutil.copytree(self.FIELD / case, folder)
        return folder

    def converted(self, folder):
        out = str(folder) + ".gguf"
        self.good("convert", str(folder), out)
        return Path(out)

    def mean(self, model, ids):
        (self.folder / "ids.json").write_text(json.dumps(ids))
        done = self.good("score", str(model), str(self.folder / "ids.json"), "--ids", "--precise", "--kv", "f32")
        return json.loads(done.stdout.splitlines()[-1])["mean_nll"]

    def change(self, folder, **members):
        config = json.loads((folder / "config.json").read_text())
        config.update({k: v for k, v in members.items() if v is not DROP})
        for name in [k for k, v in members.items() if v is DROP]:
            del config[name]
        (folder / "config.json").write_text(json.dumps(config))

    # Verifies files.conversion.
    def test_a_head_of_its_own_counts(self):
        folder = self.copy("tied-flag-own-head/in")
        self.assertAlmostEqual(self.mean(self.converted(folder), [5, 6, 7, 8, 9]), 7.840370, delta=2e-6)
        tensors = safetensors(folder / "model.safetensors")
        tensors["lm_head.weight"] = tensors["model.embed_tokens.weight"]
        write_safetensors(folder / "model.safetensors", tensors)
        equal = self.converted(folder)
        del tensors["lm_head.weight"]
        write_safetensors(folder / "model.safetensors", tensors)
        self.assertEqual(equal.read_bytes(), self.converted(folder).read_bytes())
        self.change(folder, tie_word_embeddings=False)
        self.assertIn("'lm_head.weight' is missing", self.fails(1, "convert", str(folder), self.out))

    # Verifies files.conversion.
    def test_pooling_as_a_word(self):
        old, new = self.copy("pooling-as-a-word/in-old"), self.copy("pooling-as-a-word/in-new")
        self.assertEqual(self.converted(old).read_bytes(), self.converted(new).read_bytes())
        pooling = new / "1_Pooling/config.json"
        for settings in ({}, {"pooling_mode": ["mean"]}, {"pooling_mode": "max"}):
            pooling.write_text(json.dumps(settings))
            if settings.get("pooling_mode") == "max":
                self.assertIn("the mean, the first and the last token", self.fails(1, "convert", str(new), self.out))
            else:
                self.assertEqual(self.converted(old).read_bytes(), self.converted(new).read_bytes())
        pooling.write_text('{"pooling_mode": "cls"}')
        (old / "1_Pooling/config.json").write_text('{"pooling_mode_cls_token": true}')
        self.assertEqual(self.converted(old).read_bytes(), self.converted(new).read_bytes())
        text = (new / "modules.json").read_text()
        (new / "modules.json").write_text(text.replace("sentence_transformers.sentence_transformer.modules.pooling", "mine"))
        self.assertIn("the model also applies 'mine.Pooling'", self.fails(1, "convert", str(new), self.out))

    # Verifies files.conversion.
    def test_the_number_of_experts_has_two_names(self):
        new, old = self.copy("expert-count-key/in-v5"), self.copy("expert-count-key/in-v5")
        self.change(old, num_local_experts=DROP, num_experts=8, rope_parameters=DROP, rope_theta=10000.0, rope_scaling=None,
                    dtype=DROP, torch_dtype="float32")
        self.assertEqual(self.converted(old).read_bytes(), self.converted(new).read_bytes())
        self.assertGreater(self.mean(self.converted(new), [5, 6, 7, 8, 9]), 1)
        self.change(new, num_experts=8)
        self.assertEqual(self.converted(old).read_bytes(), self.converted(new).read_bytes())
        self.change(new, num_experts=7)
        self.assertIn("the configuration says 7 x 64", self.fails(1, "convert", str(new), self.out))
        self.change(new, num_experts=8, num_local_experts=7)
        self.assertIn("says num_local_experts = 7, which", self.fails(1, "convert", str(new), self.out))
        self.change(new, num_experts=DROP, num_local_experts=7)
        self.assertIn("8 x 64, but the configuration says 7 x 64", self.fails(1, "convert", str(new), self.out))

    # Verifies files.conversion.
    def test_members_that_are_not_known(self):
        folder = self.copy("tied-flag-own-head/in")
        self.change(folder, sandwich_norm=True, odd={"depth": 3})
        text = self.fails(1, "convert", str(folder), self.out)
        self.assertIn("config.json says sandwich_norm = true, odd.depth = 3, which the family llama does not know", text)
        self.assertIn("add --ignore-config sandwich_norm", text)
        done = self.good("convert", str(folder), self.out, "--ignore-config", "sandwich_norm", "--ignore-config", "odd")
        self.assertIn(b"ignored as you asked: sandwich_norm = true (config.json)", done.stderr)
        self.assertIn("the configuration has no 'none'",
                      self.fails(1, "convert", str(folder), self.out, "--ignore-config", "sandwich_norm",
                                 "--ignore-config", "odd", "--ignore-config", "none"))

    # Verifies files.conversion.
    def test_settings_of_generation(self):
        folder = self.copy("tied-flag-own-head/in")
        (folder / "generation_config.json").write_text(json.dumps(
            {"do_sample": True, "temperature": 0.6, "top_k": 20, "top_p": 0.9, "min_p": 0.1, "repetition_penalty": 1.1,
             "suppress_tokens": [7], "max_new_tokens": 50, "num_beams": 1}))
        done = self.good("convert", str(folder), self.out)
        metadata = gguf(self.out)[0]
        for key, value in (("temp", 0.6), ("top_k", 20), ("top_p", 0.9), ("min_p", 0.1), ("penalty_repeat", 1.1)):
            self.assertAlmostEqual(metadata["general.sampling." + key], value, places=6)
        notes = done.stderr.decode()
        self.assertIn("generation_config.json says suppress_tokens = [7]: transformers treats these tokens so", notes)
        self.assertIn("generation_config.json says max_new_tokens = 50: ", notes)
        self.assertNotIn("num_beams", notes)
        (folder / "generation_config.json").write_text('{"do_sample": false, "temperature": 0.6}')
        self.assertEqual(self.good("convert", str(folder), self.out).stderr, b"")
        self.assertEqual(gguf(self.out)[0]["general.sampling.temp"], 0)
        (folder / "generation_config.json").write_text('{"chat_format": "chatml"}')
        self.assertIn('generation_config.json says chat_format = "chatml"', self.fails(1, "convert", str(folder), self.out))

    # Verifies files.conversion.
    def test_settings_of_sentence_encoders(self):
        folder = self.copy("pooling-as-a-word/in-new")
        file = {"config_sentence_transformers.json":
                {"__version__": {"transformers": "5.24.0"}, "prompts": {"query": "query: ", "document": ""},
                 "default_prompt_name": "query", "similarity_fn_name": "cosine", "model_type": "SentenceTransformer"},
                "sentence_bert_config.json":
                {"transformer_task": "feature-extraction", "module_output_name": "token_embeddings", "max_seq_length": 64,
                 "modality_config": {"text": {"method": "forward", "method_output_name": "last_hidden_state"}}}}
        for name, members in file.items():
            (folder / name).write_text(json.dumps(members))
        notes = self.good("convert", str(folder), self.out).stderr.decode()
        self.assertIn('config_sentence_transformers.json says prompts.query = "query: ": culet embed adds no prompt', notes)
        self.assertIn('default_prompt_name = "query"', notes)
        self.assertIn("sentence_bert_config.json says max_seq_length = 64: ", notes)
        self.assertEqual(notes.count("\n"), 3, notes)
        for name, member, value in (("config_sentence_transformers.json", "model_type", "SparseEncoder"),
                                    ("sentence_bert_config.json", "do_lower_case", True),
                                    ("sentence_bert_config.json", "transformer_task", "fill-mask"),
                                    ("1_Pooling/config.json", "odd", 1)):
            text = (folder / name).read_text()
            (folder / name).write_text(json.dumps(json.loads(text) | {member: value}))
            self.assertIn(f"{name} says {member} = {json.dumps(value)}", self.fails(1, "convert", str(folder), self.out))
            (folder / name).write_text(text)

    # Verifies files.conversion.
    def test_folders_of_another_kind(self):
        folder = self.copy("tied-flag-own-head/in")
        for name, word in (("adapter_config.json", "merge it into its base model"), ("quantize_config.json", "GPTQ"),
                           ("quant_config.json", "AWQ")):
            (folder / name).write_text("{}")
            self.assertIn(word, self.fails(1, "convert", str(folder), self.out))
            (folder / name).unlink()
        self.change(folder, architectures=["LlamaForCausalLM", "LlamaModel"])
        self.assertIn("several classes of models", self.fails(1, "convert", str(folder), self.out))
        self.change(folder, architectures=["LlamaForCausalLM"])
        other = folder / "consolidated.safetensors"
        shutil.copy(folder / "model.safetensors", other)
        self.assertIn(b"not read: consolidated.safetensors", self.good("convert", str(folder), self.out).stderr)
        names = list(safetensors(other))
        index = folder / "model.safetensors.index.json"
        index.write_text(json.dumps({"weight_map": {n: other.name for n in names}}))
        self.assertIn("two sets of weights", self.fails(1, "convert", str(folder), self.out))
        (folder / "model.safetensors").unlink()
        self.good("convert", str(folder), self.out)
        index.write_text(json.dumps({"weight_map": {n: other.name for n in names} | {"model.more": other.name}}))
        self.assertIn("names the tensor 'model.more'", self.fails(1, "convert", str(folder), self.out))
        index.write_text(json.dumps({"weight_map": {n: "model-00001-of-00002.safetensors" for n in names}}))
        self.assertIn("names model-00001-of-00002.safetensors, which is not there", self.fails(1, "convert", str(folder), self.out))
        for name in ("vocab_size", "hidden_size", "intermediate_size", "num_key_value_heads"):
            fresh = self.copy("tied-flag-own-head/in")
            value = json.loads((fresh / "config.json").read_text())[name]
            self.change(fresh, **{name: value * 2})
            self.assertIn("but the configuration says", self.fails(1, "convert", str(fresh), self.out))


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    CULET = os.path.abspath(sys.argv.pop(1))
    unittest.main()
