#!/usr/bin/env python3
"""What a user gives becomes the prompt, or is named: cli_prompt_test.py CULET [unittest options].

Prompts, conversations and standard input of run; tokenize and detokenize; what a terminal is shown.
"""
import json
import os
import pty
import re
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import time
import unittest
from pathlib import Path

import cli_test
from cli_test import BERT, CLEAN, GEMMA, GOLDEN, LLAMA, Case, culet, lines, with_chat_template, with_metadata

FIELD = GOLDEN / "field"
TINY = str(GOLDEN / "tiny/llama/model.gguf")
ROLES = str(FIELD / "role-token/model.gguf")        # has <|user|>, <|system|>, <|assistant|>, <|end|>
ENDS = str(FIELD / "eos-behind-prompt/model.gguf")  # add_eos_token, a chat template
UNKNOWN = str(FIELD / "variables-of-templates/model.gguf")  # names its unknown token, too
BEGIN, END = "<|begin_of_text|>", "<|end_of_text|>"


def string(text):
    data = text.encode() if isinstance(text, str) else text
    return struct.pack("<IQ", 8, len(data)) + data


class PromptCase(Case):
    @classmethod
    def setUpClass(cls):
        cls.temporary = tempfile.TemporaryDirectory()
        cls.folder = cls.temporary.name

    @classmethod
    def tearDownClass(cls):
        cls.temporary.cleanup()

    def file(self, name, text):
        path = Path(self.folder, name)
        path.write_text(text)
        return str(path)

    def shown(self, model, *arguments, stdin=b""):
        """What run --show-prompt --json prints, and what it says beside it."""
        done = self.ok(culet("run", model, "--show-prompt", "--json", *arguments, stdin=stdin))
        return json.loads(done.stdout), done.stderr.decode()

    def ids(self, model, *arguments, stdin=b""):
        return [token["id"] for token in self.shown(model, *arguments, stdin=stdin)[0]["tokens"]]

    def tokens(self, model, *arguments, stdin=b""):
        return [token["text"] for token in self.shown(model, *arguments, stdin=stdin)[0]["tokens"]]


