#!/usr/bin/env python3
"""Streams and snapshots from outside: cli_stream_test.py CULET [unittest options].

--stream, --sinks, --window, --keep-prompt, --save and --resume of score, run and show. What two
processes do one after the other has to be what one does: the numbers are compared as they are printed.
"""
import fcntl
import json
import os
import random
import select
import signal
import subprocess
import sys
import tempfile
import unittest
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import cli_test
from cli_test import CLEAN, GEMMA, GOLDEN, LLAMA, Case, culet, lines, with_chat_template

SMALL = "CULET_TEST_SIZE" in os.environ  # under sanitizers
LFM2 = str(GOLDEN / "tiny/lfm2/model.gguf")
PHI3 = str(GOLDEN / "tiny/phi3-longrope/model.gguf")
WORDS = "the a rain in Spain falls mainly on plain stone light glass cuts every facet of it 42 <eos>".split()


def prose(count, seed=1):
    """A text of that many lines, some of them indented or empty."""
    rng = random.Random(seed)
    text = []
    for _ in range(count):
        words = " ".join(rng.choice(WORDS) for _ in range(rng.randrange(1, 9)))
        text.append(rng.choice(["", "", "", "  ", "\t"]) + words + rng.choice([".\n", "\n", "\n\n"]))
    return "".join(text)


def cut(text, *parts):
    """Cuts a text near these parts of it, in front of lines that begin with a letter or a digit."""
    ends = []
    for part in parts:
        at = text.index("\n", int(len(text) * part)) + 1
        while not text[at].isalnum():
            at = text.index("\n", at) + 1
        ends.append(at)
    return [text[a:b] for a, b in zip([0, *ends], [*ends, None])]


class StreamCase(Case):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.snapshot = folder.name + "/snapshot"
        self.folder = folder.name

    def score(self, *arguments, stdin, model=GEMMA):
        """The lines of the tokens, and the last one."""
        if isinstance(stdin, list):
            arguments, stdin = (*arguments, "--ids"), json.dumps(stdin)
        *tokens, last = lines(self.ok(culet("score", model, *arguments, stdin=stdin.encode())))
        return tokens, last

    def ids(self, text, *arguments, model=GEMMA):
        return json.loads(self.ok(culet("tokenize", model, *arguments, stdin=text.encode())).stdout)


