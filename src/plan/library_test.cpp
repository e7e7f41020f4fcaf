// Files beside each other: includes, what replaces what, the folder of --arch-dir, and model files
// that are not what they should be.
#include "base/sha256.h"
#include "plan/arch_parse.h"
#include "plan/plan_test_support.h"

#include <nlohmann/json.hpp>

#include <ctime>
#include <sys/stat.h>

namespace culet::plan::test {
namespace {

namespace fs = std::filesystem;

class Folder {
 public:
  Folder() {
    path_ = fs::path(testing::TempDir()) /
            ("arch-" + std::string(testing::UnitTest::GetInstance()->current_test_info()->name()));
    fs::remove_all(path_);
    fs::create_directories(path_);
  }
  ~Folder() { fs::remove_all(path_); }
  void write(const std::string& name, const std::string& text) const {
    std::ofstream(path_ / name, std::ios::binary) << text;
  }
  std::string path() const { return path_.string(); }
  ArchLibrary open() const {
    auto library = ArchLibrary::open(path());
    EXPECT_TRUE(library) << library.error().message;
    return *library;
  }

 private:
  fs::path path_;
};

std::string error_of(const ArchLibrary& library, const std::string& header) {
  auto c = compile(library, fixture(header)->file, {});
  return c ? "" : c.error().message;
}
Compiled compiled(const ArchLibrary& library, const std::string& header) {
  auto c = compile(library, fixture(header)->file, {});
  EXPECT_TRUE(c) << c.error().message;
  return c ? *c : Compiled{};
}
bool has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

TEST(Library, BuiltIn) {
  const ArchLibrary& library = builtin();
  for (const char* name : {"llama", "qwen2", "qwen3", "gemma3", "gemma4", "lfm2", "bert",
                           "modern-bert", "gemma-embedding"}) {
    auto found = library.find(name);
    ASSERT_TRUE(found);
    EXPECT_EQ((*found)->origin, "built in");
  }
  auto none = library.find("quux");
  ASSERT_FALSE(none);
  EXPECT_EQ(none.error().code, ErrorCode::kUnsupported);
  EXPECT_TRUE(has(none.error().message, ", lfm2, llama, ")) << none.error().message;
  auto no_folder = ArchLibrary::open("/no/such/folder");
  ASSERT_FALSE(no_folder);
  EXPECT_TRUE(has(no_folder.error().message, "/no/such/folder"));
}

// Requirement language.origin-and-sha256 "origin and sha256": where the definition is from and the
// sha256 of its text with all it includes
TEST(Library, IncludeReplacesByNameAndKeepsLines) {
  const Compiled c = compiled(builtin(), "qwen3");
  const std::string llama = builtin().by_file_name("llama")->text;
  const std::string qwen3 = builtin().by_file_name("qwen3")->text;
  const std::string flat = llama + qwen3;
  EXPECT_EQ(c.plan.source_sha256,
            base::sha256_hex(std::as_bytes(std::span(flat.data(), flat.size()))));
  // Each op points to the line it came from, in whichever file.
  const auto source = [&](const Op& op) { return c.plan.source[static_cast<size_t>(op.line)]; };
  EXPECT_EQ(source(*ops_of(c.plan, OpKind::embed)[0]), "  x = embed(token_embd) as [width]");
  const Op& append = *ops_of(c.plan, OpKind::append)[0];
  EXPECT_EQ(source(append), "  append kv: k, v");
  EXPECT_GT(append.line, static_cast<int32_t>(std::count(llama.begin(), llama.end(), '\n')));
}

TEST(Library, WhatAnIncludeReplaces) {
  const std::string base =
      "arch-lang 1\narch one\nkind encoder\nlet a = 1\nlet b = a + 1\nrequire b > 0, \"b\"\n"
      "cache kv: keys 1 x 2\nstate s: rows 1, width 2\nignore old\nmodel:\n  x = embed(t)\n"
      "layer:\n first:\n  x = x * 1\n second:\n  x = x * 2\n";
  const std::string own =
      "arch-lang 1\narch two\ninclude one\nlet a = 10\nlet c = 3\nrequire a > 0, \"a\"\n"
      "cache kv: keys 3 x 4\nignore new\nlayer:\n second:\n  x = x * 20\n third:\n  x = x * 3\n";
  Folder folder;
  folder.write("one.arch", base);
  folder.write("two.arch", own + "# no line break at the end");
  const ArchLibrary library = folder.open();
  auto parsed = parse_arch(library, *library.by_file_name("two"));
  ASSERT_TRUE(parsed) << parsed.error().message;
  EXPECT_EQ(parsed->architectures, std::vector<std::string>{"two"});
  EXPECT_EQ(parsed->kind, "encoder");
  ASSERT_EQ(parsed->lets.size(), 3u);
  EXPECT_EQ(parsed->lets[0].value->number, 10);
  EXPECT_EQ(parsed->requirements.size(), 2u);
  EXPECT_EQ(parsed->ignores.size(), 2u);
  EXPECT_EQ(parsed->caches.size(), 1u);
  EXPECT_EQ(parsed->caches[0].key_heads->number, 3);
  EXPECT_EQ(parsed->states.size(), 1u);
  const auto& sections = parsed->block("layer")->sections;
  ASSERT_EQ(sections.size(), 3u);
  EXPECT_EQ(sections[0].name, "first");
  EXPECT_EQ(sections[1].statements[0].value->kids[1]->number, 20);
  EXPECT_EQ(sections[2].name, "third");
  EXPECT_EQ(parsed->block("model")->sections.size(), 1u);
  ASSERT_EQ(parsed->files.size(), 2u);
  EXPECT_EQ(parsed->files[1].first_line, std::count(base.begin(), base.end(), '\n'));
  EXPECT_EQ(sections[1].statements[0].location.file, 1);
  EXPECT_EQ(sections[0].statements[0].location.file, 0);
  EXPECT_TRUE(has(flattened_text(*parsed), "# no line break at the end\n"));
}

TEST(Library, CirclesAndChains) {
  Folder folder;
  folder.write("a.arch", "arch-lang 1\narch a\ninclude b\n");
  folder.write("b.arch", "arch-lang 1\narch b\n\n# a remark\ninclude a\n");
  folder.write("self.arch", "arch-lang 1\narch self\ninclude self\n");
  for (int k = 0; k < 12; ++k)
    folder.write(
        "c" + std::to_string(k) + ".arch",
        "arch-lang 1\narch c" + std::to_string(k) + "\ninclude c" + std::to_string(k + 1) + "\n");
  const ArchLibrary library = folder.open();
  auto circle = parse_arch(library, *library.by_file_name("a"));
  ASSERT_FALSE(circle);
  EXPECT_TRUE(has(circle.error().message, "b.arch:5:9: including 'a' here goes round"))
      << circle.error().message;
  auto self = parse_arch(library, *library.by_file_name("self"));
  ASSERT_FALSE(self);
  EXPECT_TRUE(has(self.error().message, "self.arch:3:9: there is no")) << self.error().message;
  auto chain = parse_arch(library, *library.by_file_name("c0"));
  ASSERT_FALSE(chain);
  EXPECT_TRUE(has(chain.error().message, "c7.arch:3:9: more than 8 files"))
      << chain.error().message;
}

TEST(Library, AMistakeInAnIncludeNamesThatFile) {
  Folder folder;
  folder.write("base.arch", "arch-lang 1\narch base\nlet layers = meta.block_count\n\nlet a = (\n");
  folder.write("top.arch", "arch-lang 1\narch qwen3\ninclude base\n");
  const std::string m = error_of(folder.open(), "qwen3");
  EXPECT_TRUE(has(m, "base.arch:5:9: this parenthesis is never closed")) << m;
}

// Requirement language.a-folder-overrides "a folder overrides": a file adds or replaces an
// architecture; a broken one disables it with its message, and nothing is fallen back to
TEST(Library, AFolderAddsAnArchitecture) {
  Folder folder;
  folder.write("mine.arch", "arch-lang 1\narch phi3\ninclude qwen3\n");
  folder.write("notes.txt", "not an architecture");
  const ArchLibrary library = folder.open();
  auto found = library.find("phi3");
  ASSERT_TRUE(found);
  EXPECT_EQ((*found)->origin, folder.path() + "/mine.arch");
  EXPECT_TRUE(library.find("llama"));
}

TEST(Library, OnlyRegularFilesAreRead) {
  for (const bool pipe : {false, true}) {
    Folder folder;
    const std::string path = folder.path() + "/odd.arch";
    ASSERT_TRUE(pipe ? ::mkfifo(path.c_str(), 0600) == 0 : fs::create_directory(path));
    const auto library = ArchLibrary::open(folder.path());
    ASSERT_FALSE(library);
    EXPECT_TRUE(has(library.error().message, path)) << library.error().message;
    EXPECT_TRUE(has(library.error().message, "not a regular file")) << library.error().message;
  }
}

TEST(Library, AFileTooLargeForMemoryIsNotRead) {
  Folder folder;
  folder.write("big.arch", "");
  fs::resize_file(folder.path() + "/big.arch", uintmax_t{1} << 40);  // all of it a hole
  const auto library = ArchLibrary::open(folder.path());
  ASSERT_FALSE(library);
  EXPECT_EQ(library.error().code, ErrorCode::kExhausted);
}

// Verifies language.a-folder-overrides.
TEST(Library, AFolderReplacesAFile) {
  Folder folder;
  const std::string llama = builtin().by_file_name("llama")->text;
  folder.write("llama.arch",
               replace_line(llama, "let pairs    = adjacent", "let pairs    = halves"));
  const ArchLibrary library = folder.open();
  const Compiled c = compiled(library, "llama");
  EXPECT_EQ(c.origin, folder.path() + "/llama.arch");
  EXPECT_FALSE(ops_of(c.plan, OpKind::rope)[0]->attr.as<RopeAttributes>().adjacent);
  EXPECT_TRUE(ops_of(compiled(builtin(), "llama").plan, OpKind::rope)[0]
                  ->attr.as<RopeAttributes>()
                  .adjacent);
  // Built-in files that include it see the replacement.
  EXPECT_NE(compiled(library, "qwen2").plan.source_sha256,
            compiled(builtin(), "qwen2").plan.source_sha256);
}

TEST(Library, AReplacementMayIncludeWhatItReplaces) {
  Folder folder;
  folder.write("qwen3.arch",
               "arch-lang 1\narch qwen3\ninclude qwen3\nlet base = meta.rope.freq_base * 2\n");
  const Plan p = compiled(folder.open(), "qwen3").plan;
  const Plan before = compiled(builtin(), "qwen3").plan;
  EXPECT_EQ(p.ropes[0].base, 2 * before.ropes[0].base);
}

TEST(Library, AFileOfAnotherNameMayTakeOverAnArchitecture) {
  Folder folder;
  folder.write("zz-mine.arch", "arch-lang 1\narch qwen3\ninclude qwen3\nlet scale = 1\n");
  const Compiled c = compiled(folder.open(), "qwen3");
  EXPECT_TRUE(has(c.origin, "zz-mine.arch"));
  EXPECT_EQ(ops_of(c.plan, OpKind::attend)[0]->attr.as<AttendAttributes>().scale, 1);
  folder.write("another.arch", "arch-lang 1\narch qwen3\ninclude qwen3\n");
  const std::string m = error_of(folder.open(), "qwen3");
  EXPECT_TRUE(has(m, "another.arch and ") && has(m, "zz-mine.arch name the architecture 'qwen3'"))
      << m;
}

// Verifies language.a-folder-overrides.
TEST(Library, ABrokenFileDisablesItsArchitecture) {
  Folder folder;
  const std::string llama = builtin().by_file_name("llama")->text;
  // Broken in the body, in the header, and by a byte far below: no way back to the built-in one.
  const std::string broken[] = {replace_line(llama, "rms_norm(", "rms_nrom("), "garbage\n",
                                llama + "\tlet\n", ""};
  for (const std::string& text : broken) {
    folder.write("llama.arch", text);
    const std::string m = error_of(folder.open(), "llama");
    EXPECT_TRUE(has(m, folder.path() + "/llama.arch:")) << m;
    EXPECT_EQ(error_of(folder.open(), "gemma3"), "");
  }
  folder.write("llama.arch", llama);
  folder.write("other.arch", "arch-lang 1\narch gemma3\n\tlet\n");
  const std::string m = error_of(folder.open(), "gemma3");
  EXPECT_TRUE(has(m, "other.arch:3:1: a tab")) << m;
}

// The files that docs/formats/arch.md shows under `my-archs/NAME.arch`.
std::string example(const std::string& name) {
  const std::string doc = read_text(CULET_SOURCE_DIR "/docs/formats/arch.md");
  const size_t at = doc.find("`my-archs/" + name + "`:\n```\n");
  EXPECT_NE(at, std::string::npos) << name;
  const size_t begin = doc.find("```\n", at) + 4;
  return doc.substr(begin, doc.find("```\n", begin) - begin);
}

TEST(Library, TheExamplesOfTheDocumentWork) {
  Folder folder;
  folder.write("qwen3.arch", example("qwen3.arch"));
  folder.write("mymodel.arch", example("mymodel.arch"));
  const ArchLibrary library = folder.open();
  EXPECT_EQ(compiled(library, "qwen3").plan.ropes[0].base, 500000);
  auto found = library.find("mymodel");
  ASSERT_TRUE(found) << found.error().message;
  const ModelPtr model = fixture("qwen3");
  auto c = compile_text(builtin(), **found, model->file, {});
  ASSERT_TRUE(c) << c.error().message;
  EXPECT_EQ(ops_of(c->plan, OpKind::gated_linear)[0]->attr.as<ActivationAttributes>().activation,
            Activation::kGelu);
  EXPECT_EQ(ops_of(c->plan, OpKind::attend)[0]->attr.as<AttendAttributes>().scale,
            0.125f);  // width 64
}

// ---- model files

std::string lower(std::string s) {
  std::transform(s.begin(), s.end(), s.begin(), [](unsigned char c) { return std::tolower(c); });
  return s;
}

// Verifies language.missing-tensor.
TEST(BadModels, AreRefusedForTheStatedReason) {
  const auto cases = nlohmann::json::parse(read_text(data("golden/bad-gguf/cases.json")));
  // What the reader accepts and the plan has to refuse; the rest is the model layer's matter.
  const std::string ours[] = {"missing-key",  "missing-arch", "missing-tensor", "wrong-shape",
                              "extra-tensor", "extra-layer",  "head-count-0",   "head-count-kv-3",
                              "n-layer-huge", "rms-eps-nan",  "key-wrong-type", "unknown-arch",
                              "extra-key"};
  size_t seen = 0;
  for (const auto& one : cases) {
    const std::string file = one["file"];
    const std::string reason = one["reason"];
    const bool mine = std::find(std::begin(ours), std::end(ours), file.substr(0, file.find('.'))) !=
                      std::end(ours);
    SCOPED_TRACE(file);
    const std::string bytes = read_text(data("golden/bad-gguf/" + file));
    auto model = format::GgufFile::parse(std::as_bytes(std::span(bytes)), file);
    EXPECT_TRUE(!mine || model);
    if (!model) continue;
    const std::clock_t start = std::clock();
    auto c = compile(builtin(), *model, {});
    EXPECT_LT(static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC, 1);
    if (mine) {
      ++seen;
      ASSERT_FALSE(c);
      EXPECT_TRUE(has(lower(c.error().message), lower(reason))) << c.error().message;
    } else if (file == "good.gguf") {
      ASSERT_TRUE(c) << c.error().message;
      EXPECT_EQ(testing::PrintToString(c->warnings), "{}");
      check_plan(c->plan);
    }
  }
  EXPECT_EQ(seen, std::size(ours));
}

}  // namespace
}  // namespace culet::plan::test