class Field(PromptCase):
    # Requirement text.provenance "what may become a control token": the template's text, joined with
    # roles, names of tools and keys of their descriptions; never a text of the conversation
    def test_a_control_token_that_a_template_builds_of_a_role(self):
        spelled, spliced = (str(FIELD / f"role-token/{name}.jinja") for name in ("spelled", "spliced"))
        expected = [BEGIN, "<|user|>", "H", "i", "<|end|>", "<|assistant|>"]
        for template in (spelled, spliced):
            self.assertEqual(self.tokens(ROLES, "Hi", "--chat-template", template), expected)
            system = self.tokens(ROLES, "Hi", "--system", "Hi", "--chat-template", template)
            self.assertEqual(system, [BEGIN, "<|system|>", "H", "i", "<|end|>"] + expected[1:])
            text = self.tokens(ROLES, "<|end|>", "--chat-template", template)
            self.assertEqual((text.count("<|end|>"), "".join(text)),
                             (1, f"{BEGIN}<|user|><|end|><|end|><|assistant|>"))

    # Requirement text.end-of-prompt "no end behind a prompt": a prompt that is to be continued gets the
    # tokens for the start of a text, never those for its end; score, embed and tokenize keep both
    def test_no_end_token_behind_a_prompt(self):
        whole = json.loads(self.ok(culet("tokenize", ENDS, "Hello")).stdout)
        self.assertEqual(whole, [405, 72, 101, 300, 111, 406])
        self.assertEqual(self.ids(ENDS, "Hello", "--raw"), whole[:-1])
        self.assertEqual(self.ids(ENDS, "--raw", stdin=b"Hello"), whole[:-1])
        self.assertEqual(self.ids(ENDS, "Hello", "--raw", "--parse-special"), whole[:-1])
        self.assertNotIn(406, self.ids(ENDS, "Hello"))
        started = lines(self.ok(culet("run", ENDS, "Hello", "--raw", "--jsonl", "-n", "1")))[0]
        self.assertEqual(started["prompt_tokens"], 5)
        scored = lines(self.ok(culet("score", ENDS, stdin=b"Hello")))[:-1]
        self.assertEqual([token["id"] for token in scored], whole)
        self.assertEqual(json.loads(culet("tokenize", ENDS, "Hello", "--no-bos").stdout), whole[1:-1])

    # Requirement text.nothing-dropped "nothing given is lost": what a template leaves out is an error
    # (a system message, another message, a tool, a call) or a warning (a variable, a name)
    def test_what_a_template_drops(self):
        nosys, fixed = (str(FIELD / f"dropped-by-template/{name}.jinja") for name in ("nosys", "fixed"))
        tools = self.file("tools.json", '[{"type": "function", "function": {"name": "f"}}]')
        for arguments, words in ((("--chat-template", nosys, "--system", "S"), ("system message",)),
                                 (("--chat-template", fixed), ("messages[0].content",)),
                                 (("--chat-template", fixed, "--system", "S"), ("system message",)),
                                 (("--chat-template", nosys, "--tools", tools), ("tools[0]",))):
            for more in ((), ("--show-prompt",)):
                refused = culet("run", TINY, "Hi", *arguments, *more)
                self.assert_error(refused, 1, "the chat template leaves out", *words)
                self.assertEqual(refused.stdout, b"")
        variables = ("--chat-template", nosys, "--chat-template-kwargs", '{"enable_thinkin": true}')
        shown, said = self.shown(TINY, "Hi", *variables)
        self.assertEqual((shown["text"], shown["unused"]), (f"{BEGIN}U:HiA:", ["variables.enable_thinkin"]))
        self.assertEqual(said.count("\n"), 1)
        self.assertRegex(said, "^warning: .*enable_thinkin")
        self.assertIn(b"enable_thinkin", culet("run", TINY, "Hi", "-q", "-n", "1", *variables).stderr)

    # Requirement text.template-variables "variables of a template": those of the reference; tools and
    # documents are none when absent, and every special token that the file names is bound
    def test_variables_are_bound_as_the_reference_binds_them(self):
        folder = FIELD / "variables-of-templates"
        for name, text in (("tools", "Hi"), ("docs", "Hi"), ("pad", f"[{END}|<|reserved_0|>|{END}]Hi")):
            with self.subTest(name):
                self.assertEqual(self.shown(UNKNOWN, "Hi", "--chat-template", folder / f"{name}.jinja")[0]["text"],
                                 text)
        # This file names no unknown token.
        self.assertEqual(self.shown(TINY, "Hi", "--chat-template", folder / "pad.jinja")[0]["text"],
                         f"[{END}||{END}]Hi")
        # Their text is the template's.
        self.assertEqual(self.tokens(UNKNOWN, "Hi", "--chat-template", folder / "pad.jinja"),
                         [BEGIN, "[", END, "|", "<|reserved_0|>", "|", END, "]", "H", "i"])