class Score(StreamCase):
    # Verifies memory.endless-streams, reports-caches.llama.cpp#25297.
    def test_parts_are_the_whole(self):
        """Three processes, the last two behind 3 windows and more."""
        models = (GEMMA, ["--kv", "q8_0,f16"]), (LLAMA, ["--precise"]), (LFM2, [])
        for model, more in models[-1:] if SMALL else models:
            policy = ["--stream", "--sinks", "3", "--window", "40", *more]
            text = prose(220)
            whole, whole_last = self.score(*policy, stdin=text, model=model)
            self.assertGreater(len(whole), 600)
            self.assertEqual(whole_last["evicted"], len(whole) - 43)
            done, snapshot = 0, []
            for i, part in enumerate(cut(text, 0.3, 0.6)):
                tokens, last = self.score(*policy, *snapshot, "--save", f"{self.folder}/{i}",
                                          stdin=part, model=model)
                self.assertEqual(tokens, whole[done:done + len(tokens)], (model, i))
                done += len(tokens)
                self.assertEqual((last["tokens"], last["evicted"]), (len(tokens), done - 43))
                self.assertGreater(done, 3 * 43)
                snapshot = ["--resume", f"{self.folder}/{i}"]
            self.assertEqual(done, len(whole))
            self.assertEqual(last["next"], whole_last["next"])

    def test_a_snapshot_is_read_again_and_again(self):
        ids = [5 + i * i % 300 for i in range(300)]
        policy = ["--stream", "--ctx", "50"]
        whole, _ = self.score(*policy, stdin=ids)
        self.score(*policy, "--save", self.snapshot, stdin=ids[:200])
        before = Path(self.snapshot).read_bytes()
        for _ in range(2):
            tokens, last = self.score(*policy, "--resume", self.snapshot, stdin=ids[200:])
            self.assertEqual(tokens, whole[200:])
            self.assertEqual(last["evicted"], 250)
        self.assertEqual(Path(self.snapshot).read_bytes(), before)
        self.score(*policy, "--resume", self.snapshot, "--save", self.snapshot, stdin=ids[200:232])
        tokens, _ = self.score(*policy, "--resume", self.snapshot, stdin=ids[232:])
        self.assertEqual(tokens, whole[232:])

    def test_without_stream_too(self):
        text = prose(40)
        first, second = cut(text, 0.5)
        whole, whole_last = self.score("--ctx", "900", stdin=text)
        self.score("--ctx", "900", "--save", self.snapshot, stdin=first)
        tokens, last = self.score("--resume", self.snapshot, stdin=second)
        self.assertEqual(tokens, whole[-len(tokens):])
        self.assertEqual(last["next"], whole_last["next"])
        self.assertNotIn("evicted", last)
        full = culet("score", GEMMA, "--ctx", "900", "--resume", self.snapshot, "--ids",
                     stdin=json.dumps([5] * 880).encode())
        self.assert_error(full, 1, "900", "880")

    def test_ids(self):
        text = prose(200 if SMALL else 900)
        policy = ["--stream", "--window", "100"]
        expected, last = self.score(*policy, stdin=text)
        ids = [token["id"] for token in expected]
        self.assertGreater(len(ids), 500 if SMALL else 2048)  # the second: what the model was trained for
        self.assertEqual(self.score(*policy, stdin=ids), (expected, last))
        one, last = self.score("--stream", stdin=[7])     # less than the sinks
        self.assertEqual((len(one), last["tokens"], last["evicted"]), (1, 1, 0))
        for bad in ([5] * 700 + [512], [-1], "x"):
            failed = culet("score", GEMMA, *policy, "--ids", stdin=json.dumps(bad).encode())
            self.assert_error(failed, 1)
            self.assertEqual(failed.stdout, b"")
        self.assert_error(culet("score", GEMMA, "--stream", "--ids", stdin=b"[]"), 1, "no tokens")
        self.assert_error(culet("score", GEMMA, "--stream", "--no-bos"), 1, "no tokens")
        self.assert_error(culet("score", GEMMA, "--stream", "/no/such/text"), 1, "/no/such/text")

    def test_interrupted(self):
        """Its pipe is full when the signal comes: what is written ends with a line, and is saved."""
        running = subprocess.Popen([cli_test.CULET, "score", GEMMA, "--ids", "--save", self.snapshot],
                                   stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=CLEAN, bufsize=0)
        fcntl.fcntl(running.stdout, 1031, 4096)   # F_SETPIPE_SZ
        running.stdin.write(json.dumps([5 + i * i % 300 for i in range(2000)]).encode())
        running.stdin.close()
        first = running.stdout.read(1)
        running.send_signal(signal.SIGTERM)
        *tokens, last = [json.loads(line) for line in (first + running.stdout.read()).splitlines()]
        running.stdout.close()
        self.assertEqual(running.wait(timeout=60), 143)
        self.assertEqual(last["tokens"], len(tokens))
        self.assertLess(len(tokens), 2000)
        after, _ = self.score("--resume", self.snapshot, stdin=[7])
        self.assertEqual(after[0]["pos"], len(tokens))

    def test_a_view_that_holds_all_is_no_stream(self):
        text = prose(40)
        tokens, last = self.score("--stream", stdin=text)
        self.assertEqual(last.pop("evicted"), 0)
        self.assertEqual((tokens, last), self.score(stdin=text))


