#!/usr/bin/env python3
"""What make install and make deb deliver, from a finished build.

Usage: package_test.py BUILD_FOLDER [unittest options]
"""
import gzip
import json
import os
import re
import shlex
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
GEMMA = ROOT / "tests/golden/tiny/gemma3/model-q8_0.gguf"   # has no chat template
BUILD = Path()   # set by main()


def files_below(folder):
    return sorted(str(p.relative_to(folder)) for p in folder.rglob("*") if not p.is_dir())


class Case(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.at = Path(cls.folder.name)

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    @staticmethod
    def run_ok(*command, **more):
        done = subprocess.run([str(c) for c in command], stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, timeout=250, text=True, **more)
        if done.returncode != 0:
            raise AssertionError(f"{command} exits with {done.returncode}:\n{done.stdout}")
        return done.stdout


class Install(Case):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.prefix = cls.at / "root/opt/culet"
        cls.run_ok("cmake", "--install", BUILD, "--prefix", "/opt/culet",
                   env=os.environ | {"DESTDIR": str(cls.at / "root")})

    def test_files(self):
        headers = [f"include/culet/{p.name}" for p in (ROOT / "include/culet").iterdir()]
        found = [re.sub(r"^lib(64|/[a-z0-9_]+-linux-gnu)/", "lib/", name)
                 for name in files_below(self.prefix)]
        package = [name for name in found if name.startswith("lib/cmake/culet/")]
        self.assertIn("lib/cmake/culet/culetConfig.cmake", package)
        self.assertEqual(sorted(set(found) - set(package)), sorted(headers + [
            "bin/culet", "lib/libculet.a", "lib/libculet_hub.a", "share/bash-completion/completions/culet",
            "share/doc/culet/LICENSE", "share/fish/vendor_completions.d/culet.fish",
            "share/man/man1/culet.1", "share/zsh/site-functions/_culet"]))
        self.assertEqual(files_below(self.at / "root"),
                         ["opt/culet/" + name for name in files_below(self.prefix)])

    def test_the_program_is_whole(self):
        culet = self.prefix / "bin/culet"
        away = {"PATH": "/nowhere", "HOME": str(self.at)}
        self.assertRegex(self.run_ok(culet, "--version", env=away), r"^culet \d+\.\d+\.\d+\n$")
        self.assertIn("llama", self.run_ok(culet, "arch", "list", env=away, cwd="/"))
        self.assertIn("smollm2", self.run_ok(culet, "list", env=away, cwd="/"))

    def test_a_program_finds_the_package(self):
        build = self.at / "ask"
        self.run_ok("cmake", "-S", ROOT / "examples/ask", "-B", build, "-G", "Ninja",
                    f"-DCMAKE_PREFIX_PATH={self.prefix}", "-DCMAKE_EXPORT_COMPILE_COMMANDS=ON")
        self.run_ok("cmake", "--build", build)
        self.assertEqual(include_folders(build, "main.cpp"), {str(self.prefix / "include")})
        asked = subprocess.run([build / "ask", GEMMA, "Why?"], capture_output=True, timeout=60)
        self.assertEqual(asked.returncode, 1)
        self.assertIn(b"chat template", asked.stderr)

    # Three sequences with a mask, a fork at a token, a checkpoint, a snapshot in memory and a call of
    # a tool; the example itself fails when one of them is not as promised.
    def test_a_program_serves_many_sequences(self):
        build = self.at / "sequences"
        self.run_ok("cmake", "-S", ROOT / "examples/sequences", "-B", build, "-G", "Ninja",
                    f"-DCMAKE_PREFIX_PATH={self.prefix}")
        self.run_ok("cmake", "--build", build)
        said = self.run_ok(build / "sequences", GEMMA, ROOT / "models/templates/gemma4.jinja")
        for line in ("The year was", "another end", "checkpoint", "tokens reused", "snapshot",
                     "a prompt of", "memory"):
            self.assertIn(line, said)
        mistaken = subprocess.run([build / "sequences", ROOT / "README.md"], capture_output=True, timeout=60)
        self.assertEqual(mistaken.returncode, 1)

    # As on a machine that has neither libcurl nor zlib for developers.
    WITHOUT = ("-DCMAKE_DISABLE_FIND_PACKAGE_CURL=ON", "-DCMAKE_DISABLE_FIND_PACKAGE_ZLIB=ON")

    def test_inference_needs_no_network_library(self):
        build = self.at / "alone"
        self.run_ok("cmake", "-S", ROOT / "examples/ask", "-B", build, "-G", "Ninja",
                    f"-DCMAKE_PREFIX_PATH={self.prefix}", *self.WITHOUT)
        self.run_ok("cmake", "--build", build)
        needed = re.findall(r"\(NEEDED\).*\[(\S+)\]", self.run_ok("readelf", "-dW", build / "ask"))
        self.assertTrue(any(name.startswith("libcrypto") for name in needed), needed)
        self.assertFalse([n for n in needed if n.startswith(("libcurl", "libz.", "libssl"))], needed)

    def hub_program(self, name):
        folder = self.at / name
        folder.mkdir()
        (folder / "CMakeLists.txt").write_text(
            "cmake_minimum_required(VERSION 3.25)\nproject(names LANGUAGES CXX)\n"
            "find_package(culet REQUIRED COMPONENTS hub)\n"
            "add_executable(names main.cpp)\ntarget_link_libraries(names PRIVATE culet::hub)\n")
        (folder / "main.cpp").write_text(
            '#include "culet/hub.h"\n#include <cstdio>\n'
            "int main(int, char** argv) {\n"
            "  const auto found = culet::find_model(argv[1]);\n"
            '  std::puts(found ? found->path.c_str() : found.error().message.c_str());\n'
            "  return found ? 0 : 1;\n}\n")
        return ("cmake", "-S", folder, "-B", folder / "build", "-G", "Ninja",
                f"-DCMAKE_PREFIX_PATH={self.prefix}")

    def test_a_program_finds_models_by_name(self):
        self.run_ok(*self.hub_program("hub"))
        self.run_ok("cmake", "--build", self.at / "hub/build")
        names = self.at / "hub/build/names"
        self.assertEqual(self.run_ok(names, GEMMA), f"{GEMMA}\n")
        missed = subprocess.run([names, "hf:no/model"], capture_output=True, text=True, timeout=60,
                                env={"HOME": str(self.at)})
        self.assertEqual((missed.returncode, missed.stdout[:17]), (1, "no model is called"[:17]))

    def test_the_hub_says_what_it_lacks(self):
        done = subprocess.run([str(c) for c in (*self.hub_program("lacking"), *self.WITHOUT)],
                              capture_output=True, text=True, timeout=120)
        self.assertNotEqual(done.returncode, 0)
        self.assertIn("culet::hub needs libcurl", done.stderr)


def include_folders(build, name):
    commands = json.loads((build / "compile_commands.json").read_text())
    (command,) = [c["command"] for c in commands if c["file"].endswith("ask/" + name)]
    words = shlex.split(command)
    return ({w[2:] for w in words if w.startswith("-I")} |
            {words[i + 1] for i, w in enumerate(words) if w == "-isystem"})


class Source(Case):
    def test_users_of_the_folder_see_public_headers_only(self):
        self.assertEqual(include_folders(BUILD, "main.cpp"), {str(ROOT / "include")})


class Debian(Case):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.run_ok("cpack", "-G", "DEB", "--config", BUILD / "CPackConfig.cmake", "-B",
                   cls.at / "deb", cwd=BUILD)
        (cls.package,) = (cls.at / "deb").glob("*.deb")
        cls.run_ok("dpkg-deb", "-x", cls.package, cls.at / "root")

    def field(self, name):
        return self.run_ok("dpkg-deb", "-f", self.package, name).strip()

    def test_fields(self):
        version = self.run_ok(self.at / "root/usr/bin/culet", "--version").split()[1]
        self.assertEqual(self.field("Version"), version + "-0culet1")
        self.assertEqual(self.package.name,
                         f"culet_{version}-0culet1_{self.field('Architecture')}.deb")
        for library in ("libc6", "libstdc++6", "libcurl", "libssl", "libpcre2-8-0", "libutf8proc",
                        "zlib1g"):
            self.assertIn(library, self.field("Depends"))
        self.assertRegex(self.field("Maintainer"), r"^[^<]+ <\S+@\S+>$")
        self.assertGreater(len(self.field("Description").splitlines()), 4)

    def test_files(self):
        doc = "usr/share/doc/culet/"
        self.assertEqual(files_below(self.at / "root"), [
            "usr/bin/culet", "usr/share/bash-completion/completions/culet",
            doc + "changelog.Debian.gz", doc + "copyright",
            "usr/share/fish/vendor_completions.d/culet.fish", "usr/share/man/man1/culet.1.gz",
            "usr/share/zsh/vendor-completions/_culet"])
        for name in (doc + "changelog.Debian.gz", "usr/share/man/man1/culet.1.gz"):
            packed = (self.at / "root" / name).read_bytes()
            self.assertEqual((packed[3], packed[4:8]), (0, bytes(4)), "a name or time in " + name)
            self.assertIn(b"culet", gzip.decompress(packed))
        listing = self.run_ok("dpkg-deb", "-c", self.package).splitlines()
        for line in listing:
            mode = "drwxr-xr-x" if line[0] == "d" else \
                "-rwxr-xr-x" if line.endswith("/bin/culet") else "-rw-r--r--"
            self.assertEqual(line.split()[:2], [mode, "root/root"], line)

    def test_stripped(self):
        sections = self.run_ok("readelf", "-SW", self.at / "root/usr/bin/culet")
        self.assertIn(".text", sections)
        for section in (".symtab", ".debug_info"):
            self.assertNotIn(section, sections)


def main():
    global BUILD
    BUILD = Path(sys.argv.pop(1)).resolve()
    unittest.main()


if __name__ == "__main__":
    main()
