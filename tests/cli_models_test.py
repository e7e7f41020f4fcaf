#!/usr/bin/env python3
"""Tests of the program's names: cli_models_test.py CULET. Stores in a folder, a hub on loopback, no other network."""
import hashlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
import unittest
from pathlib import Path

PROGRAM = None
SERVER = Path(__file__).resolve().parent / "fake_hub.py"
COMMIT = "c" * 40


class Models(unittest.TestCase):
    def setUp(self):
        holder = tempfile.TemporaryDirectory()
        self.addCleanup(holder.cleanup)
        self.root = Path(holder.name)
        self.content = os.urandom(300_000)
        hub = self.root / "server"
        (hub / "files").mkdir(parents=True)
        (hub / "log").write_text("")
        self.behave({})
        self.serve(f"org/repo/resolve/{COMMIT}/m-Q8_0.gguf", self.content)
        digest = hashlib.sha256(self.content).hexdigest()
        files = [{"rfilename": "m-Q8_0.gguf", "size": len(self.content),
                  "lfs": {"sha256": digest, "size": len(self.content)}}]
        self.serve("api/models/org/repo/revision/main", json.dumps({"sha": COMMIT, "siblings": files}).encode())
        self.server = subprocess.Popen([sys.executable, SERVER, "serve", hub], stdin=subprocess.PIPE,
                                       stdout=subprocess.PIPE, text=True)
        self.addCleanup(self.server.communicate)
        self.environment = {"HOME": str(self.root / "home"), "PATH": os.environ["PATH"],
                            "HF_ENDPOINT": f"http://127.0.0.1:{self.server.stdout.readline().strip()}"}

    def behave(self, behavior):
        (self.root / "server" / "behavior.json").write_text(json.dumps(behavior))

    def serve(self, path, content):
        file = self.root / "server" / "files" / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content)

    def culet(self, *arguments):
        return subprocess.run([PROGRAM, *arguments], env=self.environment, capture_output=True, text=True,
                              check=False, timeout=100)

    # Verifies names.status.
    def test_pull_list_rm(self):
        pulled = self.culet("pull", "hf:org/repo")
        self.assertEqual((pulled.returncode, pulled.stderr), (0, ""))
        path = Path(pulled.stdout.strip())
        self.assertEqual(path.read_bytes(), self.content)
        listed = json.loads(self.culet("list", "--json").stdout)
        model = listed["models"][0]
        self.assertEqual((model["name"], model["path"], model["owned"]), ("org/repo:Q8_0", str(path), True))
        self.assertIn("GGUF", model["problem"])
        self.assertIn("smollm2-135m-instruct", [entry["name"] for entry in listed["not_here"]])
        self.assertIn("org/repo:Q8_0", self.culet("list").stdout)
        removed = self.culet("rm", "org/repo")
        self.assertEqual((removed.returncode, removed.stdout), (0, f"removed {path}\n"), removed.stderr)
        self.assertEqual(json.loads(self.culet("list", "--json").stdout)["models"], [])

    # Verifies names.a-name-that-is-nowhere.
    def test_names_that_are_nowhere(self):
        for arguments in (["run", "nothing", "hi"], ["show", "nothing"], ["tokenize", "nothing", "x"], ["rm", "nothing"]):
            result = self.culet(*arguments)
            self.assertEqual((result.returncode, result.stdout), (1, ""))
            self.assertIn("no model is called 'nothing'", result.stderr)
            self.assertEqual(result.stderr.count("\n"), 1)
        self.assertNotIn("Ollama", self.culet("show", "/no/such.gguf").stderr)
        self.assertEqual(self.culet("pull").returncode, 2)

    def test_other_programs_keep_their_models(self):
        digest = hashlib.sha256(b"x").hexdigest()
        store = self.root / "home" / ".ollama" / "models"
        manifest = store / "manifests" / "registry.ollama.ai" / "library" / "tiny" / "latest"
        manifest.parent.mkdir(parents=True)
        (store / "blobs").mkdir()
        (store / "blobs" / f"sha256-{digest}").write_bytes(b"x")
        layer = {"mediaType": "application/vnd.ollama.image.model", "digest": f"sha256:{digest}", "size": 1}
        manifest.write_text(json.dumps({"layers": [layer]}))
        result = self.culet("rm", "tiny")
        self.assertEqual(result.returncode, 1)
        self.assertIn("not culet's to remove", result.stderr)
        self.assertTrue((store / "blobs" / f"sha256-{digest}").is_file())

    def test_ctrl_c_keeps_the_part(self):
        file = f"/org/repo/resolve/{COMMIT}/m-Q8_0.gguf"
        self.behave({file: {"kind": "slow", "seconds": 0.5}})
        program = subprocess.Popen([PROGRAM, "pull", "hf:org/repo"], env=self.environment, stdout=subprocess.PIPE,
                                   stderr=subprocess.PIPE, text=True)
        folder = self.root / "home" / ".cache" / "culet" / "models" / "hf" / "org" / "repo" / COMMIT
        part = folder / ".m-Q8_0.gguf.part"
        until = time.monotonic() + 60
        while time.monotonic() < until and not (part.is_file() and part.stat().st_size):
            time.sleep(0.05)
        program.send_signal(signal.SIGINT)
        _, errors = program.communicate(timeout=60)
        self.assertEqual(program.returncode, 130, errors)
        self.assertIn("run the same command again", errors)
        self.assertEqual(sorted(p.name for p in folder.iterdir()), [part.name, part.name + ".state"])
        self.behave({})
        self.assertEqual(self.culet("pull", "hf:org/repo").returncode, 0)
        self.assertEqual((folder / "m-Q8_0.gguf").read_bytes(), self.content)
        self.assertIn("bytes=", (self.root / "server" / "log").read_text())


if __name__ == "__main__":
    PROGRAM = sys.argv.pop(1)
    unittest.main()
