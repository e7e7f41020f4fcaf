#!/usr/bin/env python3
"""The five published shapes of Gemma 4, as files with the right headers and holes for data.

Usage: shapes_test.py CULET

They are accepted, their memory is what the formulas say, and their lists of tensors are strict.
"""
import json
import os
import struct
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

CULET = sys.argv[1]
CLEAN = {k: v for k, v in os.environ.items() if not k.startswith("CULET_")}
VOCABULARY = 262144
SWA, FULL = 256, 512  # width of a head
F32, F16, Q4_0, Q6_K = (0, 1, 4), (1, 1, 2), (2, 32, 18), (14, 256, 210)  # type, numbers, bytes

# layers, width, heads, key heads of local and global layers, window, period, layers that share,
# feed-forward widths, experts, drop: tensors without the unused ones of layers that share
SHAPES = {
    "E2B": dict(layers=35, width=1536, heads=8, kv=(1, 1), window=512, period=5, shared=20,
                ffn=[6144] * 15 + [12288] * 20, context=131072, tensors=601, without=541),
    "E4B": dict(layers=42, width=2560, heads=8, kv=(2, 2), window=512, period=6, shared=18,
                ffn=10240, context=131072, tensors=720, without=666),
    "12B": dict(layers=48, width=3840, heads=16, kv=(8, 1), window=1024, period=6, shared=0,
                ffn=15360, context=262144, tensors=667, suppress=[258883, 258882]),
    "26B-A4B": dict(layers=30, width=2816, heads=16, kv=(8, 2), window=1024, period=6, shared=0,
                    ffn=2112, context=262144, tensors=658, experts=(128, 8, 704)),
    "31B": dict(layers=60, width=5376, heads=32, kv=(16, 4), window=1024, period=6, shared=0,
                ffn=21504, context=262144, tensors=833),
}
# Bytes of keys and values: type, context -> 12B, 31B.
PAYLOAD = {
    ("f32", 32768): (1744830464, 7046430720),
    ("f32", 131072): (4966055936, 23152558080),
    ("f32", 262144): (9261023232, 44627394560),
    ("f16-full", 32768): (1207959552, 4362076160),
    ("f16-full", 131072): (2818572288, 12415139840),
    ("f16-full", 262144): (4966055936, 23152558080),
    ("f16", 32768): (872415232, 3523215360),
    ("f16", 131072): (2483027968, 11576279040),
    ("f16", 262144): (4630511616, 22313697280),
}


def text(value):
    return struct.pack("<Q", len(value.encode())) + value.encode()


def value(x):
    """A metadata value: its type and bytes."""
    if isinstance(x, bool):
        return struct.pack("<IB", 7, x)
    if isinstance(x, int):
        return struct.pack("<II", 4, x)
    if isinstance(x, float):
        return struct.pack("<If", 6, x)
    if isinstance(x, str):
        return struct.pack("<I", 8) + text(x)
    items = {bool: (7, "<B"), int: (5, "<i"), str: (8, "")}
    kind, layout = items[type(x[0])]
    body = b"".join(text(v) if kind == 8 else struct.pack(layout, v) for v in x)
    return struct.pack("<IIQ", 9, kind, len(x)) + body


def vocabulary():
    """Of the published size and kind, with made-up words; its bytes as metadata."""
    tokens = [f"w{i}" for i in range(VOCABULARY)]
    types = [1] * VOCABULARY
    for i, name in ((0, "<pad>"), (1, "<eos>"), (2, "<bos>"), (4, "<mask>"), (50, "<|tool_response>"),
                    (105, "<|turn>"), (106, "<turn|>")):
        tokens[i], types[i] = name, 3
    tokens[3], types[3] = "<unk>", 2
    for i in range(256):
        tokens[238 + i], types[238 + i] = f"<0x{i:02X}>", 6
    tokens[600], tokens[601], tokens[602] = "a", "b", "ab"
    keys = {"tokenizer.ggml.model": "gemma4", "tokenizer.ggml.tokens": tokens,
            "tokenizer.ggml.token_type": types, "tokenizer.ggml.merges": ["a b"],
            "tokenizer.ggml.bos_token_id": 2, "tokenizer.ggml.eos_token_id": 1,
            "tokenizer.ggml.unknown_token_id": 3, "tokenizer.ggml.padding_token_id": 0}
    return len(keys), b"".join(text(k) + value(v) for k, v in keys.items())