class Input(PromptCase):
    """Standard input beside a text on the command line."""

    # Requirement program.standard-input "standard input": beside PROMPT it is a part of the prompt;
    # beside another text it is refused; it is never lost, and a silent pipe ends no program
    def test_it_comes_before_the_prompt(self):
        shown, said = self.shown(ENDS, "Which?", stdin=b"a\nb\n")
        self.assertIn("\n\na\nb\n\nWhich?<|eot_id|>", shown["text"])
        self.assertEqual(said, "note: 3 bytes of standard input are put before PROMPT\n")
        both = shown["tokens"]
        self.assertEqual(both, self.shown(ENDS, "-", stdin=b"a\nb\n\nWhich?\n")[0]["tokens"])
        self.assertEqual(both, self.shown(ENDS, "a\nb\n\nWhich?")[0]["tokens"])
        text = self.file("text", "a\nb\n")
        for take in (b"", b"\n"):
            self.assertEqual(self.shown(ENDS, "Which?", stdin=take), self.shown(ENDS, "Which?"))
        with open(text, "rb") as file:
            done = subprocess.run([cli_test.CULET, "run", ENDS, "Which?", "--show-prompt", "--json"], stdin=file,
                                  capture_output=True, timeout=60, env=CLEAN, check=True)
        self.assertEqual(json.loads(done.stdout)["tokens"], both)
        quiet = self.ok(culet("run", ENDS, "Which?", "-q", "-n", "1", stdin=b"a"))
        self.assertEqual(quiet.stderr, b"")
        # A model without a template continues both.
        self.assertEqual(self.shown(TINY, "Which?", stdin=b"a")[0]["text"], "a\n\nWhich?")

    # Verifies program.standard-input.
    def test_a_slow_text_is_waited_for(self):
        running = subprocess.Popen([cli_test.CULET, "run", ENDS, "Which?", "--show-prompt", "--json"],
                                   stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=CLEAN)
        time.sleep(1)
        running.stdin.write(b"a\n")
        running.stdin.flush()
        time.sleep(3.5)   # longer than a silent pipe is waited for
        output, _ = running.communicate(b"b\n", timeout=60)
        self.assertIn("\n\na\nb\n\nWhich?", json.loads(output)["text"])

    # Verifies program.standard-input.
    def test_a_pipe_that_nobody_closes(self):
        ours, theirs = socket.socketpair()
        read, write = os.pipe()
        for end in (read, theirs.fileno()):
            begun = time.monotonic()
            done = subprocess.run([cli_test.CULET, "run", ENDS, "Which?", "--raw", "-n", "1"], stdin=end,
                                  capture_output=True, timeout=60, env=CLEAN, check=True)
            self.assertLess(time.monotonic() - begun, 2.5)   # nothing is joined, so nothing is waited for
            self.assertNotIn(b"standard input", done.stderr)
            done = subprocess.run([cli_test.CULET, "run", ENDS, "Which?", "-n", "1"], stdin=end,
                                  capture_output=True, timeout=60, env=CLEAN, check=True)
            self.assertIn(b"warning: nothing came on standard input for 3 seconds", done.stderr)
            self.assertIn(b"< /dev/null", done.stderr)
        # What comes too late is told.
        running = subprocess.Popen([cli_test.CULET, "run", ENDS, "Which?", "-n", "1", "--ctx", "100"], stdin=read,
                                   stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=CLEAN)
        self.assertIn(b"3 seconds", running.stderr.readline())
        os.write(write, b"late")
        _, errors = running.communicate(timeout=60)
        if running.returncode == 0:    # it came behind the last look
            self.assertNotIn(b"too late", errors)
        else:
            self.assertIn(b"culet: a text came on standard input after 3 seconds", errors)
        for end in (read, write):
            os.close(end)
        ours.close()
        theirs.close()

    # Verifies program.standard-input.
    def test_nothing_on_standard_input(self):
        for how in ("< /dev/null", "<&-"):
            begun = time.monotonic()
            done = subprocess.run(f"'{cli_test.CULET}' run '{ENDS}' Hi -q -n 1 {how}", shell=True, timeout=60,
                                  capture_output=True, env=CLEAN, check=True)
            self.assertLess(time.monotonic() - begun, 2.5)
            self.assertEqual(done.stderr, b"")

    # Verifies program.standard-input.
    def test_commands_that_take_one_text_refuse_two(self):
        text = self.file("one.txt", "the rain")
        messages = self.file("m.json", '[{"role": "user", "content": "Hi"}]')
        for arguments, given in ((("tokenize", LLAMA, "x"), "TEXT"), (("detokenize", LLAMA, "5"), "ID"),
                                 (("score", LLAMA, text), "FILE"), (("score", LLAMA, text, "--stream"), "FILE"),
                                 (("embed", BERT, "x"), "TEXT"), (("embed", BERT, "--file", text), "--file"),
                                 (("run", LLAMA, "x", "--raw"), "PROMPT"),
                                 (("run", ENDS, "--messages", messages), "--messages")):
            with self.subTest(arguments):
                refused = culet(*arguments, stdin=b"another")
                self.assert_error(refused, 1, "standard input holds a text", given, "< /dev/null")
                self.assertEqual(refused.stdout, b"")
                self.ok(culet(*arguments, stdin=b""))
                with open(text, "rb") as file:
                    done = subprocess.run([cli_test.CULET, *arguments], stdin=file, capture_output=True, timeout=60,
                                          env=CLEAN, check=False)
                self.assert_error(done, 1, "standard input holds a text")

    # Verifies program.errors.
    def test_what_cannot_be_given_together(self):
        for arguments, words in ((("x", "--messages", "m"), ("PROMPT", "--messages")),
                                 (("--system", "x", "--messages", "m"), ("--system", "--messages")),
                                 (("x", "--raw", "--tools", "t"), ("--tools", "--raw")),
                                 (("--raw", "--messages", "m"), ("--messages", "--raw")),
                                 (("--messages", "-", "--tools", "-"), ("--messages", "--tools", "standard input")),
                                 (("--tools", "-"), ("--tools", "the prompt", "standard input")),
                                 (("-", "--chat-template", "-"), ("--chat-template", "the prompt")),
                                 (("x", "--show-prompt", "--save", "f"), ("--save", "--show-prompt")),
                                 (("x", "--show-prompt", "--jsonl"), ("--jsonl", "--json ")),
                                 (("x", "--json"), ("--json", "--show-prompt")),
                                 (("x", "--parse-special"), ("--parse-special", "--raw"))):
            with self.subTest(arguments):
                self.assert_error(culet("run", ENDS, *arguments), 2, *words)