class Pipe(StreamCase):
    """Texts that come slowly, and Ctrl-C."""

    def start(self, *arguments, **more):
        running = subprocess.Popen([cli_test.CULET, "score", GEMMA, "--stream", "--window", "40",
                                    *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                   env=CLEAN, bufsize=0, **{"stdin": subprocess.PIPE} | more)
        self.addCleanup(running.stdout.close)
        self.addCleanup(running.stderr.close)
        self.addCleanup(running.kill)
        return running

    def read(self, running, count):
        """That many lines, while the program goes on."""
        found, text = [], b""
        while len(found) < count:
            ready, _, _ = select.select([running.stdout], [], [], 60)
            self.assertTrue(ready, f"{len(found)} of {count} lines came")
            data = os.read(running.stdout.fileno(), 1 << 16)
            self.assertTrue(data)
            text += data
            *whole, text = text.split(b"\n")
            found += [json.loads(line) for line in whole]
        self.assertEqual((len(found), text), (count, b""))
        return found

    def interrupted(self, running, said=b""):
        held, running.stdin = running.stdin, None          # the text does not end
        running.send_signal(signal.SIGINT)
        output, errors = running.communicate(timeout=60)
        self.assertEqual(running.returncode, 130)
        self.assertRegex(errors, b"^" + said + b"$")
        if held:
            held.close()
        return [json.loads(line) for line in output.splitlines()]

    # Verifies memory.endless-streams.
    def test_lines_come_as_the_text_does(self):
        running, text = self.start(), "the rain\nin Spain\n  falls\nmainly"
        expected, expected_last = self.score("--stream", "--window", "40", stdin=text)
        known = len(self.ids("the rain\n"))
        running.stdin.write(b"the ra")
        running.stdin.write(b"in\nin Sp")
        self.assertEqual(self.read(running, known), expected[:known])
        running.stdin.write(b"ain\n  falls\n")     # a line that goes on with white space is waited for
        self.assertEqual(select.select([running.stdout], [], [], 0.3)[0], [])
        running.stdin.write(b"mainly")
        more = len(self.ids("in Spain\n  falls\n", "--no-bos"))
        self.assertEqual(self.read(running, more), expected[known:known + more])
        running.stdin.close()
        running.stdin = None
        output, errors = running.communicate(timeout=60)
        self.assertEqual((running.returncode, errors), (0, b""))
        self.assertEqual([json.loads(line) for line in output.splitlines()],
                         expected[known + more:] + [expected_last])

    # Verifies memory.endless-streams.
    def test_interrupted_while_it_waits(self):
        running = self.start("--save", self.snapshot)
        running.stdin.write(b"the rain\nin Spain")
        known = len(self.ids("the rain\n"))
        before = self.read(running, known)
        (last,) = self.interrupted(running)
        self.assertEqual((last["tokens"], last["evicted"]), (known, 0))
        rest, _ = self.score("--stream", "--window", "40", "--resume", self.snapshot, stdin="in Spain")
        whole, _ = self.score("--stream", "--window", "40", stdin="the rain\nin Spain")
        self.assertEqual(before + rest, whole)
        kept = Path(self.snapshot).read_bytes()
        nothing = self.start("--save", self.snapshot)
        self.assertEqual(select.select([nothing.stdout], [], [], 0.5)[0], [])
        (last,) = self.interrupted(nothing, b"note: .* is not written, because the session is empty\n")
        self.assertEqual(Path(self.snapshot).read_bytes(), kept)
        self.assertEqual((last["tokens"], last["mean_nll"], last["next"]), (0, None, None))

    def test_interrupted_while_it_computes(self):
        ids = [5 + i * i % 300 for i in range(20000)]
        with open(self.folder + "/ids", "w+b") as file:
            file.write(json.dumps(ids).encode())
            file.seek(0)
            running = self.start("--ids", "--top", "0", "--save", self.snapshot, stdin=file)
            ready, _, _ = select.select([running.stdout], [], [], 60)
            self.assertTrue(ready)
            *tokens, last = self.interrupted(running)      # its pipe is full long before the end
        self.assertTrue(0 < last["tokens"] < len(ids), last["tokens"])
        self.assertEqual([token["pos"] for token in tokens], list(range(last["tokens"])))
        self.assertEqual(last["evicted"], max(0, last["tokens"] - 44))
        policy = ["--stream", "--window", "40", "--top", "0"]
        next_ids = ids[len(tokens):len(tokens) + 32]
        rest, _ = self.score(*policy, "--resume", self.snapshot, stdin=next_ids)
        whole, _ = self.score(*policy, stdin=ids[:len(tokens) + 32])
        self.assertEqual(tokens + rest, whole)

    def test_a_closed_pipe_ends_it(self):
        running = self.start()
        running.stdin.write(b"the rain\nin Spain\n")
        self.read(running, len(self.ids("the rain\n")))
        running.stdout.close()
        running.stdin.write(b"in\n")
        self.assertEqual(running.wait(timeout=60), 1)
        self.assertEqual(running.stderr.read(), b"")
        running.stdin.close()


class Snapshots(StreamCase):
    POLICY = ["--stream", "--window", "40"]

    def refused(self, *arguments, model=GEMMA, words=()):
        failed = culet("score", model, *arguments, stdin=b"the rain")
        self.assert_error(failed, 1, *words)
        self.assertEqual(failed.stdout, b"")

    # Verifies memory.snapshots.
    def test_what_does_not_fit_is_refused(self):
        self.score(*self.POLICY, "--save", self.snapshot, stdin=prose(30))
        resume = ["--resume", self.snapshot]
        for options, word in (([*self.POLICY, "--kv", "f32"], "keys"),
                              ([*self.POLICY, "--kv", "f16-full"], "window_keys"),
                              ([*self.POLICY, "--precise"], "precise"),
                              (["--stream", "--window", "41"], "stream"),
                              ([*self.POLICY, "--sinks", "5"], "stream"), ([], "stream")):
            self.refused(*options, *resume, words=(word, self.snapshot))
        self.refused(*self.POLICY, *resume, model=LLAMA, words=("model", self.snapshot))
        arch = Path(self.folder + "/arch")
        arch.mkdir()
        source = (GOLDEN.parent.parent / "arch/gemma3.arch").read_text()
        (arch / "gemma3.arch").write_text(source + "\n# another text\n")
        self.refused(*self.POLICY, *resume, "--arch-dir", str(arch), words=("architecture",))
        self.assert_error(culet("run", GEMMA, "x", *resume), 1, "stream")

    # Verifies memory.snapshots.
    def test_damage_is_noticed(self):
        self.score(*self.POLICY, "--save", self.snapshot, stdin=prose(30))
        good = Path(self.snapshot).read_bytes()
        damaged = Path(self.folder + "/damaged")
        flips = [bytearray(good) for _ in range(4)]
        for flip, part in zip(flips, (0.03, 0.3, 0.7, 0.999)):
            flip[int(len(good) * part)] ^= 4
        for data in (b"", good[:5], good[:100], good[:-1], good[:len(good) // 2], good + b"\0",
                     *map(bytes, flips)):
            damaged.write_bytes(data)
            self.refused(*self.POLICY, "--resume", str(damaged), words=(str(damaged),))
        self.refused(*self.POLICY, "--resume", GEMMA, words=("--save",))
        self.refused(*self.POLICY, "--resume", self.folder, words=(self.folder,))
        self.refused(*self.POLICY, "--resume", "/no/such/file", words=("/no/such/file",))
        version = bytearray(good)
        version[8] = 9
        damaged.write_bytes(version)
        self.refused(*self.POLICY, "--resume", str(damaged), words=("version 9",))

    # Verifies memory.snapshots.
    def test_a_place_that_cannot_be_written(self):
        """Said before the work, whose result would be lost."""
        link, device = self.folder + "/link", self.folder + "/pipe"
        os.symlink(self.folder + "/nowhere/x", link)
        os.mkfifo(device)
        for place in ("/no/such/folder/snapshot", self.folder, device, GEMMA):
            failed = culet("score", GEMMA, "--save", place, stdin=b"the rain")
            self.assert_error(failed, 1, place)
            self.assertEqual(failed.stdout, b"")
        text = self.folder + "/text"
        Path(text).write_text("the rain")
        for more in ([], ["--stream"]):
            self.assert_error(culet("score", GEMMA, text, "--save", text, *more), 1, "one of the input files")
            with open(text) as standard_input:
                done = subprocess.run([cli_test.CULET, "score", GEMMA, "--save", text, *more], env=CLEAN,
                                      stdin=standard_input, capture_output=True, check=False)
            self.assert_error(done, 1, "one of the input files")
        self.assertEqual(Path(text).read_text(), "the rain")
        self.assert_error(culet("run", GEMMA, "the rain", "-n", "5", "-q", "--save", "/no/such/folder/x"), 1, "/no/such")
        failed = culet("run", GEMMA, "the rain", "-n", "5", "--jsonl", "--save", link)
        self.assert_error(failed, 1, link)              # only the file system knows: after the answer
        self.assertEqual([e["event"] for e in lines(failed)[-2:]], ["finished", "error"])
        self.assertTrue(os.path.islink(link))
        for option in ("--save", "--resume"):
            self.assert_error(culet("score", GEMMA, option, "", stdin=b"x"), 2, option)

    def test_saved_at_once_by_many(self):
        """Each writes a file of its own, so that the last one is whole; others' files stay."""
        Path(self.snapshot + ".part").write_bytes(b"mine")
        with ThreadPoolExecutor(6) as many:
            all_done = [many.submit(culet, "score", GEMMA, "--save", self.snapshot, stdin=b"the rain") for _ in range(6)]
        for done in all_done:
            self.ok(done.result())
        self.assertEqual(sorted(os.listdir(self.folder)), ["snapshot", "snapshot.part"])
        self.assertEqual(culet("score", GEMMA, "--resume", self.snapshot, stdin=b" and").returncode, 0)

    def test_usage(self):
        for command in ("score", "run", "show"):
            for option in (["--sinks", "4"], ["--window", "9"]):
                self.assert_error(culet(command, GEMMA, *option), 2, option[0], "--stream")
            for bad in (["--sinks", "-1"], ["--window", "0"], ["--window", "many"]):
                self.assert_error(culet(command, GEMMA, "--stream", *bad), 2, bad[0])
        self.assert_error(culet("run", GEMMA, "x", "--keep-prompt"), 2, "--stream")
        self.assert_error(culet("run", GEMMA, "x", "--stream", "--keep-prompt", "--resume", "f"), 2,
                          "--keep-prompt")

    def test_what_cannot_stream_is_refused(self):
        for command in (["score", PHI3, "--ids"], ["run", PHI3, "x"], ["show", PHI3]):
            refused = culet(*command, "--stream", stdin=b"[5, 6]" if "--ids" in command else b"")
            self.assert_error(refused, 1, "endless stream", "length of the context", "llama.arch:")
            self.assertEqual(refused.stdout, b"")

    def test_the_factors_of_longrope_are_said_and_follow_the_text(self):
        ids = b"[5, 6, 7, 8, 9]"
        plain = self.ok(culet("score", PHI3, "--ids", stdin=ids))
        short = self.ok(culet("score", PHI3, "--ids", "--ctx", "256", stdin=ids))
        long = self.ok(culet("score", PHI3, "--ids", "--ctx", "257", stdin=ids))
        self.assertEqual(plain.stdout, short.stdout)
        self.assertNotEqual(plain.stdout, long.stdout)
        for process, factors in ((plain, "short"), (short, "short"), (long, "long")):
            self.assertIn(f"rotation: rope_factors_{factors}.weight, loaded for a context of",
                          process.stderr.decode())
        shown = self.ok(culet("show", PHI3)).stdout.decode()
        self.assertIn("rope_factors_long.weight, loaded for a context of 1024", shown)


class Run(StreamCase):
    def events(self, *arguments, model=GEMMA):
        return lines(self.ok(culet("run", model, "--jsonl", "--logprobs", "0", *arguments)))

    def answer(self, *arguments, model=GEMMA):
        """(prompt tokens, ids, log-probabilities)"""
        events = self.events(*arguments, model=model)
        texts = [e for e in events if e["event"] == "text" and e["id"] is not None]
        return (events[0]["prompt_tokens"], [e["id"] for e in texts], [e["logprob"] for e in texts])

    def check(self, ids, answer, *policy):
        """An answer's log-probabilities are those of the whole conversation scored at once."""
        context = [] if policy else ["--ctx", "2048"]
        tokens, _ = self.score(*policy, *context, stdin=ids)
        for token, logprob in zip(tokens[-len(answer):], answer, strict=True):
            self.assertAlmostEqual(-token["nll"], logprob, delta=1e-5)

    # Verifies memory.snapshots.
    def test_a_chat_goes_on(self):
        chat = self.folder + "/chat.gguf"
        with_chat_template(GEMMA, chat, "{% for m in messages %}{{ m.role }}: {{ m.content }}\n"
                           "{% endfor %}{% if add_generation_prompt %}assistant:{% endif %}")
        never = ("--logit-bias", "1=-inf", "--temp", "0", "-n", "6")    # no end of its own
        for policy in ([], ["--stream", "--ctx", "24"]):
            first_prompt = self.ids("user: the rain\nassistant:")
            n, first, _ = self.answer("the rain", *never, *policy, "--save", self.snapshot, model=chat)
            self.assertEqual((n, len(first)), (len(first_prompt), 6))
            # The template's end of the answer, the new turn, and no second beginning.
            second_prompt = self.ids("\nuser: in Spain\nassistant:", "--no-bos")
            n, second, logprobs = self.answer("in Spain", *never, *policy, "--resume", self.snapshot,
                                              model=chat)
            self.assertEqual((n, len(second)), (len(second_prompt), 6))
            self.check(first_prompt + first + second_prompt + second, logprobs, *policy)

    def test_raw_text_goes_on(self):
        greedy = ("--raw", "--temp", "0", "--logit-bias", "1=-inf")
        for policy in ([], ["--stream", "--window", "20"]):
            _, whole, _ = self.answer("the rain", *greedy, *policy, "-n", "50")
            _, first, _ = self.answer("the rain", *greedy, *policy, "-n", "30", "--save", self.snapshot)
            n, second, _ = self.answer("", *greedy, *policy, "-n", "20", "--resume", self.snapshot)
            self.assertEqual((n, first + second), (0, whole))
            n, second, logprobs = self.answer(" in Spain", *greedy, *policy, "-n", "4", "--resume",
                                              self.snapshot)
            prompt = self.ids(" in Spain", "--no-bos")
            self.assertLessEqual(abs(n - len(prompt)), 1)    # a space may be added where texts begin
            if n == len(prompt):
                self.check(self.ids("the rain") + first + prompt + second, logprobs, *policy)

    # Verifies reports-caches.koboldcpp#2112.
    def test_an_answer_longer_than_the_context(self):
        endless = ("--raw", "--temp", "0", "--logit-bias", "1=-inf", "--ctx", "40", "-n", "200")
        cut_short = self.events("the rain", *endless)[-1]
        self.assertEqual(cut_short["reason"], "context")
        *_, last = self.events("the rain", *endless, "--stream")
        self.assertEqual((last["reason"], last["usage"]["generated_tokens"]), ("length", 200))
        _, ids, logprobs = self.answer("the rain", *endless, "--stream")
        self.check(self.ids("the rain") + ids, logprobs, "--stream", "--ctx", "40")
        plain = self.ok(culet("run", GEMMA, "the rain", *endless, "--stream"))
        self.assertIn("answer 200 tokens", plain.stderr.decode())
        long = self.events(prose(200), "--raw", "--stream", "-n", "2", "--ctx", "40")
        self.assertGreater(long[0]["prompt_tokens"], 500)

    def test_interrupted(self):
        greedy = ("--raw", "--temp", "0", "--logit-bias", "1=-inf", "--stream", "--ctx", "40")
        running = subprocess.Popen([cli_test.CULET, "run", GEMMA, "the rain", *greedy, "--jsonl", "-n",
                                    "-1", "--save", self.snapshot], stdin=subprocess.DEVNULL, env=CLEAN,
                                   stdout=subprocess.PIPE, stderr=subprocess.PIPE, bufsize=0)
        self.addCleanup(running.kill)
        output = b"".join(running.stdout.readline() for _ in range(60))
        running.send_signal(signal.SIGINT)
        rest, errors = running.communicate(timeout=60)
        self.assertEqual((running.returncode, errors), (130, b""))
        events = [json.loads(line) for line in (output + rest).splitlines()]
        self.assertEqual((events[-1]["event"], events[-1]["reason"]), ("finished", "cancelled"))
        ids = [e["id"] for e in events if e["event"] == "text" and e["id"] is not None]
        self.assertGreater(len(ids), 40)
        _, more, _ = self.answer("", *greedy, "-n", "5", "--resume", self.snapshot)
        self.assertEqual(self.answer("the rain", *greedy, "-n", str(len(ids) + 5))[1], ids + more)

    # Verifies memory.endless-streams, reports-caches.llama.cpp#3440.
    def test_prompts_as_sinks(self):
        prompt = "the rain in Spain falls mainly on the plain"
        sinks = len(self.ids(prompt))
        greedy = (prompt, "--raw", "--temp", "0", "--logit-bias", "1=-inf", "--stream", "--ctx", "60",
                  "-n", "150")
        here = self.answer(*greedy, "--keep-prompt")
        self.assertEqual(here, self.answer(*greedy, "--sinks", str(sinks)))
        self.assertNotEqual(here[2], self.answer(*greedy)[2])
        self.assertEqual(self.answer(*greedy, "--keep-prompt", "--sinks", "40"),
                         self.answer(*greedy, "--sinks", "40"))
        no_room = culet("run", GEMMA, prompt, "--raw", "--stream", "--keep-prompt", "--ctx", str(sinks))
        self.assert_error(no_room, 1, "--keep-prompt", str(sinks))


class Show(StreamCase):
    def memory(self, *arguments, model=GEMMA):
        return json.loads(self.ok(culet("show", model, "--json", *arguments)).stdout)["memory"]

    # Verifies memory.memory-known-in-advance.
    def test_memory_of_a_stream(self):
        memory = self.memory("--ctx", "1000", "--stream", "--kv", "f16")
        kinds = {layer["kind"]: layer for layer in memory["layers"]}
        self.assertEqual({kind: layer["layers"] for kind, layer in kinds.items()},
                         {"window(8)": 6, "sinks(4) + window(996)": 1})
        for key in ("payload_bytes", "allocated_bytes"):
            self.assertEqual(memory[key], sum(layer[key] for layer in memory["layers"]))
        self.assertLess(memory["payload_bytes"], memory["allocated_bytes"])
        self.assertLess(memory["allocated_bytes"], memory["peak_bytes"])
        row = kinds["sinks(4) + window(996)"]["payload_bytes"] // 1000
        self.assertEqual(kinds["window(8)"]["payload_bytes"], 6 * 8 * row)
        half = self.memory("--stream", "--sinks", "4", "--window", "496")
        self.assertEqual(half["layers"][1]["payload_bytes"], 500 * row)
        full = self.memory("--ctx", "1000")
        self.assertEqual([layer["kind"] for layer in full["layers"]], ["window(8)", "full"])
        wide = self.memory("--ctx", "1000", "--stream", "--kv", "f32")
        self.assertEqual(wide["payload_bytes"], 2 * memory["payload_bytes"])
        kinds = [layer["kind"] for layer in self.memory("--stream", model=LFM2)["layers"]]
        self.assertIn("state", kinds)
        text = self.ok(culet("show", GEMMA, "--ctx", "1000", "--stream")).stdout.decode()
        self.assertIn("sinks(4) + window(996)", text)

    def test_nonsense(self):
        for options, words in ((["--window", "9999"], ("9999", "2048")),
                               (["--sinks", "5000"], ("5000", "2048")),
                               (["--ctx", "40", "--window", "10"], ("40", "10")),
                               (["--ctx", "4", "--sinks", "4"], ("4",)),
                               (["--ctx", "4096"], ("4096", "2048"))):
            for more in ([], ["--json"]):
                failed = culet("show", GEMMA, "--stream", *options, *more)
                self.assert_error(failed, 1, *words)
                self.assertEqual(failed.stdout, b"")


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    cli_test.CULET = os.path.abspath(sys.argv.pop(1))
    unittest.main()
