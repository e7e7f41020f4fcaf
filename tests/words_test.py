#!/usr/bin/env python3
"""What the program says about itself: help, completion in three shells, the manual page.

Usage: words_test.py PATH_OF_CULET [unittest options]
Needs bash, zsh, fish and groff.
"""
import os
import pty
import re
import select
import subprocess
import sys
import tempfile
import time
import unittest
from pathlib import Path

CULET = ""   # set by main()
COMMANDS = ["run", "tokenize", "detokenize", "score", "embed", "explain", "bench", "arch", "show", "list", "rm",
            "pull", "quantize", "convert", "completion"]


class Case(unittest.TestCase):
    """A machine whose one store holds two models of the hub and one of the catalogue."""

    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        home = Path(cls.folder.name)
        snapshot = "hub/models--org--repo/snapshots/" + "a" * 40
        names = (snapshot + "/small-Q8_0.gguf", snapshot + "/small-Q4_0.gguf",
                 "models/SmolLM2-135M-Instruct.Q4_1.gguf",
                 "models/own.gguf", "models/$(touch pwned).gguf")
        for name in names:
            path = home / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(b"GGUF")
        (home / "hub/models--org--repo/refs").mkdir()
        (home / "hub/models--org--repo/refs/main").write_text("a" * 40)
        (home / "here").mkdir()
        for name in ("a.gguf", "b.txt", "with space.gguf"):
            (home / "here" / name).write_bytes(b"")
        (home / "here/archs").mkdir()
        (home / "here/new.arch").write_bytes(b"")
        (home / "bin").mkdir()
        (home / "bin/culet").symlink_to(CULET)
        cls.env = {"PATH": f"{home}/bin:{os.environ['PATH']}", "HOME": str(home), "TERM": "dumb",
                   "CULET_CACHE": str(home / "models"), "LC_ALL": "C.UTF-8",
                   "OLLAMA_MODELS": str(home / "none"), "HF_HUB_CACHE": str(home / "hub")}

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    def culet(self, *arguments):
        done = subprocess.run([CULET, *arguments], capture_output=True, timeout=60, env=self.env,
                              stdin=subprocess.DEVNULL)
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout.decode()

    def shell(self, *command, stdin=""):
        done = subprocess.run(command, capture_output=True, timeout=60, env=self.env, text=True,
                              cwd=self.folder.name + "/here", input=stdin)
        self.assertEqual((done.returncode, done.stderr), (0, ""), done.stdout)
        return done.stdout


class Help(Case):
    def options(self, *command):
        page = self.culet(*command, "--help")
        return set(re.findall(r"^  (?:-\w,)?(--[a-z0-9-]+)", page, re.M))

    def test_only_options_that_the_command_reads(self):
        self.assertEqual(self.options("tokenize"),
                         {"--help", "--arch-dir", "--no-bos", "--parse-special"})
        running = {"--threads", "--precise", "--no-repack", "--arch-dir"}
        for command in ("run", "score", "embed", "bench", "show"):
            self.assertLessEqual(running, self.options(command), command)
        page = self.culet("explain", "--help")
        plain, profile = page.split("With --profile:")
        self.assertIn("--precise", plain)
        for option in ("--threads", "--no-repack", "--all", "--prompt", "--generate"):
            self.assertNotIn(option + " ", plain)
            self.assertIn(option, profile)

    def test_names_are_as_they_are_typed(self):
        for command in COMMANDS:
            self.assertNotRegex(self.culet(command, "--help"), r"--\S*[{!]", command)