class Conversation(PromptCase):
    # Requirement program.conversations "conversations on the command line": messages and tools as JSON
    # files, through the same checks as in the library
    def test_messages(self):
        talk = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hi"},
                {"role": "assistant", "content": "Hello"}, {"role": "user", "content": "And?"}]
        path = self.file("talk.json", json.dumps(talk))
        text = self.shown(ENDS, "--messages", path)[0]["text"]
        self.assertEqual(text, BEGIN + "".join(f"<|start_header_id|>{m['role']}<|end_header_id|>\n\n{m['content']}"
                                               "<|eot_id|>" for m in talk)
                         + "<|start_header_id|>assistant<|end_header_id|>\n\n")
        self.assertEqual(self.shown(ENDS, "--messages", "-", stdin=json.dumps(talk).encode())[0]["text"], text)
        one = self.file("one.json", json.dumps(talk[:2]))
        self.assertEqual(self.ids(ENDS, "--messages", one), self.ids(ENDS, "Hi", "--system", "Be brief."))
        events = lines(self.ok(culet("run", ENDS, "--messages", path, "--jsonl", "-n", "2")))
        self.assertEqual(events[0]["prompt_tokens"], len(self.ids(ENDS, "--messages", path)))
        for bad, words in (("{", "JSON"), ('{"role": "user"}', "array"), ("", "is empty"),
                           ('[{"role": "us er", "content": "x"}]', "messages[0].role"),
                           ('[{"role": "user", "content": "x", "mood": "y"}]', "messages[0].mood")):
            self.assert_error(culet("run", ENDS, "--messages", self.file("bad.json", bad)), 1, words)
        self.assert_error(culet("run", ENDS, "--messages", "/no/such.json"), 1, "/no/such.json")
        self.assert_error(culet("run", LLAMA, "--messages", path), 1, "has no chat template", "--messages")

    # Verifies program.conversations.
    def test_tools(self):
        template = self.file("tools.jinja", "{% for t in tools or [] %}<{{ t.function.name }}>{% endfor %}"
                             "{{ messages[0].content }}")
        tools = '[{"type": "function", "function": {"name": "get_weather"}}]'
        there = ("--chat-template", template)
        path = self.file("weather.json", tools)
        for arguments, stdin in ((("Hi", "--tools", path), b""), (("Hi", "--tools", "-"), tools.encode()),
                                 (("--tools", path), b"Hi\n")):
            self.assertEqual(self.shown(ENDS, *there, *arguments, stdin=stdin)[0]["text"], "<get_weather>Hi")
        bad = self.file("bad-tools.json", '[{"type": "function", "function": {"name": "a b"}}]')
        self.assert_error(culet("run", ENDS, "Hi", *there, "--tools", bad), 1, "tools[0].function.name", "a b")
        self.assert_error(culet("run", LLAMA, "Hi", "--tools", path), 1, "has no chat template", "--tools")
        self.assert_error(culet("run", ENDS, *there, "--tools", path, stdin=b"\xff"), 1, "not UTF-8")

    # Verifies text.nothing-dropped.
    def test_a_name_that_is_not_shown_is_named(self):
        path = self.file("name.json", '[{"role": "user", "name": "Ann", "content": "Hi"}]')
        shown, said = self.shown(ENDS, "--messages", path)
        self.assertEqual((shown["unused"], said),
                         (["messages[0].name"], "warning: the chat template leaves out messages[0].name\n"))

    # Requirement program.no-template "models without a template": that a prompt is continued as text is
    # said once, louder where the model's name says that it was trained for conversations
    def test_models_without_a_template(self):
        done = self.ok(culet("run", TINY, "Hi", "-n", "1"))
        self.assertEqual(done.stderr.decode().count("has no chat template, so the prompt is continued as text"), 1)
        for quiet in (("--raw",), ("-q",)):
            self.assertNotIn(b"template", self.ok(culet("run", TINY, "Hi", "-n", "1", *quiet)).stderr)
        named, plain, marked = (f"{self.folder}/{name}.gguf" for name in ("named", "plain", "Tiny-1b-it.Q4_K_M"))
        name = string("Tiny 1B Instruct")
        data = Path(TINY).read_bytes()
        own = string("tiny random llama")
        self.assertEqual(data.count(own), 1)
        Path(named).write_bytes(data.replace(own, string("tiny Chat model 1")))   # of the same length
        Path(plain).write_bytes(data.replace(own, string("it is a whitchat ")))
        Path(marked).write_bytes(data)
        self.assertNotEqual(name, own)
        for model in (named, marked):
            for more in ((), ("-q",)):
                said = self.ok(culet("run", model, "Hi", "-n", "1", *more)).stderr.decode()
                self.assertRegex(said, "(?m)^warning: .*no chat template.*--chat-template FILE")
                self.assertNotIn("note: ", said)
            self.assertNotIn(b"template", self.ok(culet("run", model, "Hi", "-n", "1", "--raw")).stderr)
        self.assertIn(b"note: ", self.ok(culet("run", plain, "Hi", "-n", "1")).stderr)

    # Verifies program.errors.
    def test_a_template_that_cannot_be_used(self):
        broken = self.folder + "/broken.gguf"
        with_chat_template(GEMMA, broken, "{% for %}")
        self.assert_error(culet("run", broken, "x"), 1, "cannot be used", "--chat-template", "--raw")


