#!/usr/bin/env python3
"""The culet program from outside: exit statuses, messages, JSON shapes, pipes and signals.

Usage: cli_test.py PATH_OF_CULET [unittest options]
Runs on the tiny models of tests/golden, so it needs nothing but Python.
"""
import fcntl
import hashlib
import json
import math
import os
import pty
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

GOLDEN = Path(__file__).resolve().parent / "golden"
GEMMA = str(GOLDEN / "tiny/gemma3/model-q8_0.gguf")     # text in and out, no chat template
LLAMA = str(GOLDEN / "tiny/llama/model-q8_0.gguf")
BERT = str(GOLDEN / "tiny/bert/model.gguf")             # an encoder
EMBEDDING = str(GOLDEN / "tiny/gemma-embedding/model.gguf")  # one whose vectors have length 1
DRAFT_MODEL = str(GOLDEN / "tiny/gemma4-assistant/model.gguf")
CULET = ""                                              # set by main()

# Variables that would change what is tested.
CLEAN = {k: v for k, v in os.environ.items() if not k.startswith("CULET_")}


def culet(*arguments, stdin=b"", env=None, **more):
    """Runs culet; stdin is bytes."""
    return subprocess.run([CULET, *arguments], input=stdin, capture_output=True, timeout=100,
                          env=CLEAN | (env or {}), **more)


def start(*arguments, **more):
    return subprocess.Popen([CULET, *arguments], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                            stderr=subprocess.PIPE, env=CLEAN, **more)


def lines(process):
    return [json.loads(line) for line in process.stdout.decode("utf-8").splitlines()]


def with_chat_template(source, target, template):
    text = template.encode()
    with_metadata(source, target, {"tokenizer.chat_template":
                                   struct.pack("<IQ", 8, len(text)) + text})