class Words(Case):
    """The program's own answers, which all shells print."""

    def words(self, *typed):
        lines = self.culet("__complete", *typed).splitlines()
        return [line.split("\t")[0] for line in lines]

    def test_commands(self):
        self.assertEqual(self.words(""), COMMANDS)
        self.assertEqual(self.words("s"), ["score", "show"])
        self.assertEqual(self.words("arch", ""), ["list", "check", "diff"])
        self.assertEqual(self.words("--v"), ["--version"])
        self.assertEqual(self.words("no-such-command", "--x"), [])
        self.assertEqual(self.culet("__complete"), "")

    def test_every_option_of_every_help_page(self):
        pages = [[c] for c in COMMANDS] + [["arch", a] for a in ("list", "check", "diff")]
        for command in pages:
            page = self.culet(*command, "--help")
            shown = re.findall(r"^  ((?:-\w,)?--[a-z0-9-]+)", page, re.M)
            self.assertEqual(sorted(n for names in shown for n in names.split(",")),
                             sorted(self.words(*command, "-")), command)

    def test_given_options_are_not_offered_again(self):
        self.assertIn("--seed", self.words("run", "m", "--temp", "0", "--se"))
        self.assertEqual(self.words("run", "m", "--seed", "1", "--se"), [])
        self.assertEqual(self.words("run", "m", "--stop", "a", "--sto"), ["--stop"])
        self.assertEqual(self.words("run", "--", "--se"), [":files .gguf"])

    def test_values(self):
        self.assertEqual(self.words("score", "m", "--kv", ""),
                         ["f16", "f32", "bf16", "q8_0", "f16-full"])
        self.assertEqual(self.words("score", "m", "--kv=f3"), ["--kv=f32"])
        self.assertEqual(self.words("run", "--arch-dir", ""), [":folders"])
        self.assertEqual(self.words("run", "--arch-dir=/t"), [":folders"])
        self.assertEqual(self.words("run", "--temp", ""), [])
        self.assertEqual(self.words("completion", ""), ["bash", "zsh", "fish"])
        self.assertEqual(self.words("quantize", "m", ""), [":files .gguf"])
        self.assertEqual(self.words("quantize", "m", "out", "Q4_K_"), ["Q4_K_M", "Q4_K_S"])
        self.assertEqual(self.words("quantize", "m", "--check", ""), [":files"])
        self.assertEqual(self.words("convert", ""), [":folders"])
        self.assertEqual(self.words("convert", "--type=BF"), ["--type=BF16"])

    def test_models(self):
        names = self.words("run", "")
        self.assertEqual(names[-1], ":files .gguf")
        self.assertIn("smollm2-135m-instruct", names)
        self.assertIn("org/repo:Q8_0", names)
        self.assertFalse([n for n in names if "$" in n], names)
        self.assertEqual(self.words("run", "smollm2-135m-instruct", ""), [])
        self.assertEqual(self.words("run", "--precise", "--temp", "1", "smol"),
                         ["smollm2-135m-instruct", ":files .gguf"])
        self.assertIn("smollm2-135m-instruct", self.words("rm", "x", "sm"))
        offered = self.words("pull", "")
        self.assertTrue(offered)
        self.assertNotIn("smollm2-135m-instruct", offered)
        self.assertEqual(self.words("score", "m", ""), [":files"])
        self.assertEqual(self.words("arch", "check", "q"), ["qwen2", "qwen3", "qwen3moe", ":files .arch"])

    def test_every_choice_is_taken(self):
        for shell in self.words("completion", ""):
            self.assertIn("__complete", self.culet("completion", shell))


class Bash(Case):
    def complete(self, line):
        """COMPREPLY for a line, cut into words as bash cuts it."""
        script = r'''source <(culet completion bash)
            COMP_LINE=$1 COMP_POINT=${#1}
            mapfile -t COMP_WORDS < <(python3 -c '
import re, sys
line = sys.argv[1]
words = re.findall(r"[^\s:=]+|[:=]+", line)
print("\n".join(words + [""] * (line[-1] in " :=")))' "$1")
            COMP_CWORD=$((${#COMP_WORDS[@]} - 1))
            compopt() { :; }
            _culet culet
            printf '%s\n' "${COMPREPLY[@]}"'''
        return self.shell("bash", "--norc", "-c", script, "bash", line).split("\n")[:-1]

    def test_completion(self):
        self.assertEqual(self.complete("culet "), COMMANDS)
        self.assertEqual(self.complete("culet run --see"), ["--seed"])
        self.assertEqual(self.complete("culet score m --kv="),
                         ["f16", "f32", "bf16", "q8_0", "f16-full"])
        self.assertEqual(self.complete("culet arch check l"), ["lfm2", "llama"])
        self.assertEqual(self.complete("culet run --arch-dir "), ["archs"])
        self.assertEqual(self.complete("culet run --arch-dir=ar"), ["archs"])

    def test_models_with_colons(self):
        self.assertIn("org/repo:Q8_0", self.complete("culet run "))
        self.assertEqual(self.complete("culet run org/repo:Q8"), ["Q8_0"])
        files = self.complete("culet run w")
        self.assertEqual(files, ["with space.gguf"])
        self.assertIn("a.gguf", self.complete("culet run "))
        self.assertNotIn("b.txt", self.complete("culet run "))