class Tokens(PromptCase):
    # Requirement program.show-prompt "the prompt can be seen": run --show-prompt prints what would be
    # read, with its tokens; tokenize and detokenize are inverse to each other
    def test_show_prompt_for_people(self):
        text = self.ok(culet("run", ROLES, "Hi", "--show-prompt", "--chat-template",
                             FIELD / "role-token/spliced.jinja")).stdout.decode()
        self.assertTrue(text.startswith("<|user|>Hi<|end|><|assistant|>\n\n6 tokens\n"))
        self.assertIn('\n    410  control       "<|user|>"\n     72  normal        "H"\n', text)
        shown, _ = self.shown(ENDS, "Hi")
        self.assertEqual(list(shown), ["text", "tokens", "pieces", "unused"])
        self.assertEqual("".join(piece["text"] for piece in shown["pieces"]), shown["text"])
        self.assertEqual([piece["from_template"] for piece in shown["pieces"]], [True, False, True])
        begun = lines(self.ok(culet("run", ENDS, "Hi", "--jsonl", "-n", "1")))[0]
        self.assertEqual(begun["prompt_tokens"], len(shown["tokens"]))

    # Verifies program.show-prompt.
    def test_hand_made_prompts(self):
        made = "<|start_header_id|>user<|end_header_id|>\n\nHi<|eot_id|>"
        self.assertEqual(self.tokens(ENDS, made, "--raw", "--parse-special"),
                         [BEGIN, "<|start_header_id|>", "us", "er", "<|end_header_id|>", "\n", "\n", "H", "i",
                          "<|eot_id|>"])
        self.assertNotIn("<|eot_id|>", self.tokens(ENDS, made, "--raw"))
        for special in ((), ("--parse-special",)):   # run and tokenize agree
            for text in (made, "Hi", BEGIN + "Hi", "a<|reserved_0|> b"):
                self.assertEqual(self.ids(TINY, text, "--raw", *special),
                                 json.loads(culet("tokenize", TINY, text, *special).stdout))
        # The template's prompt, written by hand.
        rendered = self.shown(ENDS, "Hi")[0]
        self.assertEqual(self.ids(ENDS, rendered["text"], "--raw", "--parse-special"),
                         [token["id"] for token in rendered["tokens"]])

    # Verifies program.show-prompt.
    def test_detokenize(self):
        for model in (LLAMA, GEMMA):
            for text in (b"Hello, world\n", b"  two  spaces ", "\u00e9\U0001f600\n\n".encode(), b"\x00\x1b", b""):
                ids = self.ok(culet("tokenize", model, "--no-bos", stdin=text)).stdout
                self.assertEqual(self.ok(culet("detokenize", model, stdin=ids)).stdout, text)
                with_begin = self.ok(culet("tokenize", model, stdin=text)).stdout
                self.assertEqual(self.ok(culet("detokenize", model, "--skip-special", stdin=with_begin)).stdout, text)
        hello = [405, 72, 101, 300, 111, 406]
        for arguments, stdin in ((list(map(str, hello)), b""), ([json.dumps(hello)], b""), (["405,72, 101 300"] +
                                 ["111", "406"], b""), (["-"], json.dumps(hello).encode()),
                                 ([], b"405 72\n101\n300 111 406\n")):
            self.assertEqual(self.ok(culet("detokenize", ENDS, *arguments, stdin=stdin)).stdout.decode(),
                             f"{BEGIN}Hello{END}")
        self.assertEqual(self.ok(culet("detokenize", ENDS, "--skip-special", json.dumps(hello))).stdout, b"Hello")
        for bad, word in ((["x"], '"x"'), (["1.5"], '"1.5"'), (["[1, -2]"], "-2"), (["[1,"], "JSON"),
                          (["99999999999"], "99999999999"), (["5", "512"], "512")):
            refused = culet("detokenize", ENDS, *bad)
            self.assert_error(refused, 1, word)
            self.assertEqual(refused.stdout, b"")