def with_metadata(source, target, values):
    """Copies a GGUF file and adds metadata: key -> bytes of type and value."""
    data = Path(source).read_bytes()
    entry_bytes, entries, _, end = gguf_parts(data)
    tensors, directory = struct.unpack_from("<Q", data, 8)[0], 24 + len(entry_bytes)
    added = b"".join(struct.pack("<Q", len(key)) + key.encode() + value
                     for key, value in values.items())
    head = data[:8] + struct.pack("<QQ", tensors, entries + len(values)) + data[24:directory] + added
    head += data[directory:end]
    Path(target).write_bytes(head + bytes(-len(head) % 32) + data[(end + 31) // 32 * 32:])


def gguf_parts(data):
    """The bytes of the metadata, its count, [(record without offset, offset, bytes)], directory end."""
    tensors, entries = struct.unpack_from("<QQ", data, 8)
    sizes = {0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 1, 10: 8, 11: 8, 12: 8}

    def string_end(at):
        return at + 8 + struct.unpack_from("<Q", data, at)[0]

    def value_end(kind, at):
        if kind == 8:
            return string_end(at)
        if kind != 9:
            return at + sizes[kind]
        element, count = struct.unpack_from("<IQ", data, at)
        at += 12
        for _ in range(count):
            at = value_end(element, at)
        return at

    at = 24
    for _ in range(entries):
        at = string_end(at)
        at = value_end(struct.unpack_from("<I", data, at)[0], at + 4)
    directory, found = at, []
    for _ in range(tensors):
        start = at
        at = string_end(at)
        at += 4 + 8 * struct.unpack_from("<I", data, at)[0] + 4
        found.append((data[start:at], struct.unpack_from("<Q", data, at)[0]))
        at += 8
    weights = (at + 31) // 32 * 32
    ends = sorted(offset for _, offset in found) + [len(data) - weights]
    return (data[24:directory], entries,
            [(record, offset, ends[ends.index(offset) + 1] - offset) for record, offset in found],
            at)


def split_in_two(source, first, second):
    """Moves every other tensor of a GGUF file into a second one."""
    data = Path(source).read_bytes()
    head, entries, tensors, end = gguf_parts(data)
    weights = (end + 31) // 32 * 32

    def part(number, chosen):
        extra = {"split.no": struct.pack("<IH", 2, number), "split.count": struct.pack("<IH", 2, 2),
                 "split.tensors.count": struct.pack("<Ii", 5, len(tensors))}
        added = b"".join(struct.pack("<Q", len(k)) + k.encode() + v for k, v in extra.items())
        kept = (entries, head) if number == 0 else (0, b"")
        directory, body = b"", b""
        for record, offset, size in chosen:
            directory += record + struct.pack("<Q", len(body))
            body += data[weights + offset:weights + offset + size]
            body += bytes(-len(body) % 32)
        out = data[:8] + struct.pack("<QQ", len(chosen), kept[0] + len(extra))
        out += kept[1] + added + directory
        return out + bytes(-len(out) % 32) + body

    Path(first).write_bytes(part(0, tensors[::2]))
    Path(second).write_bytes(part(1, tensors[1::2]))


class Case(unittest.TestCase):
    def assert_error(self, process, status, *words):
        """One sentence on standard error, behind warnings and notes if there are any, and this exit status."""
        message = "".join(line for line in process.stderr.decode().splitlines(keepends=True)
                          if not line.startswith(("warning: ", "note: ")))
        self.assertEqual(process.returncode, status, message)
        self.assertTrue(message.startswith("culet: "), message)
        self.assertEqual(message.count("\n"), 1, message)
        for word in words:
            self.assertIn(word, message)

    def ok(self, process):
        self.assertEqual(process.returncode, 0, process.stderr.decode())
        return process


class Usage(Case):
    def test_no_command(self):
        self.assert_error(culet(), 2, "culet --help")

    def test_unknown_command_and_option(self):
        self.assert_error(culet("fly"), 2)
        self.assert_error(culet("run", GEMMA, "--wings", "2"), 2, "culet run --help")

    # Verifies program.errors.
    def test_missing_model(self):
        for command in ("run", "tokenize", "score", "explain", "show"):
            self.assert_error(culet(command), 2, "MODEL", f"culet {command} --help")

    def test_values_that_make_no_sense(self):
        for option in (["--threads", "0"], ["--threads", "many"], ["--ctx", "0"], ["--ctx", "-4"],
                       ["-n", "-2"], ["-n", "1.5"], ["--temp", "-1"], ["--temp", "nan"],
                       ["--top-p", "0"], ["--top-p", "1.1"], ["--top-k", "-1"], ["--seed", "-1"],
                       ["--min-p", "2"], ["--typical", "0"], ["--repeat-penalty", "0"],
                       ["--presence-penalty", "inf"], ["--frequency-penalty", "nan"],
                       ["--repeat-last-n", "-2"], ["--logit-bias", "5"],
                       ["--logit-bias", "a=1"], ["--logprobs", "-1"]):
            name = "--max-tokens" if option[0] == "-n" else option[0]
            self.assert_error(culet("run", GEMMA, "x", *option), 2, name)
        for kv in ("q4", "f16,", ",f16", "f16,q8_0,f16", "f16-full,f16", ""):
            self.assert_error(culet("score", GEMMA, "--kv", kv), 2, "--kv")
        self.assert_error(culet("score", GEMMA, "--top", "-1"), 2, "--top")
        self.assert_error(culet("run", GEMMA, "x", "--raw", "--system", "y"), 2, "--raw")
        self.assert_error(culet("run", GEMMA, "x", "--logprobs", "2"), 2, "--jsonl")

    # Verifies answers.draft-models.
    def test_draft_models_are_refused(self):
        for command in (("run", DRAFT_MODEL, "the rain"), ("score", DRAFT_MODEL, "-"), ("bench", DRAFT_MODEL),
                        ("show", DRAFT_MODEL), ("explain", DRAFT_MODEL), ("tokenize", DRAFT_MODEL, "the rain")):
            refused = culet(*command, stdin=b"the rain" if "-" in command else b"")
            self.assertEqual((refused.returncode, refused.stdout), (1, b""))
            for word in (DRAFT_MODEL, "this is a draft model", "its target", "run that model instead"):
                self.assertIn(word, refused.stderr.decode().splitlines()[-1])  # a busy machine is a line before

    # Requirement arithmetic.engine-switch "engine switch": there is one engine; `CULET_ISA`,
    # `CULET_FUSE` and `CULET_THREADS` choose equivalent paths, and a value that makes no sense is
    # an error, not a default
    # Verifies arithmetic.instruction-sets.
    def test_environment(self):
        for name, value in (("CULET_ISA", "abacus"), ("CULET_FUSE", "maybe"), ("CULET_THREADS", "0"),
                            ("CULET_THREADS", "two")):
            self.assert_error(culet("show", GEMMA, env={name: value}), 2, name, value)
        self.assert_error(culet("show", GEMMA, env={"CULET_ARCH_DIR": "/no/such/folder"}), 1,
                          "/no/such/folder")
        shown = json.loads(self.ok(culet("show", GEMMA, "--json", env={
            "CULET_ISA": "scalar", "CULET_THREADS": "1", "CULET_FUSE": "off"})).stdout)
        self.assertEqual((shown["instruction_set"], shown["threads"]), ("scalar", 1))

    def test_help_and_version(self):
        self.assertRegex(self.ok(culet("--version")).stdout.decode(), r"^culet \d+\.\d+\.\d+\n$")
        self.assertIn("CULET_ISA", self.ok(culet("--help")).stdout.decode())
        for command in ("run", "tokenize", "score", "explain", "show"):
            page = self.ok(culet(command, "--help")).stdout.decode()
            self.assertIn("Examples:", page)
            self.assertIn(f"culet {command} ", page)

    # Requirement program.errors "style of errors": an error is an error, never an answer's text:
    # one sentence, an exit status, an event with a code
    def test_files(self):
        for command in ("run", "tokenize", "score", "explain", "show"):
            self.assert_error(culet(command, "/no/such/model.gguf"), 1, "/no/such/model.gguf")
        self.assert_error(culet("show", "no-such-model"), 1, "no-such-model", "path")
        self.assert_error(culet("show", "/"), 1, "/")
        self.assert_error(culet("show", __file__), 1, "magic")
        self.assert_error(culet("score", GEMMA, "/no/such/text"), 1, "/no/such/text")


class Tokenize(Case):
    def ids(self, *arguments, stdin=b""):
        return json.loads(self.ok(culet("tokenize", GEMMA, *arguments, stdin=stdin)).stdout)

    def test_text_and_standard_input_agree(self):
        ids = self.ids("the rain in Spain")
        self.assertTrue(ids and all(isinstance(i, int) for i in ids))
        self.assertEqual(ids, self.ids(stdin=b"the rain in Spain"))
        self.assertEqual(ids, self.ids("-", stdin=b"the rain in Spain"))

    # Verifies text.bos.
    def test_bos(self):
        self.assertEqual(self.ids("the")[0], 2)
        self.assertEqual(self.ids("the")[1:], self.ids("the", "--no-bos"))
        self.assertEqual(self.ids("", "--no-bos"), [])

    def test_special(self):
        plain, parsed = self.ids("a<eos>b"), self.ids("a<eos>b", "--parse-special")
        self.assertNotIn(1, plain)
        self.assertIn(1, parsed)

    def test_odd_bytes(self):
        for odd in (b"\xff\xfe\x00\x80", b"\xe2\x82", b"\x00", "\u00e9\U0001f600".encode()):
            self.assertTrue(self.ids("--no-bos", stdin=odd))


class Score(Case):
    def score(self, *arguments, stdin=b"the rain in Spain", model=GEMMA):
        return lines(self.ok(culet("score", model, *arguments, stdin=stdin)))

    # Requirement reports-bits.llama.cpp#27174 "ggml-org/llama.cpp#27174: completions have no
    # log-probabilities of the prompt": `culet score` gives one entry a token, the first empty,
    # whose sums are the text's; the HTTP schema belongs to the server, which is not built yet
    def test_shape(self):
        *tokens, total = self.score("--top", "3")
        ids = json.loads(culet("tokenize", GEMMA, "the rain in Spain").stdout)
        self.assertEqual([t["id"] for t in tokens], ids)
        self.assertEqual([t["pos"] for t in tokens], list(range(len(ids))))
        self.assertEqual(list(tokens[0]), ["pos", "id", "text", "nll", "entropy", "top"])
        self.assertEqual([tokens[0][k] for k in ("nll", "entropy", "top")], [None] * 3)
        for token in tokens[1:]:
            self.assertGreaterEqual(token["nll"], 0)
            self.assertGreaterEqual(token["entropy"], 0)
            self.check_top(token["top"], 3)
        self.assertEqual(list(total), ["tokens", "mean_nll", "perplexity", "next"])
        self.check_top(total["next"]["top"], 3)
        self.assertGreaterEqual(total["next"]["entropy"], 0)

    def check_top(self, top, count):
        self.assertEqual(len(top), count)
        self.assertEqual(list(top[0]), ["id", "text", "logprob"])
        values = [t["logprob"] for t in top]
        self.assertEqual(values, sorted(values, reverse=True))
        self.assertTrue(all(v <= 0 for v in values))

    # Verifies reports-bits.llama.cpp#27174.
    def test_sums(self):
        *tokens, total = self.score()
        nlls = [t["nll"] for t in tokens[1:]]
        self.assertEqual(total["tokens"], len(tokens))
        self.assertAlmostEqual(total["mean_nll"], sum(nlls) / len(nlls), places=9)
        self.assertAlmostEqual(total["perplexity"], math.exp(total["mean_nll"]), places=5)

    # Verifies reports-bits.llama.cpp#27174.
    def test_nll_is_that_of_the_token(self):
        *tokens, _ = self.score("--top", "512")
        for token in tokens[1:]:
            logprob = {t["id"]: t["logprob"] for t in token["top"]}
            self.assertAlmostEqual(-logprob[token["id"]], token["nll"], places=4)
            self.assertAlmostEqual(sum(math.exp(v) for v in logprob.values()), 1, places=4)

    def test_ids(self):
        expected = json.loads((GOLDEN / "tiny/gemma3/expected-q8_0.json").read_text())
        *tokens, _ = self.score("--ids", "--precise", "--kv", "f32",
                                stdin=json.dumps(expected["tokens"]).encode())
        self.assertEqual([t["id"] for t in tokens], expected["tokens"])   # no BOS added
        for token, nll in zip(tokens[1:], expected["nll"]):
            self.assertAlmostEqual(token["nll"], nll, delta=5e-4)
        for bad in (b"", b"5", b'["a"]', b"[1.5]", b"[-1]", b"[99999999999]", b"[1,", b'{"a":1}'):
            self.assert_error(culet("score", GEMMA, "--ids", stdin=bad), 1)
        for outside in (b"[1, 512]", b"[512]"):
            result = culet("score", GEMMA, "--ids", stdin=outside)
            self.assert_error(result, 1, "512")
            self.assertEqual(result.stdout, b"")

    # Verifies reports-caches.ik_llama.cpp#1205.
    def test_kv_types(self):
        def nlls(kv):
            *tokens, _ = self.score("--ids", "--precise", "--kv", kv,
                                    stdin=json.dumps([5, 9, 300] * 30).encode())
            return [token["nll"] for token in tokens[1:]]
        exact = nlls("f32")
        seen = {tuple(exact)}
        for kv in ("f16", "bf16", "q8_0", "f16,q8_0", "q8_0,f16", "bf16,f32", "f16-full"):
            got = nlls(kv)
            for one, other in zip(got, exact):
                self.assertAlmostEqual(one, other, delta=0.05, msg=kv)
            self.assertNotIn(tuple(got), seen, kv)
            seen.add(tuple(got))
        self.assertEqual(nlls("f16,f16"), nlls("f16"))

    def test_file(self):
        with tempfile.NamedTemporaryFile() as file:
            file.write(b"the rain in Spain")
            file.flush()
            self.assertEqual(self.score(file.name, stdin=b""), self.score())
            self.assertEqual(self.score("-"), self.score())

    def test_one_token_and_none(self):
        *tokens, total = self.score("--ids", stdin=b"[7]")
        self.assertEqual(len(tokens), 1)
        self.assertEqual((total["tokens"], total["mean_nll"], total["perplexity"]), (1, None, None))
        self.assert_error(culet("score", GEMMA, "--no-bos", stdin=b""), 1)

    def test_too_long(self):
        self.assert_error(culet("score", GEMMA, "--ids", stdin=json.dumps([5] * 2049).encode()), 1,
                          "2049", "2048")

    def test_odd_bytes_are_printed_as_replacement(self):
        *tokens, _ = self.score("--no-bos", "--top", "400", stdin=b"\xff\xe2\x82")
        self.assertIn("\ufffd", "".join(t["text"] for t in tokens))

    # Verifies arithmetic.engine-switch.
    def test_threads_and_plans_do_not_matter(self):
        plain = culet("score", GEMMA, "--threads", "1", stdin=b"the rain").stdout
        for env in ({"CULET_FUSE": "off"}, {"CULET_ISA": "scalar"}, {"CULET_THREADS": "3"}):
            self.assertEqual(culet("score", GEMMA, stdin=b"the rain", env=env).stdout, plain, env)


class Embed(Case):
    # Requirement answers.embed "embed": encoders give a vector of a text, pooled as the file asks,
    # and the hidden rows of its tokens; the reference's numbers; a vector's bits depend on its own
    # text alone; an empty text, one that is too long (both numbers) and a model that makes no
    # vectors are errors before any work
    def test_lines_arguments_and_objects_agree(self):
        texts = ["the rain", "rain in the night", "the rain"]
        by_name = lines(self.ok(culet("embed", BERT, *texts)))
        self.assertEqual([len(v) for v in by_name], [64, 64, 64])
        self.assertEqual(by_name[0], by_name[2])
        self.assertNotEqual(by_name[0], by_name[1])
        piped = "\r\n".join(texts).encode()
        self.assertEqual(lines(self.ok(culet("embed", BERT, stdin=piped))), by_name)
        self.assertEqual(lines(self.ok(culet("embed", BERT, "-", stdin=piped + b"\n"))), by_name)
        self.assertIn(b"cannot be combined with texts", culet("embed", BERT, "-", "x", stdin=piped).stderr)
        with tempfile.NamedTemporaryFile() as file:
            file.write(piped)
            file.flush()
            self.assertEqual(lines(self.ok(culet("embed", BERT, "--file", file.name))), by_name)
        objects = lines(self.ok(culet("embed", BERT, "--json", *texts)))
        self.assertEqual([list(o) for o in objects], [["index", "text", "tokens", "vector"]] * 3)
        self.assertEqual([(o["index"], o["text"], o["vector"]) for o in objects],
                         list(zip(range(3), texts, by_name)))
        self.assertEqual(objects[0]["tokens"],
                         len(json.loads(culet("tokenize", BERT, texts[0]).stdout)))

    # Verifies answers.embed.
    def test_normalize(self):
        plain, = lines(self.ok(culet("embed", BERT, "the rain")))
        unit, = lines(self.ok(culet("embed", BERT, "the rain", "--normalize")))
        length = math.sqrt(sum(x * x for x in plain))
        self.assertGreater(abs(length - 1), 0.1)
        for x, y in zip(plain, unit):
            self.assertAlmostEqual(x / length, y, 6)
        raw, = lines(self.ok(culet("embed", EMBEDDING, "the rain")))  # of length 1 by itself
        self.assertAlmostEqual(sum(x * x for x in raw), 1, 5)

    def test_many_lines_come_in_order(self):
        texts = [("the rain " * (i % 7 + 1)).strip() for i in range(600)]
        vectors = lines(self.ok(culet("embed", BERT, stdin="\n".join(texts).encode())))
        self.assertEqual(len(vectors), 600)
        for i in range(600):
            self.assertEqual(vectors[i], vectors[i % 7], i)

    # Verifies answers.embed.
    def test_refusals(self):
        self.assert_error(culet("embed", LLAMA, "the rain"), 1, LLAMA, "kind decoder", "encoder")
        self.assert_error(culet("embed", BERT, "the rain", ""), 1, "text 2 is empty")
        self.assert_error(culet("embed", BERT, "  "), 1, "text 1 is empty")
        self.assert_error(culet("embed", BERT, stdin=b"a\n\nb\n"), 1, "line 2 of standard input is empty")
        self.assert_error(culet("embed", BERT, stdin=b""), 1, "standard input has no lines")
        long = "rain " * 400
        needed = len(json.loads(culet("tokenize", BERT, long).stdout))
        refused = culet("embed", BERT, "the rain", long)
        self.assert_error(refused, 1, "text 2", str(needed), "128")
        self.assertEqual(refused.stdout, b"")
        self.assert_error(culet("embed", BERT, "a", "--file", "b"), 2, "--file")
        self.assert_error(culet("embed", BERT, "--file", "/no/such"), 1, "/no/such")
        with tempfile.TemporaryDirectory() as folder:
            none = folder + "/none.gguf"
            data = Path(BERT).read_bytes()
            key = b"bert.pooling_type" + struct.pack("<I", 4)
            at = data.index(key) + len(key)
            Path(none).write_bytes(data[:at] + struct.pack("<I", 0) + data[at + 4:])
            self.assert_error(culet("embed", none, "the rain"), 1, "no output 'pooled'")
            self.assertIn("none: the file names no pooling", self.ok(culet("show", none)).stdout.decode())


class Run(Case):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.chat = cls.folder.name + "/chat.gguf"
        cls.broken = cls.folder.name + "/broken.gguf"
        with_chat_template(GEMMA, cls.chat, "{% for m in messages %}{{ m.role }}: {{ m.content }}\n"
                           "{% endfor %}{% if add_generation_prompt %}assistant:{% endif %}")
        with_chat_template(GEMMA, cls.broken, "{% for %}")

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    def events(self, *arguments, stdin=b"", model=GEMMA):
        return lines(self.ok(culet("run", model, "--jsonl", *arguments, stdin=stdin)))

    def test_plain(self):
        done = self.ok(culet("run", GEMMA, "the rain", "-n", "8", "--raw"))
        self.assertTrue(done.stdout.endswith(b"\n"))
        done.stdout.decode("utf-8")
        self.assertRegex(done.stderr.decode(), r"^prompt \d+ tokens, [\d.]+ tokens/s; answer \d+ ")
        quiet = self.ok(culet("run", GEMMA, "the rain", "-n", "8", "-q"))
        self.assertEqual((quiet.stdout, quiet.stderr), (done.stdout, b""))

    # Requirement answers.stream "stream": the pieces joined are the answer; no piece ends inside a
    # character; a callback that returns false stops
    def test_jsonl(self):
        events = self.events("the rain", "-n", "8")
        kinds = [e["event"] for e in events]
        self.assertEqual((kinds[0], kinds[-1]), ("started", "finished"))
        self.assertLessEqual(set(kinds), {"started", "progress", "text", "finished"})
        prompt = json.loads(culet("tokenize", GEMMA, "the rain").stdout)
        self.assertEqual(events[0], {"event": "started", "prompt_tokens": len(prompt)})
        texts = [e for e in events if e["event"] == "text"]
        self.assertTrue(all(list(e) == ["event", "text", "id"] for e in texts))
        usage = events[-1]["usage"]
        self.assertEqual(usage["prompt_tokens"], len(prompt))
        self.assertEqual(usage["generated_tokens"], sum(e["id"] is not None for e in texts))
        self.assertIn(events[-1]["reason"], ("stop", "length"))
        plain = culet("run", GEMMA, "the rain", "-n", "8", "-q").stdout.decode()
        self.assertEqual("".join(e["text"] for e in texts).rstrip("\n"), plain.rstrip("\n"))

    # Verifies program.errors.
    def test_errors_are_events_too(self):
        failed = culet("run", GEMMA, "--jsonl", "the rain", "--ctx", "2")
        self.assert_error(failed, 1, "--ctx")
        (event,) = lines(failed)
        self.assertEqual((event["event"], event["code"]), ("error", "exhausted"))
        self.assertIn(event["message"], failed.stderr.decode())

    def test_standard_input(self):
        expected = self.events("the rain", "-n", "4")[:-1]
        self.assertEqual(self.events("-n", "4", stdin=b"the rain")[:-1], expected)
        self.assertEqual(self.events("-", "-n", "4", stdin=b"the rain\n")[:-1], expected)
        self.events("-n", "4", stdin=b"odd \xff\x00 bytes")

    def test_no_prompt_on_a_terminal(self):
        master, slave = pty.openpty()
        done = subprocess.run([CULET, "run", GEMMA], stdin=slave, capture_output=True, timeout=60,
                              env=CLEAN)
        os.close(slave)
        os.close(master)
        self.assert_error(done, 2, "prompt")

    def test_seeds(self):
        def text(*more):
            return culet("run", GEMMA, "the rain", "-n", "12", "--temp", "3", "-q", *more).stdout
        self.assertEqual(text(), text("--seed", "0"))
        self.assertEqual(text("--seed", "5"), text("--seed", "5", "--threads", "1"))
        self.assertGreater(len({text("--seed", str(i)) for i in range(4)}), 1)

    def test_stop(self):
        def text(*more):
            return "".join(e.get("text", "") for e in self.events("the rain", "-n", "30", "--temp",
                                                                  "2", "--seed", "1", *more))
        whole = text()
        stop = whole[len(whole) // 2:][:4]
        self.assertEqual(text("--stop", "never there", "--stop", stop), whole[:whole.find(stop)])
        last = self.events("the rain", "-n", "30", "--temp", "2", "--seed", "1", "--stop", stop)[-1]
        self.assertEqual((last["reason"], last["stop"]), ("stop", stop))

    # Requirement reports-bits.llama.cpp#8942 "ggml-org/llama.cpp#8942, #15189, #17935: asked for
    # since 2024": as above; `run --logprobs` for the answer
    def test_logprobs(self):
        texts = [e for e in self.events("the rain", "-n", "5", "--temp", "0", "--logprobs", "2")
                 if e["event"] == "text" and e["id"] is not None]
        self.assertTrue(texts)
        for event in texts:
            self.assertEqual(list(event), ["event", "text", "id", "piece", "logprob", "top"])
            self.assertEqual([t["id"] for t in event["top"]][0], event["id"])
            self.assertEqual(event["top"][0]["logprob"], event["logprob"])
            self.assertEqual(len(event["top"]), 2)

    def test_logit_bias(self):
        events = self.events("the rain", "-n", "4", "--temp", "0", "--logit-bias", "77=1000")
        ids = [e["id"] for e in events if e["event"] == "text" and e["id"] is not None]
        self.assertEqual(set(ids), {77})
        first = self.events("the rain", "-n", "1", "--temp", "0")[-2]["id"]
        never = self.events("the rain", "-n", "1", "--temp", "0", "--logit-bias", f"{first}=-inf")
        self.assertNotEqual(never[-2]["id"], first)
        self.assert_error(culet("run", GEMMA, "x", "--logit-bias", "512=1"), 1, "512")

    def test_the_files_own_sampling(self):
        path = self.folder.name + "/sampling.gguf"
        with_metadata(GEMMA, path, {"general.sampling.temp": struct.pack("<If", 6, 0),
                                    "general.sampling.top_k": struct.pack("<Ii", 5, 7),
                                    "general.sampling.top_p": struct.pack("<If", 6, 2),
                                    "general.sampling.xtc_threshold": struct.pack("<If", 6, 0.2),
                                    "general.sampling.mirostat": struct.pack("<Ii", 5, 3)})
        shown = json.loads(self.ok(culet("show", path, "--json")).stdout)
        self.assertEqual((shown["sampling"]["temperature"], shown["sampling"]["top_k"]), (0, 7))
        self.assertAlmostEqual(shown["sampling"]["top_p"], 0.95)
        warnings = " ".join(shown["warnings"])
        self.assertIn("general.sampling.top_p", warnings)
        self.assertIn("general.sampling.mirostat is", warnings)
        self.assertNotIn("xtc", warnings)
        greedy = self.events("the rain", "-n", "9", "--temp", "0")[:-1]
        self.assertEqual(self.events("the rain", "-n", "9", model=path)[:-1], greedy)
        hot = self.events("the rain", "-n", "9", "--temp", "4", model=path)[:-1]
        self.assertNotEqual(hot, greedy)

    # Verifies files.architecture-keys.
    def test_what_a_file_says_in_vain_is_named(self):
        path = self.folder.name + "/odd.gguf"
        odd = {"general.sampling.top_p": struct.pack("<If", 6, 2)}
        with_metadata(GEMMA, path, odd)
        for arguments in (("run", path, "the rain", "-n", "1"),
                          ("run", path, "the rain", "-n", "1", "-q", "--jsonl"),
                          ("score", path), ("explain", path), ("bench", path, "-p", "8", "-n", "2", "-d", "0"),
                          ("explain", path, "--profile", "-p", "8", "-n", "2")):
            with self.subTest(arguments):
                done = self.ok(culet(*arguments, stdin=b"the rain"))
                self.assertEqual(done.stderr.count(b"warning: the key"), 1)
                self.assertIn(b"warning: the key general.sampling.top_p is ignored", done.stderr)
                self.assertNotIn(b"top_p is ignored", done.stdout)
        with_metadata(EMBEDDING, path, odd)
        done = self.ok(culet("embed", path, stdin=b"the rain\n"))
        self.assertIn(b"warning: the key general.sampling.top_p is ignored", done.stderr)
        for arguments in (("show", path), ("tokenize", path, "the rain")):  # nothing is computed
            self.assertNotIn(b"warning", self.ok(culet(*arguments)).stderr)
        self.assertNotIn(b"warning", self.ok(culet("run", GEMMA, "x", "-n", "1")).stderr)

    def test_a_key_that_nothing_reads_is_an_error(self):
        path = self.folder.name + "/key.gguf"
        with_metadata(GEMMA, path, {"gemma3.logit_scale": struct.pack("<If", 6, 0.5)})
        for arguments in (("run", path, "x"), ("score", path), ("bench", path), ("show", path),
                          ("tokenize", path, "x"), ("explain", path)):
            with self.subTest(arguments):
                stdin = b"x" if arguments[0] == "score" else b""
                self.assert_error(culet(*arguments, stdin=stdin), 1, "gemma3.logit_scale = 0.5")
        archs = self.folder.name + "/key-archs"
        os.mkdir(archs)
        Path(archs, "gemma3.arch").write_text(
            "arch-lang 1\narch gemma3\ninclude gemma3\nignore meta.logit_scale\n")
        mine = self.ok(culet("score", path, "--arch-dir", archs, stdin=b"the rain")).stdout
        self.assertEqual(mine, self.ok(culet("score", GEMMA, stdin=b"the rain")).stdout)

    # Verifies answers.generate.
    def test_limits(self):
        self.assertEqual(self.events("the rain", "-n", "0")[-1]["usage"]["generated_tokens"], 0)
        full = self.events("the rain", "-n", "-1", "--ctx", "16", "--temp", "0")[-1]
        self.assertIn(full["reason"], ("context", "stop"))
        self.assert_error(culet("run", GEMMA, "x", "--ctx", "4096"), 1, "4096", "2048")
        long = self.folder.name + "/long"
        Path(long).write_bytes(b"rain " * 9000)
        with open(long, "rb") as file:
            done = subprocess.run([CULET, "run", GEMMA], stdin=file, capture_output=True,
                                  timeout=60, env=CLEAN)
        self.assert_error(done, 1, "2048")

    # Verifies answers.generate.
    def test_chat_template(self):
        rendered = "user: the rain\nassistant:"
        raw = self.events(rendered, "--raw", "-n", "6", model=self.chat)
        self.assertEqual(self.events("the rain", "-n", "6", model=self.chat)[:-1], raw[:-1])
        self.assertNotEqual(self.events("the rain", "--raw", "-n", "6", model=self.chat)[0], raw[0])
        system = self.events("the rain", "--system", "be brief", "-n", "6", model=self.chat)
        self.assertGreater(system[0]["prompt_tokens"], raw[0]["prompt_tokens"])
        self.assert_error(culet("run", GEMMA, "x", "--system", "y"), 1, "chat template")
        self.assert_error(culet("run", self.broken, "x"), 1, "--raw")
        self.ok(culet("run", self.broken, "x", "--raw", "-n", "2"))

    # Verifies text.templates.
    def test_another_chat_template(self):
        own = Path(self.folder.name) / "own.jinja"
        own.write_text("{{ greeting | default('hello') }} {{ messages[0].content }}")
        there = ["--chat-template", own, "-n", "6"]
        for model in (self.chat, self.broken, GEMMA):  # with a template, with a broken one, with none
            with self.subTest(model=model):
                raw = self.events("hello rain", "--raw", "-n", "6", model=model)
                self.assertEqual(self.events("rain", *there, model=model)[:-1], raw[:-1])
        raw = self.events("good day rain", "--raw", "-n", "6", model=self.chat)
        named = ["--chat-template-kwargs", '{"greeting": "good day"}']
        self.assertEqual(self.events("rain", *there, *named, model=self.chat)[:-1], raw[:-1])
        own.write_text("{{ messages")
        self.assert_error(culet("run", self.chat, "x", *there), 1, "the chat template that was given")
        own.write_text("")
        self.assert_error(culet("run", self.chat, "x", *there), 1, "is empty")
        self.assert_error(culet("run", self.chat, "x", "--chat-template", own.with_name("none")), 1, "none")
        for wrong, words in (("[]", "object"), ("{", "JSON"), ('{"messages": []}', "messages")):
            self.assert_error(culet("run", self.chat, "x", "--chat-template-kwargs", wrong), 1, words)
        self.assert_error(culet("run", GEMMA, "x", "--chat-template-kwargs", "{}"), 1, "has no chat template")
        self.assert_error(culet("run", self.chat, "x", "--raw", "--chat-template", own), 2, "--raw")

    def test_a_user_cannot_spell_control_tokens(self):
        with_text = self.events("<eos>", "-n", "1", model=self.chat)[0]["prompt_tokens"]
        without = self.events("x", "-n", "1", model=self.chat)[0]["prompt_tokens"]
        self.assertGreater(with_text - without, 1)

    def test_an_empty_prompt_has_no_answer(self):
        for arguments, stdin in (([""], b""), ([], b""), (["-"], b"\n"), (["", "--system", "s"], b"")):
            self.assert_error(culet("run", self.chat, *arguments, stdin=stdin), 1, "empty", "--raw")
        self.events("", "-n", "2", "--raw", model=self.chat)

    def endless_prompt(self):
        """A prompt whose likeliest continuation goes round in circles."""
        for prompt in ("the rain", "in Spain", "a", "one two", "so", "and the", "x", "because"):
            if self.events(prompt, "-n", "900", "--temp", "0")[-1]["reason"] == "length":
                return prompt
        self.fail("every answer ends")

    def start_endless(self):
        """Its pipe is small, so the program cannot have written everything before the test acts."""
        running = start("run", GEMMA, self.endless_prompt(), "--raw", "--jsonl", "-n", "-1", "--temp", "0",
                        bufsize=0)
        fcntl.fcntl(running.stdout, 1031, 4096)   # F_SETPIPE_SZ
        return running

    def test_interrupt(self):
        for number, status in ((signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)):
            running = self.start_endless()
            first = json.loads(running.stdout.readline())
            self.assertEqual(first["event"], "started")
            running.send_signal(number)
            running.send_signal(number)   # as timeout(1) does, and a terminal that is closed
            rest, errors = running.communicate(timeout=60)
            self.assertEqual(running.returncode, status, errors)
            last = json.loads(rest.splitlines()[-1])
            self.assertEqual((last["event"], last["reason"]), ("finished", "cancelled"))

    def test_draft_models(self):
        draft_model, target = (str(GOLDEN / f"tiny/{name}/model.gguf") for name in ("gemma4-assistant", "gemma4-e"))
        for command in ("show", "explain"):
            self.assert_error(culet(command, draft_model), 1, "--target", "draft")
            text = self.ok(culet(command, draft_model, "--target", target)).stdout.decode()
            self.assertIn("draft", text)
            self.assert_error(culet(command, draft_model, "--target", GEMMA), 1, draft_model, "wide")
        shown = json.loads(self.ok(culet("show", draft_model, "--target", target, "--json")).stdout)
        self.assertEqual((shown["kind"], shown["context_bytes"]), ("draft", 0))

    def test_a_model_that_is_cut_meanwhile(self):
        with tempfile.TemporaryDirectory() as folder:
            model = shutil.copy(GEMMA, folder)
            running = start("run", model, self.endless_prompt(), "--jsonl", "-n", "-1", "--temp", "0",
                            "--no-repack", bufsize=0)
            fcntl.fcntl(running.stdout, 1031, 4096)   # F_SETPIPE_SZ
            running.stdout.read(1)
            os.truncate(model, 100)
            _, errors = running.communicate(timeout=60)
        self.assertEqual(running.returncode, 1)
        self.assertIn(b"culet: a file was cut while it was in use", errors)

    def test_closed_pipe(self):
        running = self.start_endless()
        running.stdout.readline()
        running.stdout.close()
        self.assertEqual(running.stderr.read(), b"")
        self.assertEqual(running.wait(timeout=60), 1)
        running.stderr.close()

    def test_output_that_cannot_be_written(self):
        with open("/dev/full", "wb") as full:
            for command in (["run", GEMMA, "the rain", "--raw", "-n", "4"], ["tokenize", GEMMA, "x"],
                            ["show", GEMMA]):
                done = subprocess.run([CULET, *command], stdin=subprocess.DEVNULL, stdout=full,
                                      stderr=subprocess.PIPE, timeout=60, env=CLEAN)
                self.assertEqual(done.returncode, 1)
                self.assertRegex(done.stderr.decode(), r"^culet: [^\n]*No space left[^\n]*\n$")
        closed = subprocess.run(f"exec '{CULET}' tokenize '{GEMMA}' x >&-", shell=True, timeout=60,
                                stderr=subprocess.PIPE, env=CLEAN)
        self.assertEqual(closed.returncode, 1)
        self.assertIn("standard output", closed.stderr.decode())


class Inspect(Case):
    # Requirement names.status "status": `show`, `list` and `arch list`, as text and as JSON; a
    # damaged entry is shown with its problem
    def test_show(self):
        text = self.ok(culet("show", GEMMA)).stdout.decode()
        for word in (GEMMA, "gemma3", "Q8_0", "7 layers", "2048", "window(8)", "sha256", "repacked",
                     "MiB"):
            self.assertIn(word, text)
        self.assertIn("--no-repack", self.ok(culet("show", GEMMA, "--no-repack")).stdout.decode())

    def test_show_memory(self):
        def shown(*more):
            return json.loads(self.ok(culet("show", GEMMA, "--json", *more)).stdout)
        plain, small, mapped = shown(), shown("--ctx", "64"), shown("--no-repack")
        self.assertEqual((plain["context"], small["context"]), (2048, 64))
        self.assertLess(small["context_bytes"], plain["context_bytes"])
        self.assertGreater(plain["packed_bytes"], 0)
        self.assertEqual((mapped["packed_bytes"], mapped["repacked"]), (0, False))
        self.assertGreater(mapped["mapped_bytes"], plain["mapped_bytes"])
        weights = sum(plain["tensor_bytes"].values())
        self.assertTrue(0.5 * os.path.getsize(GEMMA) < weights < os.path.getsize(GEMMA))
        self.assertIsNone(plain["file"]["sha256"])
        self.assert_error(culet("show", GEMMA, "--ctx", "4096"), 1, "4096", "2048")

    def test_encoders(self):
        text = self.ok(culet("show", BERT)).stdout.decode()
        for word in ("bert (encoder)", "128 tokens", "64 numbers per text", "longer than an ordinary forward pass"):
            self.assertIn(word, text)
        shown = json.loads(self.ok(culet("show", BERT, "--json")).stdout)
        self.assertEqual((shown["kind"], shown["embedding_dimension"]), ("encoder", 64))
        plan = self.ok(culet("explain", BERT)).stdout.decode()
        for word in ("mask=full", "embed(token_types, by=type)", "gelu_erf"):
            self.assertIn(word, plan)
        for command in (("run", BERT, "the rain"), ("score", BERT, "-"), ("bench", BERT),
                        ("explain", BERT, "--profile")):
            refused = culet(*command, stdin=b"the rain")
            self.assertEqual((refused.returncode, refused.stdout), (1, b""))
            for word in (BERT, "is an encoder", "use a decoder"):  # a busy machine is a line before
                self.assertIn(word, refused.stderr.decode().splitlines()[-1])

    def test_no_repack_changes_nothing(self):
        packed = culet("run", GEMMA, "the rain", "-n", "8", "-q")
        mapped = culet("run", GEMMA, "the rain", "-n", "8", "-q", "--no-repack")
        self.assertEqual(self.ok(mapped).stdout, self.ok(packed).stdout)

    # Verifies language.origin-and-sha256, names.provenance, names.status.
    def test_show_json(self):
        shown = json.loads(self.ok(culet("show", GEMMA, "--json", "--sha256")).stdout)
        digest = hashlib.sha256(Path(GEMMA).read_bytes()).hexdigest()
        self.assertEqual(shown["file"], {"path": GEMMA, "bytes": os.path.getsize(GEMMA), "origin": "path",
                                         "revision": None, "sha256": digest})
        self.assertEqual((shown["architecture"], shown["kind"]), ("gemma3", "decoder"))
        self.assertEqual(shown["architecture_file"]["origin"], "built in")
        self.assertRegex(shown["architecture_file"]["sha256"], r"^[0-9a-f]{64}$")
        self.assertEqual((shown["layers"], shown["hidden_size"], shown["vocabulary"]), (7, 64, 512))
        self.assertEqual(sum(shown["tensor_types"].values()), shown["tensors"])
        self.assertIn(shown["instruction_set"], shown["instruction_sets"])
        self.assertTrue(shown["instruction_sets"]["scalar"])

    # Verifies names.provenance.
    def test_split_model(self):
        with tempfile.TemporaryDirectory() as folder:
            first, second = (f"{folder}/m-0000{i}-of-00002.gguf" for i in (1, 2))
            split_in_two(LLAMA, first, second)
            split, whole = (self.ok(culet("run", model, "the rain", "-n", "8", "-q", "--raw"))
                            for model in (first, LLAMA))
            self.assertEqual(split.stdout, whole.stdout)
            digests = [hashlib.sha256(Path(part).read_bytes()).hexdigest() for part in (first, second)]
            shown = self.ok(culet("show", first, "--sha256")).stdout.decode()
            for part, digest in zip((first, second), digests):
                self.assertRegex(shown, f"(?m)^sha256 +{digest}  {part}$")
            file = json.loads(self.ok(culet("show", first, "--sha256", "--json")).stdout)["file"]
            self.assertEqual([(part["path"], part["sha256"]) for part in file["parts"]],
                             list(zip((first, second), digests)))
            self.assertEqual(file["sha256"], digests[0])
            self.assertEqual(file["bytes"], sum(part["bytes"] for part in file["parts"]))
            self.assert_error(culet("show", second), 1, first)
            os.remove(second)
            self.assert_error(culet("show", first), 1, "part 2 of 2", second)

    def test_explain(self):
        text = self.ok(culet("explain", GEMMA)).stdout.decode()
        for word in ("embed", "rope", "attend", "linear"):
            self.assertIn(word, text)
        unfused = self.ok(culet("explain", GEMMA, env={"CULET_FUSE": "off"})).stdout.decode()
        self.assertGreater(len(unfused.splitlines()), len(text.splitlines()))

    # Requirement language.definition-is-what-runs "the definition is what runs": a changed line
    # changes the result, or is an error where it drops something of the file
    def test_a_changed_architecture_file_changes_the_result(self):
        source = (GOLDEN.parent.parent / "arch/llama.arch").read_text()
        ids = b"[5, 6, 7, 8]"
        with tempfile.TemporaryDirectory() as folder:
            def score():
                return culet("score", LLAMA, "--ids", "--arch-dir", folder, stdin=ids)
            file = Path(folder + "/llama.arch")
            file.write_text(source)
            same = self.ok(score()).stdout
            self.assertEqual(same, culet("score", LLAMA, "--ids", stdin=ids).stdout)
            self.assertIn("silu(", source)
            file.write_text(source.replace("silu(", "relu("))
            changed = self.ok(score()).stdout
            self.assertNotEqual(changed, same)
            by_variable = culet("score", LLAMA, "--ids", stdin=ids, env={"CULET_ARCH_DIR": folder})
            self.assertEqual(by_variable.stdout, changed)
            file.write_text(source + "\nthis is no statement\n")
            self.assert_error(score(), 1, "llama.arch:")


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    CULET = os.path.abspath(sys.argv.pop(1))
    unittest.main()