def local(shape, i):
    return (i + 1) % shape["period"] != 0


def owns(shape, i):
    return i < shape["layers"] - shape["shared"]


def per_layer(values, shape):
    return values if isinstance(values, list) else [values] * shape["layers"]


def metadata(shape):
    every = range(shape["layers"])
    keys = {
        "block_count": shape["layers"], "context_length": shape["context"],
        "embedding_length": shape["width"], "feed_forward_length": shape["ffn"],
        "attention.head_count": shape["heads"],
        "attention.head_count_kv": [shape["kv"][0 if local(shape, i) else 1] for i in every],
        "attention.layer_norm_rms_epsilon": 1e-6,
        "attention.key_length": FULL, "attention.value_length": FULL,
        "attention.key_length_swa": SWA, "attention.value_length_swa": SWA,
        "attention.sliding_window": shape["window"],
        "attention.sliding_window_pattern": [local(shape, i) for i in every],
        "attention.shared_kv_layers": shape["shared"],
        "embedding_length_per_layer_input": 256 if shape["shared"] else 0,
        "rope.freq_base": 1e6, "rope.freq_base_swa": 1e4,
        "rope.dimension_count": FULL, "rope.dimension_count_swa": SWA,
        "final_logit_softcapping": 30.0,
    }
    if "experts" in shape:
        keys["expert_count"], keys["expert_used_count"], keys["expert_feed_forward_length"] = shape["experts"]
    keys = {"general.architecture": "gemma4", **{f"gemma4.{k}": v for k, v in keys.items()}}
    if "suppress" in shape:
        keys["tokenizer.ggml.suppress_tokens"] = shape["suppress"]
    return keys


def layer_tensors(shape, i, unused):
    width, heads, ffn = shape["width"], shape["heads"], per_layer(shape["ffn"], shape)[i]
    head = SWA if local(shape, i) else FULL
    key_width = head * shape["kv"][0 if local(shape, i) else 1]
    out = [(name, [width], F32) for name in ("attn_norm", "post_attention_norm", "ffn_norm", "post_ffw_norm")]
    out += [("attn_q", [width, head * heads], Q4_0), ("attn_output", [head * heads, width], Q4_0),
            ("attn_q_norm", [head], F32), ("layer_output_scale", [1], F32),
            ("ffn_gate", [width, ffn], Q4_0), ("ffn_up", [width, ffn], Q4_0), ("ffn_down", [ffn, width], Q4_0)]
    if owns(shape, i) or unused:
        out += [("attn_k", [width, key_width], Q4_0), ("attn_k_norm", [head], F32)]
        if shape["shared"] or local(shape, i):  # elsewhere the keys serve as values
            out += [("attn_v", [width, key_width], Q4_0)]
    if shape["shared"]:
        out += [("inp_gate", [width, 256], Q4_0), ("proj", [256, width], Q4_0), ("post_norm", [width], F32)]
    out = [(f"blk.{i}.{name}.weight", dims, kind) for name, dims, kind in out]
    if "experts" in shape:
        experts, _, inner = shape["experts"]
        out += [(f"blk.{i}.{name}", dims, kind) for name, dims, kind in (
            ("ffn_gate_inp.weight", [width, experts], F32), ("ffn_gate_inp.scale", [width], F32),
            ("pre_ffw_norm_2.weight", [width], F32), ("post_ffw_norm_1.weight", [width], F32),
            ("post_ffw_norm_2.weight", [width], F32), ("ffn_down_exps.scale", [experts], F32),
            ("ffn_gate_up_exps.weight", [width, 2 * inner, experts], Q4_0),
            ("ffn_down_exps.weight", [inner, width, experts], Q4_0))]
    return out