class Sessions(PromptCase):
    def test_the_context_of_a_resumed_session(self):
        """The advice names a context that is large enough."""
        talk = self.folder + "/talk"
        run = ("run", LLAMA, "the rain in Spain", "--raw", "--temp", "0", "--logit-bias", "406=-inf")
        self.ok(culet(*run, "-n", "40", "--save", talk))
        refused = culet(*run, "-n", "10", "--resume", talk, "--ctx", "50")
        self.assert_error(refused, 1, "the session has", "--ctx ")
        advised = refused.stderr.decode().split("use --ctx ")[1].split()[0]
        self.ok(culet(*run, "-n", "10", "--resume", talk, "--ctx", advised))
        self.assert_error(culet(*run, "--resume", GEMMA), 1, "--save")

    # Verifies memory.snapshots.
    def test_a_prompt_that_was_not_read_is_not_saved(self):
        talk = Path(self.folder, "kept")
        talk.write_bytes(b"an earlier talk")
        running = subprocess.Popen([cli_test.CULET, "run", GEMMA, "--raw", "--stream", "-n", "1", "--save", talk, "--jsonl"],
                                   stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=CLEAN)
        running.stdin.write(b"the rain in Spain " * 200000)
        running.stdin.close()
        events = []
        while not events or events[-1]["event"] != "progress":  # then minutes of work are left
            events.append(json.loads(running.stdout.readline()))
        running.send_signal(signal.SIGINT)
        errors = running.stderr.read()
        running.stdout.close()
        running.stderr.close()
        self.assertEqual(running.wait(timeout=60), 130, errors)
        self.assertEqual(talk.read_bytes(), b"an earlier talk")
        self.assertIn(b"is not written, because the prompt was not read", errors)