class Interactive(Case):
    """A shell on a terminal, with the tab key."""

    def typed(self, command, setup, line, expected):
        child, terminal = pty.fork()
        if child == 0:
            os.chdir(self.folder.name + "/here")
            os.execvpe(command[0], command, self.env)
        try:
            os.write(terminal, setup.encode() + b"; echo re''ady\n")
            self.read_until(terminal, "ready")
            os.write(terminal, line.encode() + b"\t\t")
            return self.read_until(terminal, expected)
        finally:
            os.kill(child, 9)
            os.close(terminal)
            os.waitpid(child, 0)

    def read_until(self, terminal, expected):
        seen, end = "", time.monotonic() + 30
        while expected not in seen:
            ready, _, _ = select.select([terminal], [], [], max(0, end - time.monotonic()))
            self.assertTrue(ready, f"no {expected!r} in {seen!r}")
            seen += os.read(terminal, 1 << 16).decode("utf-8", "replace")
        return seen

    def test_bash(self):
        bash = ["bash", "--norc", "--noprofile", "-i"]
        setup = "source <(culet completion bash)"
        self.typed(bash, setup, "culet run org/repo:Q8", "_0")
        self.typed(bash, setup, "culet run --arch-dir ar", "archs/")
        self.typed(bash, setup, "culet run wi", r"with\ space.gguf")

    def test_zsh(self):
        zsh = ["zsh", "-f", "-i"]
        setup = "autoload -U compinit; compinit -u; source <(culet completion zsh)"
        self.typed(zsh, setup, "culet run org/repo:Q8", "_0")
        self.typed(zsh, setup, "culet sho", "show")
        self.typed(zsh, setup, "culet run --arch-dir ar", "archs/")
        self.typed(zsh, setup, "culet run --arch-dir=ar", "--arch-dir=archs/")
        self.typed(zsh, setup, "culet score m --kv=f3", "--kv=f32")
        self.typed(zsh, setup, "culet run wi", r"with\ space.gguf")
        self.typed(zsh, setup, "culet score m --t", "Threads to compute with")


class Fish(Case):
    def complete(self, line):
        text = self.shell("fish", "--no-config", "-c",
                          "culet completion fish | source; complete -C $argv[1]", line)
        return [line.split("\t")[0] for line in text.splitlines()]

    def test_completion(self):
        self.assertEqual(sorted(self.complete("culet ")), sorted(COMMANDS))
        self.assertEqual(self.complete("culet run --see"), ["--seed"])
        self.assertEqual(self.complete("culet score m --kv="),
                         [f"--kv={t}" for t in ("bf16", "f16", "f16-full", "f32", "q8_0")])
        self.assertEqual(self.complete("culet run --arch-dir "), ["archs/"])
        self.assertEqual(self.complete("culet run --arch-dir=ar"), ["--arch-dir=archs/"])
        names = self.complete("culet run ")
        self.assertIn("a.gguf", names)
        self.assertNotIn("b.txt", names)
        self.assertIn("smollm2-135m-instruct", names)


class Manual(Case):
    def test_page(self):
        page = self.culet("__manual", "2026-01-31")
        done = subprocess.run(["groff", "-man", "-ww", "-Tutf8", "-rLL=100n"], input=page.encode(),
                              capture_output=True, timeout=60)
        self.assertEqual((done.returncode, done.stderr), (0, b""))
        text = re.sub(r"\x1b\[[0-9;]*m|.\x08", "", done.stdout.decode())
        for section in ("NAME", "SYNOPSIS", "DESCRIPTION", "OPTIONS", "COMMANDS", "ENVIRONMENT",
                        "EXAMPLES"):
            self.assertRegex(text, rf"(?m)^{section}$")
        self.assertIn("2026-01-31", text)
        for command in COMMANDS:
            self.assertRegex(text, rf"(?m)^   culet {command}$")
            options = re.findall(r"(--[a-z0-9-]+)", self.culet(command, "--help"))
            for option in options:
                self.assertIn(option, text)
        self.assertIn("jq -r 'select(.event==\"text\").text'", text)   # quotes come out as typed


def main():
    global CULET
    CULET = os.path.abspath(sys.argv.pop(1))
    unittest.main()


if __name__ == "__main__":
    main()
