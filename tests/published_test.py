#!/usr/bin/env python3
"""Published folders, converted and run, against the vectors of transformers (tests/golden/real).

Usage: published_test.py PATH_OF_CULET [unittest options]
CULET_PUBLISHED names the folder that scripts/fetch_published fills.
"""
import json
import math
import os
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

GOLDEN = Path(__file__).resolve().parent / "golden/real"
CULET = ""                                        # set by main()
CLEAN = {k: v for k, v in os.environ.items() if not k.startswith("CULET_")}


def culet(*arguments, stdin=""):
    return subprocess.run([CULET, *arguments], input=stdin, capture_output=True, text=True, timeout=300, env=CLEAN)


class MiniLm(unittest.TestCase):
    """all-MiniLM-L6-v2: BERT, WordPiece, the mean of the rows. The reference: float32, eager."""

    @classmethod
    def setUpClass(cls):
        if "CULET_PUBLISHED" not in os.environ:
            raise AssertionError("set CULET_PUBLISHED to the folder that scripts/fetch_published prints")
        cls.temporary = tempfile.TemporaryDirectory()
        cls.addClassCleanup(cls.temporary.cleanup)
        cls.model = str(Path(cls.temporary.name, "model.gguf"))
        done = culet("convert", os.environ["CULET_PUBLISHED"] + "/all-minilm-l6-v2", cls.model)
        if done.returncode:
            raise AssertionError(done.stderr)
        lines = (GOLDEN / "all-minilm-l6-v2/embed.jsonl").read_text(encoding="utf-8").splitlines()
        cls.rows = [json.loads(line) for line in lines]

    def vectors(self, rows, *options):
        done = culet("embed", self.model, "--json", *options, "--", *[r["text"] for r in rows])
        self.assertEqual(done.returncode, 0, done.stderr)
        return [json.loads(line) for line in done.stdout.splitlines()]

    def test_vectors(self):
        rows = [r for r in self.rows if r["text"] and r["tokens_before_truncation"] == r["tokens"]]
        self.assertGreaterEqual(len(rows), 9)
        for options in ([], ["--precise"], ["--threads", "1"]):
            got = self.vectors(rows, *options)
            self.assertEqual([g["tokens"] for g in got], [r["tokens"] for r in rows])
            for want, vector in zip(rows, (g["vector"] for g in got)):
                norm = math.sqrt(sum(x * x for x in vector))
                self.assertAlmostEqual(norm, want["mean"]["norm"], delta=1e-5, msg=want["name"])
                for x, y in zip(vector, want["mean"]["unit_first16"]):
                    self.assertAlmostEqual(x / norm, y, delta=2e-6, msg=want["name"])

    def test_cosines(self):
        golden = json.loads((GOLDEN / "all-minilm-l6-v2/embed_cosine.json").read_text(encoding="utf-8"))
        names = golden["names"][:9]
        rows = [next(r for r in self.rows if r["name"] == name) for name in names]
        vectors = [g["vector"] for g in self.vectors(rows, "--normalize")]
        for i, a in enumerate(vectors):
            for j, b in enumerate(vectors):
                cosine = sum(x * y for x, y in zip(a, b))
                self.assertAlmostEqual(cosine, golden["cosine"]["mean"][i][j], delta=2e-6)

    def test_other_pipelines_are_refused(self):
        """What the vectors go through besides would be missing: said, not dropped."""
        source = Path(os.environ["CULET_PUBLISHED"], "all-minilm-l6-v2")
        with tempfile.TemporaryDirectory() as temporary:
            folder = Path(temporary, "copy")
            (folder / "1_Pooling").mkdir(parents=True)
            for name in ("config.json", "tokenizer.json", "tokenizer_config.json", "vocab.txt", "model.safetensors"):
                (folder / name).symlink_to(source / name)
            modules = (source / "modules.json").read_text()
            pooling = json.loads((source / "1_Pooling/config.json").read_text())
            for text, change, word in ((modules.replace("Normalize", "CNN"), {}, "CNN"),
                                       (modules, {"pooling_mode_cls_token": True}, "at once"),
                                       (modules, {"pooling_mode_max_tokens": True}, "only the mean"),
                                       (modules.replace("1_Pooling", "2_Pooling"), {}, "2_Pooling")):
                (folder / "modules.json").write_text(text)
                (folder / "1_Pooling/config.json").write_text(json.dumps(pooling | change))
                done = culet("convert", str(folder), temporary + "/out.gguf")
                self.assertEqual(done.returncode, 1)
                self.assertIn(word, done.stderr)
            self.assertEqual(os.listdir(temporary), ["copy"])

    def test_long_texts_are_refused(self):
        long = next(r for r in self.rows if r["tokens_before_truncation"] > 512)
        done = culet("embed", self.model, stdin=long["text"].replace("\n", " "))
        self.assertNotEqual(done.returncode, 0)
        self.assertEqual(done.stdout, "")
        self.assertIn("takes at most 512", done.stderr)


def main():
    global CULET
    CULET = str(Path(sys.argv.pop(1)).resolve())
    unittest.main()


if __name__ == "__main__":
    main()
