#!/usr/bin/env python3
"""Tests of scripts/fetch_vectors: a copy of it, a small package of its own, a local registry, no network."""
import base64
import functools
import hashlib
import http.server
import json
import shutil
import subprocess
import sys
import tarfile
import tempfile
import threading
import unittest
from pathlib import Path

SCRIPT = Path(__file__).resolve().parent / "fetch_vectors"
FILES = {
    "models/ggml-vocab-x.gguf": b"GGUF\0" * 50,
    "models/ggml-vocab-x.gguf.inp": b"text",
    "models/ggml-vocab-x.gguf.out": b" 1 2\n",
    "models/templates/x.jinja": b"{{ x }}",
    "models/templates/README.md": b"left out",
    "models/ggml-vocab-y.bin": b"left out",
    "src/main.cpp": b"left out",
}
WANTED = ["ggml-vocab-x.gguf", "ggml-vocab-x.gguf.inp", "ggml-vocab-x.gguf.out", "templates/x.jinja"]


def git(folder, *arguments):
    identity = ["-c", "user.name=test", "-c", "user.email=test@example.com", "-c", "init.defaultBranch=b"]
    subprocess.run(["git", *identity, *arguments], cwd=folder, check=True, capture_output=True)


def make_package(folder, files):
    """The path of a package that carries `files` as npm packs them: a bundle in a compressed archive."""
    tree = folder / "tree"
    for name, content in files.items():
        (tree / name).parent.mkdir(parents=True, exist_ok=True)
        (tree / name).write_bytes(content)
    git(tree, "init")
    git(tree, "add", ".")
    git(tree, "commit", "-m", "all")
    git(tree, "bundle", "create", str(folder / "bundle"), "HEAD")
    archive = folder / "registry" / "thing" / "-" / "thing-1.0.0.tgz"
    archive.parent.mkdir(parents=True)
    with tarfile.open(archive, "w:gz") as tar:
        tar.add(folder / "bundle", "package/x.bundle")
    return archive


class QuietHandler(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_):
        pass


class FetchVectors(unittest.TestCase):
    def setUp(self):
        holder = tempfile.TemporaryDirectory()
        self.addCleanup(holder.cleanup)
        self.root = Path(holder.name)
        for name in ("scripts", "models", "bin"):
            (self.root / name).mkdir()
        self.script = shutil.copy(SCRIPT, self.root / "scripts")
        self.cache = self.root / "cache" / "culet"
        self.folder = self.cache / "vectors"
        self.archive = make_package(self.root, FILES)
        self.pin(self.archive.read_bytes())
        for tool in ("git", "python3"):  # and no npm
            (self.root / "bin" / tool).symlink_to(shutil.which(tool))
        handler = functools.partial(QuietHandler, directory=str(self.root / "registry"))
        server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        self.addCleanup(server.server_close)
        self.addCleanup(server.shutdown)
        self.registry = f"http://127.0.0.1:{server.server_port}/"

    def pin(self, content):
        digest = base64.b64encode(hashlib.sha512(content).digest()).decode()
        pins = {"format": "culet-vectors 1", "package": "thing", "version": "1.0.0",
                "integrity": f"sha512-{digest}", "bundle": "package/x.bundle"}
        (self.root / "models" / "vectors.json").write_text(json.dumps(pins))

    def run_script(self, *arguments, registry=None):
        environment = {"PATH": str(self.root / "bin"), "HOME": str(self.root), "no_proxy": "*",
                       "XDG_CACHE_HOME": str(self.root / "cache"),
                       "npm_config_registry": registry or self.registry}
        return subprocess.run([sys.executable, self.script, *arguments], env=environment,
                              capture_output=True, text=True, timeout=120, check=False)

    def check_folder(self):
        found = sorted(str(p.relative_to(self.folder)) for p in self.folder.rglob("*") if p.is_file())
        self.assertEqual(found, sorted([*WANTED, "complete.json"]))
        self.assertEqual((self.folder / WANTED[0]).read_bytes(), FILES["models/ggml-vocab-x.gguf"])
        self.assertEqual(sorted(p.name for p in self.cache.iterdir()), [".vectors.lock", "vectors"])

    def test_takes_only_what_is_wanted_and_only_once(self):
        result = self.run_script()
        self.assertEqual((result.returncode, result.stdout), (0, f"{self.folder}\n"), result.stderr)
        self.check_folder()
        self.archive.unlink()
        again = self.run_script()
        self.assertEqual((again.returncode, again.stdout, again.stderr), (0, f"{self.folder}\n", ""))

    def test_npm_is_used_where_it_is(self):
        npm = self.root / "bin" / "npm"
        npm.write_text(f'#!/bin/sh\n[ "$1 $2" = "pack thing@1.0.0" ] || exit 1\n{shutil.which("cp")} '
                       f'"{self.root}/kept.tgz" "$5"\n')
        npm.chmod(0o755)
        self.archive.rename(self.root / "kept.tgz")
        self.assertEqual(self.run_script().returncode, 0)
        self.check_folder()

    def test_a_failing_npm_is_no_obstacle(self):
        npm = self.root / "bin" / "npm"
        npm.write_text("#!/bin/sh\nexit 1\n")
        npm.chmod(0o755)
        self.assertEqual(self.run_script().returncode, 0)
        self.check_folder()

    def test_other_bytes_are_refused(self):
        self.pin(b"something else")
        result = self.run_script()
        self.assertEqual((result.returncode, result.stdout), (1, ""))
        self.assertIn("sha512", result.stderr)
        self.assertEqual([p.name for p in self.cache.iterdir()], [".vectors.lock"])

    def test_a_damaged_or_old_folder_is_made_anew(self):
        self.run_script()
        (self.folder / WANTED[1]).write_bytes(b"cut")
        (self.folder / "stale").write_bytes(b"")
        (self.cache / ".vectors.scratch-killed").mkdir()
        self.assertEqual(self.run_script().returncode, 0)
        self.check_folder()

    def test_no_registry_is_one_sentence(self):
        (self.root / "scripts" / "fetch_vectors").write_text(
            SCRIPT.read_text().replace("ATTEMPTS = 3", "ATTEMPTS = 1"))
        result = self.run_script(registry="http://127.0.0.1:9")
        self.assertEqual(result.returncode, 1)
        self.assertIn("check the network", result.stderr)
        self.assertNotIn("Traceback", result.stderr)

    def test_the_folder_can_be_asked_for(self):
        result = self.run_script("--cache")
        self.assertEqual((result.returncode, result.stdout), (0, f"{self.folder}\n"))
        self.assertFalse(self.cache.exists())
        self.assertEqual(self.run_script("--wrong").returncode, 2)


if __name__ == "__main__":
    unittest.main()