class Files(PromptCase):
    """Files that cannot be run are shown, and it is said that they cannot."""

    # Requirement files.shown-anyway "files that cannot be run": show prints what is in them and why they
    # cannot be run; arch check and show say no where a tensor's type cannot be multiplied
    def test_an_unknown_architecture(self):
        model = self.folder + "/mamba.gguf"
        data = Path(TINY).read_bytes()
        Path(model).write_bytes(data.replace(string("llama"), string("mamba"), 1))
        text = self.ok(culet("show", model)).stdout.decode()
        for word in ("architecture      mamba", "runs              no: ", "no architecture file for 'mamba'",
                     "llama.block_count: uint32 = 4", "tokenizer.ggml.tokens: array of string (512) = ",
                     "token_embd.weight: F32 [64, 512]"):
            self.assertIn(word, text)
        shown = json.loads(self.ok(culet("show", model, "--json")).stdout)
        self.assertEqual((shown["runs"], shown["architecture"], shown["tensors"]), (False, "mamba", 39))
        self.assertIn("mamba", shown["why_not"])
        self.assertEqual(shown["metadata"][0], {"key": "general.architecture", "type": "string", "value": "mamba"})
        self.assertIn({"name": "token_embd.weight", "type": "F32", "shape": [64, 512], "bytes": 131072},
                      shown["tensor_list"])
        self.assertIs(json.loads(self.ok(culet("show", TINY, "--json")).stdout)["runs"], True)
        self.assert_error(culet("run", model, "x"), 1, "mamba")
        self.assert_error(culet("show", model, "--arch-dir", "/no/such/folder"), 1, "/no/such/folder")

    # Verifies files.shown-anyway.
    def test_types_that_cannot_be_multiplied(self):
        data = Path(TINY).read_bytes()
        for tensor, word in (("blk.0.attn_q.weight", "multiply"), ("token_embd.weight", "I32"),
                             ("blk.1.attn_norm.weight", "I32")):
            with self.subTest(tensor):
                at = data.index(struct.pack("<Q", len(tensor)) + tensor.encode()) + 8 + len(tensor)
                at += 4 + 8 * struct.unpack_from("<I", data, at)[0]
                self.assertEqual(struct.unpack_from("<I", data, at)[0], 0)      # F32
                model = self.folder + "/odd.gguf"
                Path(model).write_bytes(data[:at] + struct.pack("<I", 26) + data[at + 4:])   # I32, as large
                why = culet("run", model, "x").stderr.decode()
                self.assertIn(tensor, why)
                report = self.ok(culet("arch", "check", "llama", "--model", model)).stdout.decode()
                self.assertIn("runs in this version: no: tensor '" + tensor, report)
                shown = json.loads(self.ok(culet("show", model, "--json")).stdout)
                self.assertIs(shown["runs"], False)
                self.assertIn(word, shown["why_not"])
                self.assertIn("runs              no: tensor", self.ok(culet("show", model)).stdout.decode())
        self.assertIn("runs in this version: yes",
                      self.ok(culet("arch", "check", "llama", "--model", TINY)).stdout.decode())