def tensors(shape, unused=True):
    """(name, dims, type), in the order of published files."""
    width = shape["width"]
    out = [("token_embd.weight", [width, VOCABULARY], Q6_K), ("output_norm.weight", [width], F32),
           ("rope_freqs.weight", [FULL // 2], F32)]
    if shape["shared"]:
        inner = 256 * shape["layers"]
        out += [("per_layer_token_embd.weight", [inner, VOCABULARY], Q6_K),
                ("per_layer_model_proj.weight", [width, inner], F16), ("per_layer_proj_norm.weight", [256], F32)]
    for i in range(shape["layers"]):
        out += layer_tensors(shape, i, unused)
    return out


def size(tensor):
    _, dims, (_, numbers, width) = tensor
    count = 1
    for d in dims:
        count *= d
    return count // numbers * width


def cache_bytes(shape, context, local_bytes, full_bytes):
    """Keys and values of the layers that own some, by the widths of a number."""
    total = 0
    for i in range(shape["layers"]):
        if not owns(shape, i):
            continue
        if local(shape, i):
            total += min(context, shape["window"]) * shape["kv"][0] * SWA * 2 * local_bytes
        else:
            total += context * shape["kv"][1] * FULL * 2 * full_bytes
    return total


class Shapes(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.words = vocabulary()

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    def write(self, name, keys, directory):
        """A GGUF file whose data is a hole."""
        count, words = self.words
        head = b"".join(text(k) + value(v) for k, v in keys.items()) + words
        offset, entries = 0, []
        for tensor in directory:
            label, dims, kind = tensor
            entries.append(text(label) + struct.pack(f"<I{len(dims)}QIQ", len(dims), *dims, kind[0], offset))
            offset += (size(tensor) + 31) // 32 * 32
        data = struct.pack("<4sIQQ", b"GGUF", 3, len(directory), len(keys) + count) + head + b"".join(entries)
        data += bytes(-len(data) % 32)
        path = Path(self.folder.name) / f"{name}.gguf"
        with open(path, "wb") as file:
            file.write(data)
            file.truncate(len(data) + offset)
        return path

    def show(self, path, *arguments):
        done = subprocess.run([CULET, "show", path, "--json", *arguments], capture_output=True, text=True,
                              env=CLEAN, timeout=120)
        self.assertEqual(done.returncode, 0, done.stderr)
        return json.loads(done.stdout)

    def refused(self, path):
        done = subprocess.run([CULET, "show", path], capture_output=True, text=True, env=CLEAN, timeout=120)
        self.assertEqual(done.returncode, 1, done.stdout)
        return done.stderr

    # Verifies language.nearly-right-files.
    def test_every_shape_is_accepted(self):
        for name, shape in SHAPES.items():
            for unused, count in ((True, shape["tensors"]), (False, shape.get("without"))):
                if count is None:
                    continue
                with self.subTest(shape=name, unused=unused):
                    directory = tensors(shape, unused)
                    self.assertEqual(len(directory), count)
                    path = self.write("shape", metadata(shape), directory)
                    shown = self.show(path)
                    self.assertEqual((shown["architecture"], shown["layers"], shown["tensors"], shown["vocabulary"]),
                                     ("gemma4", shape["layers"], count, VOCABULARY))
                    self.assertEqual(sum(shown["tensor_bytes"].values()), sum(map(size, directory)))
                    self.assertEqual(shown["warnings"], [])
                    owned = sum(owns(shape, i) for i in range(shape["layers"]))
                    self.assertEqual(len(shown["caches"]), owned)

    # Verifies memory.memory-known-in-advance.
    def test_memory_of_weights(self):
        """The per-layer table stays in the file; what products read is kept once, padded a little."""
        for name, shape in SHAPES.items():
            with self.subTest(shape=name):
                directory = tensors(shape, unused=False)
                shown = self.show(self.write("weights", metadata(shape), directory))
                table = sum(size(t) for t in directory if t[0].startswith("per_layer_token_embd"))
                held = sum(map(size, directory)) - table
                self.assertGreater(shown["packed_bytes"] + shown["converted_bytes"], 0.95 * held)
                self.assertLess(shown["packed_bytes"] + shown["converted_bytes"], 1.10 * held)

    # Verifies memory.memory-known-in-advance.
    def test_memory_of_contexts(self):
        types = {"f32": (4, 4), "f16": (2, 2), "bf16": (2, 2), "f16-full": (4, 2), "q8_0": (34 / 32, 34 / 32)}
        for name, shape in SHAPES.items():
            path = self.write("contexts", metadata(shape), tensors(shape))
            for kind, widths in types.items():
                for context in (512, 4096, 32768, shape["context"]):
                    with self.subTest(shape=name, kind=kind, context=context):
                        memory = self.show(path, "--ctx", str(context), "--kv", kind)["memory"]
                        self.assertEqual(memory["payload_bytes"], cache_bytes(shape, context, *widths))
                        if context >= 32768:
                            self.assertLess(memory["allocated_bytes"], 1.07 * memory["payload_bytes"])

    # Verifies memory.memory-known-in-advance.
    def test_memory_of_the_dense_models_is_the_table(self):
        for name, column in (("12B", 0), ("31B", 1)):
            path = self.write("table", metadata(SHAPES[name]), tensors(SHAPES[name]))
            for (kind, context), row in PAYLOAD.items():
                with self.subTest(shape=name, kind=kind, context=context):
                    memory = self.show(path, "--ctx", str(context), "--kv", kind)["memory"]
                    self.assertEqual(memory["payload_bytes"], row[column])

    def test_memory_of_a_stream(self):
        """Global layers hold what the options say, local ones their window, whatever the context."""
        for name, shape in SHAPES.items():
            with self.subTest(shape=name):
                path = self.write("stream", metadata(shape), tensors(shape))
                memory = self.show(path, "--stream", "--sinks", "4", "--window", "4092")["memory"]
                self.assertEqual(memory["payload_bytes"], cache_bytes(shape, 4096, 2, 2))

    # Verifies language.nearly-right-files.
    def test_lists_of_tensors_are_strict(self):
        """Each tensor in turn of a local, a global and a sharing layer, and of the whole, is missed."""
        optional = ("layer_output_scale", "ffn_down_exps.scale")
        for name, shape in SHAPES.items():
            directory = tensors(shape, unused=False)
            first_global = shape["period"] - 1
            layers = {f"blk.{i}." for i in (0, first_global, shape["layers"] - 1)}
            for index, (label, _, _) in enumerate(directory):
                if label.startswith("blk.") and not any(label.startswith(p) for p in layers):
                    continue
                if any(part in label for part in optional) or label in ("rope_freqs.weight", "token_embd.weight"):
                    continue
                if "ffn_gate_inp.weight" in label:  # then it is no layer with experts
                    continue
                if f"blk.{first_global}.attn_v" in label:  # then its keys serve as values
                    continue
                label = label.replace("ffn_gate_up_exps", "ffn_gate_exps")  # which may be two
                if index % 3 and name not in ("E2B", "26B-A4B"):
                    continue
                with self.subTest(shape=name, missing=label):
                    path = self.write("missing", metadata(shape), directory[:index] + directory[index + 1:])
                    self.assertIn(label.removesuffix(".weight"), self.refused(path))
            for extra in ("blk.0.attn_sinks.weight", "blk.1.attn_q.bias", "output.bias", "surprise.weight"):
                with self.subTest(shape=name, extra=extra):
                    path = self.write("extra", metadata(shape), [*directory, (extra, [32], F32)])
                    self.assertIn(extra, self.refused(path))

    def test_towers_are_ignored(self):
        shape = SHAPES["E2B"]
        more = [(f"{p}.blk.0.weight", [32], F32) for p in ("v", "a", "mm")]
        self.assertEqual(self.show(self.write("towers", metadata(shape), tensors(shape) + more))["tensors"], 604)

    # Verifies language.nearly-right-files.
    def test_heads_and_scalings_that_do_not_fit(self):
        for name, shape in SHAPES.items():
            with self.subTest(shape=name):
                keys = metadata(shape) | {"gemma4.attention.key_length_swa": 128}
                self.assertIn("attn_", self.refused(self.write("heads", keys, tensors(shape))))
                keys = metadata(shape) | {"gemma4.rope.scaling.type": "yarn", "gemma4.rope.scaling.factor": 4.0}
                self.assertIn("rope.scaling", self.refused(self.write("scaling", keys, tensors(shape))))


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *sys.argv[2:]])