class Terminal(PromptCase):
    """What would steer a terminal is shown on one, and stays as it is elsewhere."""

    HOSTILE = "\x1b[2J\x07\u009b31m\u202eevil\u2066\u200f\u061c\x7f"
    SHOWN = "\\x1b[2J\\x07\\u009b31m\\u202eevil\\u2066\\u200f\\u061c\\u007f"

    def on_terminal(self, *arguments, errors=False):
        """Runs culet with one output on a pseudo-terminal; gives what that got, and the exit status."""
        master, slave = pty.openpty()
        streams = {"stdout": slave, "stderr": subprocess.PIPE}
        if errors:
            streams = {"stdout": subprocess.PIPE, "stderr": slave}
        running = subprocess.Popen([cli_test.CULET, *arguments], stdin=subprocess.DEVNULL, env=CLEAN, **streams)
        os.close(slave)
        got = b""
        while True:
            try:
                part = os.read(master, 65536)
            except OSError:    # the other end is closed
                break
            if not part:
                break
            got += part
        os.close(master)
        running.communicate(timeout=60)
        return re.sub(b"\r+\n", b"\n", got), running.returncode    # as terminals end lines

    def check(self, text):
        """Nothing in it steers."""
        shown = text.decode()    # UTF-8
        for c in shown:
            self.assertFalse(c < " " and c not in "\n\t" or "\x7f" <= c <= "\x9f" or c in "\u061c\u200e\u200f"
                             or "\u202a" <= c <= "\u202e" or "\u2066" <= c <= "\u2069", (c, shown))
        return shown

    # Requirement program.terminal "terminals": control characters and bidirectional marks of an answer, a
    # file or an error are shown on a terminal, not obeyed; in a pipe the bytes stay
    def test_metadata(self):
        model = self.folder + "/named.gguf"
        data = Path(TINY).read_bytes()
        own = string("tiny random llama")
        at = data.index(own)
        name = self.HOSTILE.encode()
        # The name is taken out, then another one is added.
        self.assertEqual(data[at - 20:at], struct.pack("<Q", 12) + b"general.name")
        end = cli_test.gguf_parts(data)[3]
        head = data[:16] + struct.pack("<Q", struct.unpack_from("<Q", data, 16)[0] - 1)
        head += data[24:at - 20] + data[at + len(own):end]
        base = self.folder + "/base.gguf"
        Path(base).write_bytes(head + bytes(-len(head) % 32) + data[(end + 31) // 32 * 32:])
        with_metadata(base, model, {"general.name": string(name)})
        shown, status = self.on_terminal("show", model)
        self.assertEqual(status, 0)
        self.assertIn(self.SHOWN, self.check(shown))
        self.assertIn(name, self.ok(culet("show", model)).stdout)
        shown, _ = self.on_terminal("show", model, "--json")
        self.assertEqual(json.loads(self.check(shown))["name"], self.HOSTILE)

    # Verifies program.terminal.
    def test_answers(self):
        run = ("run", TINY, "Hi", "--raw", "-q", "-n", "3", "--temp", "0", "--logit-bias")
        for byte, spelled in ((b"\x1b", "\\x1b" * 3), (b"\r", "\\x0d" * 2)):    # the last return ends the line
            shown, status = self.on_terminal(*run, f"{byte[0]}=10000")
            self.assertEqual((self.check(shown), status), (spelled + "\n", 0))
            self.assertEqual(self.ok(culet(*run, f"{byte[0]}=10000")).stdout, byte * 3 + b"\n")
        # A character in two tokens, halves of one, and a line's end.
        for text, spelled in (("\u009bx", "\\u009bx\n"), ("\u202e", "\\u202e\n"), ("a\r\nb\tc\n", "a\nb\tc\n"),
                              ("\ud7ff\U0001f600", "\ud7ff\U0001f600\n")):
            arguments = json.dumps(list(text.encode()))   # the ids of bytes are their values
            shown, _ = self.on_terminal("detokenize", TINY, arguments)
            self.assertEqual(self.check(shown), spelled)
            self.assertEqual(culet("detokenize", TINY, arguments).stdout, text.encode())
        for broken, spelled in ((b"\x9b", "\\x9b\n"), (b"\xe2\x80", "\\xe2\\x80\n"), (b"\xc0\x9b", "\\xc0\\x9b\n"),
                                (b"\xed\xa0\x80x", "\\xed\\xa0\\x80x\n"), (b"\xf4\x90\x80\x80", "\\xf4\\x90\\x80\\x80\n")):
            arguments = json.dumps(list(broken))
            shown, _ = self.on_terminal("detokenize", TINY, arguments)
            self.assertEqual(self.check(shown), spelled)
            self.assertEqual(culet("detokenize", TINY, arguments).stdout, broken)

    # Verifies program.terminal.
    def test_errors_warnings_and_paths(self):
        template = self.file("raise.jinja", "{{ raise_exception(messages[0].content) }}")
        for arguments in (("run", TINY, self.HOSTILE, "--chat-template", template), ("show", "/no/" + self.HOSTILE),
                          ("tokenize", TINY, "--" + self.HOSTILE), ("pull", self.HOSTILE)):
            with self.subTest(arguments):
                shown, status = self.on_terminal(*arguments, errors=True)
                self.assertNotEqual(status, 0)
                self.assertIn("\\u202eevil", self.check(shown))
                self.assertEqual(shown.count(b"\n"), 1)
        piped = culet("run", TINY, self.HOSTILE, "--chat-template", template)
        self.assertIn(self.HOSTILE.encode(), piped.stderr)
        variable = json.dumps({self.HOSTILE: 1})
        fine = self.file("fine.jinja", "{{ messages[0].content }}")
        shown, status = self.on_terminal("run", TINY, "Hi", "-n", "1", "--chat-template", fine,
                                         "--chat-template-kwargs", variable, errors=True)
        self.assertEqual(status, 0)
        self.assertIn("warning: ", self.check(shown))
        self.assertIn(self.SHOWN, shown.decode())


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    cli_test.CULET = os.path.abspath(sys.argv.pop(1))
    unittest.main()
