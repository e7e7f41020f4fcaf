#include "resolve/name.h"

#include "base/sha256.h"
#include "resolve/disk.h"
#include "resolve/gguf_files.h"
#include "resolve/hugging_face.h"
#include "resolve/list.h"
#include "resolve/ollama.h"
#include "resolve/own_cache.h"
#include "resolve/resolve_test_support.h"

#include <gtest/gtest.h>

#include <chrono>
#include <ctime>
#include <fcntl.h>
#include <sys/stat.h>

namespace culet::resolve {
namespace {

const std::string kCommitA(40, 'a'), kCommitB(40, 'b');
const std::string kRepo = "models--org--repo";
const std::string kLibrary = "registry.ollama.ai/library/";

class Names : public ::testing::Test {
 protected:
  Result<ModelRef> find(const std::string& name) { return find_model(places_, catalogue_, name); }
  std::string path_of(const std::string& name) {
    const auto ref = find(name);
    return ref ? ref->path : "error: " + ref.error().message;
  }
  std::string error_of(const std::string& name) {
    const auto ref = find(name);
    return ref ? "found: " + ref->path : ref.error().message;
  }

  TempFolder folder_;
  Places places_ = places_in(folder_);
  Catalogue catalogue_ = builtin_catalogue();
};

// ---------------------------------------------------------------- paths

// Requirement names.paths "names: paths": an existing file first; what looks like a path never
// searches a store
TEST_F(Names, AnExistingFileIsAPath) {
  write_text(folder_ / "m.gguf", "x");
  const auto ref = find(folder_ / "m.gguf");
  ASSERT_TRUE(ref);
  EXPECT_EQ(ref->origin, "path");
  EXPECT_EQ(ref->sha256, "");
}

// Verifies names.paths.
TEST_F(Names, WhatLooksLikeAPathNeverSearchesStores) {
  for (const std::string name : {"/no/such.gguf", "./x", "../x", "~/x", "~user/x", "model.gguf",
                                 "org/repo/file.GGUF", "a\\b", "C:model", ".", ".."}) {
    EXPECT_TRUE(looks_like_path(name)) << name;
  }
  for (const std::string name : {"smollm2", "org/repo", "a/b:c", "qwen3:0.6b", "hf.co/a/b"}) {
    EXPECT_FALSE(looks_like_path(name)) << name;
  }
  add_ollama(places_, kLibrary + "model.gguf/latest", "x");
  const std::string error = error_of("/no/such.gguf");
  EXPECT_TRUE(mentions(error, "/no/such.gguf"));
  EXPECT_FALSE(mentions(error, "Ollama"));
  EXPECT_FALSE(mentions(error_of("model.gguf"), "Ollama"));
  EXPECT_TRUE(mentions(error_of("model.gguf"), "does not exist"));
}

TEST_F(Names, TildeIsTheHomeFolder) {
  write_text(places_.home + "/m", "x");
  EXPECT_EQ(path_of("~/m"), places_.home + "/m");
  EXPECT_TRUE(mentions(error_of("~other/m"), "~other/m"));
}

TEST_F(Names, FoldersAndEmptyNamesAreRefused) {
  EXPECT_TRUE(mentions(error_of(folder_.path()), "is a folder"));
  EXPECT_TRUE(mentions(error_of("/dev/null"), "is not a regular file"));
  EXPECT_TRUE(mentions(error_of(" \n"), "no model was named"));
  EXPECT_TRUE(mentions(error_of(std::string(5000, 'a')), "too long"));
  EXPECT_TRUE(mentions(error_of(std::string("a\0b", 3)), "zero byte"));
}

// ---------------------------------------------------------------- Ollama

// Requirement names.ollama "names: Ollama": host, namespace and tag have defaults, the model
// layer's blob by its digest; digests that are none are refused
TEST_F(Names, OllamaNamesHaveDefaults) {
  const std::string blob = add_ollama(places_, kLibrary + "tiny/latest", "one");
  const std::string other = add_ollama(places_, kLibrary + "tiny/q8", "two");
  const std::string mine = add_ollama(places_, "registry.ollama.ai/me/tiny/latest", "three");
  const std::string hub = add_ollama(places_, "hf.co/org/repo/Q4_K_M", "four");
  EXPECT_EQ(path_of("tiny"), blob);
  EXPECT_EQ(path_of("tiny:latest"), blob);
  EXPECT_EQ(path_of("library/tiny"), blob);
  EXPECT_EQ(path_of("registry.ollama.ai/library/tiny:latest"), blob);
  EXPECT_EQ(path_of("ollama:tiny"), blob);
  EXPECT_EQ(path_of("tiny:q8"), other);
  EXPECT_EQ(path_of("me/tiny"), mine);
  EXPECT_EQ(path_of("hf.co/org/repo:Q4_K_M"), hub);
  const auto ref = find("tiny");
  EXPECT_EQ(ref->origin, "ollama:tiny:latest");
  EXPECT_EQ(ref->sha256, sha256_of("one"));
  EXPECT_EQ(find("me/tiny")->origin, "ollama:me/tiny:latest");
}

TEST_F(Names, AnotherNamespaceIsSuggestedNotTaken) {
  add_ollama(places_, "registry.ollama.ai/alice/tiny/latest", "one");
  add_ollama(places_, "registry.ollama.ai/bob/tiny/latest", "two");
  const std::string error = error_of("tiny");
  EXPECT_TRUE(mentions(error, "did you mean 'alice/tiny:latest'")) << error;
  EXPECT_TRUE(mentions(error, "bob/tiny:latest")) << error;
}

// Requirement reports-loading.CVE-2024-39719 "CVE-2024-39719 to -39722: paths and digests of a
// model store": names that leave the store and digests that are none are refused; also fuzzed
// (`fuzz/catalogue_fuzz.cpp`)
// Verifies names.ollama.
TEST_F(Names, DigestsThatAreNoneAreRefused) {
  write_text(folder_ / "secret", "x");
  const std::string hex = sha256_of("x");
  for (const std::string& digest :
       {std::string("sha256:../../secret"), std::string("../../secret"), hex,
        "sha256:" + hex.substr(1), "sha256:" + hex + "/..", "sha256:" + std::string(64, 'A'),
        "md5:" + hex, std::string("")}) {
    write_text(places_.ollama + "/manifests/" + kLibrary + "bad/latest",
               R"({"layers": [{"mediaType": "application/vnd.ollama.image.model", "digest": ")" +
                   digest + R"(", "size": 1}]})");
    const auto ref = find("bad");
    ASSERT_FALSE(ref) << digest;
    EXPECT_EQ(ref.error().code, ErrorCode::kCorrupt) << digest;
    EXPECT_TRUE(mentions(ref.error().message, "ollama pull bad:latest")) << ref.error().message;
  }
}

TEST_F(Names, BothSpellingsOfADigestAreTaken) {
  const std::string blob = add_ollama(places_, kLibrary + "a/latest", "x");
  write_text(
      places_.ollama + "/manifests/" + kLibrary + "dash/latest",
      R"({"layers": [{"mediaType": "application/vnd.ollama.image.model", "digest": "sha256-)" +
          sha256_of("x") + R"(", "size": 1}]})");
  EXPECT_EQ(path_of("dash"), blob);
}

TEST_F(Names, DamagedOllamaModelsAreErrors) {
  const std::string blob = add_ollama(places_, kLibrary + "tiny/latest", "one");
  write_text(blob, "longer");
  EXPECT_TRUE(mentions(error_of("tiny"), "6 bytes instead of 3"));
  std::filesystem::remove(blob);
  EXPECT_TRUE(mentions(error_of("tiny"), "is missing"));
  std::filesystem::create_symlink("/nowhere/at/all", blob);
  EXPECT_TRUE(mentions(error_of("tiny"), "is missing"));
  std::filesystem::create_directories(places_.ollama + "/manifests/" + kLibrary + "dir/latest");
  EXPECT_TRUE(mentions(error_of("dir"), "is a folder"));
  write_text(places_.ollama + "/manifests/" + kLibrary + "text/latest", "not JSON");
  EXPECT_TRUE(mentions(error_of("text"), "not JSON"));
  write_text(places_.ollama + "/manifests/" + kLibrary + "none/latest",
             R"({"layers": [{"mediaType": "application/vnd.ollama.image.tensor"}]})");
  EXPECT_TRUE(mentions(error_of("none"), "GGUF"));
  write_text(places_.ollama + "/manifests/" + kLibrary + "long/latest",
             std::string(5 << 20, ' ') + "{}");
  EXPECT_TRUE(mentions(error_of("long"), "longer than"));
}

// Verifies names.ollama.
TEST_F(Names, OtherLayersAreReportedOrIgnored) {
  add_ollama(places_, kLibrary + "tiny/latest", "one",
             R"({"mediaType": "application/vnd.ollama.image.projector", "digest": "x"},
                {"mediaType": "application/vnd.ollama.image.adapter"},
                {"mediaType": "application/vnd.ollama.image.template"},
                {"mediaType": "application/vnd.ollama.image.license"},
                {"mediaType": "application/something.new"}, 7, {"mediaType": 3},)");
  const auto ref = find("tiny");
  ASSERT_TRUE(ref) << ref.error().message;
  EXPECT_EQ(ref->notes.size(), 3u);
  EXPECT_TRUE(mentions(ref->notes[0], "projector"));
}

// Verifies names.ollama, reports-loading.CVE-2024-39719.
TEST_F(Names, OllamaNamesThatLeaveTheStoreAreNone) {
  for (const std::string name :
       {"a/../b", "..", "a/b/c/d", "a:", "", "a:..", "a//b", "-x", "a b", "/a", "a/", "x:y:z/w"}) {
    EXPECT_FALSE(parse_ollama_name(name)) << name;
  }
  ASSERT_TRUE(parse_ollama_name("localhost:5000/me/tiny:x"));
  EXPECT_EQ(parse_ollama_name("localhost:5000/me/tiny:x")->host, "localhost:5000");
}

// ---------------------------------------------------------------- Hugging Face

// Requirement names.hugging-face "names: Hugging Face": `refs/main` is followed, a revision and a
// quantization choose, projectors never are
TEST_F(Names, RefsMainIsFollowedNotTheNewest) {
  const std::string wanted = add_hub(places_, kRepo, kCommitA, "m-Q8_0.gguf", "one");
  add_hub(places_, kRepo, kCommitB, "m-Q8_0.gguf", "two");
  set_ref(places_, kRepo, "main", kCommitA + "\n");
  set_ref(places_, kRepo, "v2", kCommitB);
  set_ref(places_, kRepo, "refs/pr/1", kCommitB);
  const auto ref = find("org/repo");
  ASSERT_TRUE(ref) << ref.error().message;
  EXPECT_EQ(ref->path, wanted);
  EXPECT_EQ(ref->revision, kCommitA);
  EXPECT_EQ(ref->origin, "hf:org/repo@aaaaaaaa");
  EXPECT_EQ(ref->sha256, sha256_of("one"));  // the name of the blob
  for (const std::string name : {"org/repo@v2", "org/repo@bbbbbbb", "hf:org/repo@refs/pr/1",
                                 "org/repo@"
                                 "bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb:q8_0"}) {
    EXPECT_TRUE(mentions(path_of(name), kCommitB)) << name << " " << path_of(name);
  }
  EXPECT_TRUE(mentions(error_of("org/repo@bbb"), "not its revision bbb"));
  EXPECT_TRUE(mentions(error_of("org/repo@nope"), "not its revision nope"));
}

// Verifies names.hugging-face.
TEST_F(Names, WithoutRefsMainTheNewestIsTakenAndSaid) {
  add_hub(places_, kRepo, kCommitA, "m.gguf", "one");
  add_hub(places_, kRepo, kCommitB, "m.gguf", "two");
  const timespec old[2] = {{1000, 0}, {1000, 0}};
  const std::string folder = places_.hugging_face + "/" + kRepo + "/snapshots/" + kCommitB;
  ASSERT_EQ(::utimensat(AT_FDCWD, folder.c_str(), old, 0), 0);
  const auto ref = find("org/repo");
  ASSERT_TRUE(ref) << ref.error().message;
  EXPECT_EQ(ref->revision, kCommitA);
  EXPECT_TRUE(mentions(ref->origin, "refs/main is missing"));
}

// Verifies reports-loading.CVE-2024-39719.
TEST_F(Names, RefsThatAreNoCommitAreRefused) {
  add_hub(places_, kRepo, kCommitA, "m.gguf", "one");
  const std::string texts[] = {"../../../etc", "", "aaaa", std::string(300, 'a')};
  for (const std::string& text : texts) {
    set_ref(places_, kRepo, "main", text);
    EXPECT_TRUE(mentions(error_of("org/repo"), "names no snapshot")) << text;
  }
  set_ref(places_, kRepo, "main", kCommitB);
  EXPECT_TRUE(mentions(error_of("org/repo"), "names no snapshot"));
}

// Verifies names.hugging-face.
TEST_F(Names, TheQuantizationChooses) {
  set_ref(places_, kRepo, "main", kCommitA);
  for (const std::string file :
       {"M-Q4_K_M.gguf", "M-Q4_K_S.gguf", "M-Q8_0.gguf", "M_IQ4_XS.gguf", "mmproj-M-Q8_0.gguf",
        "M-BF16-00001-of-00002.gguf", "M-BF16-00002-of-00002.gguf", "Q6_K/M-Q6_K.gguf"}) {
    add_hub(places_, kRepo, kCommitA, file, file);
  }
  EXPECT_TRUE(path_of("org/repo").ends_with("/M-Q4_K_M.gguf"));
  EXPECT_TRUE(path_of("org/repo:q4_k_s").ends_with("/M-Q4_K_S.gguf"));
  EXPECT_TRUE(path_of("org/repo:Q8_0").ends_with("/M-Q8_0.gguf"));
  EXPECT_TRUE(path_of("org/repo:iq4_xs").ends_with("/M_IQ4_XS.gguf"));
  EXPECT_TRUE(path_of("org/repo:Q6_K").ends_with("/Q6_K/M-Q6_K.gguf"));
  EXPECT_TRUE(path_of("org/repo:bf16").ends_with("/M-BF16-00001-of-00002.gguf"));
  EXPECT_TRUE(path_of("hf:org/repo:M-Q8_0.gguf").ends_with("/M-Q8_0.gguf"));
  EXPECT_TRUE(mentions(error_of("org/repo:Q4_K"), "no file for ':Q4_K'; it has M-BF16"));
  EXPECT_EQ(find("org/repo")->notes.size(), 1u);  // the projector
}

TEST_F(Names, SeveralCandidatesAreListed) {
  set_ref(places_, kRepo, "main", kCommitA);
  add_hub(places_, kRepo, kCommitA, "A-Q8_0.gguf", "1");
  add_hub(places_, kRepo, kCommitA, "B-Q8_0.gguf", "2");
  EXPECT_TRUE(mentions(error_of("org/repo"), "A-Q8_0.gguf, B-Q8_0.gguf"));
  EXPECT_TRUE(mentions(error_of("org/repo:Q8_0"), "A-Q8_0.gguf, B-Q8_0.gguf"));
}

// Verifies names.hugging-face.
TEST_F(Names, ProjectorsAloneAreNoModel) {
  set_ref(places_, kRepo, "main", kCommitA);
  add_hub(places_, kRepo, kCommitA, "mmproj-model-f16.gguf", "1");
  add_hub(places_, kRepo, kCommitA, "model-imatrix.gguf", "2");
  add_hub(places_, kRepo, kCommitA, "M-00002-of-00002.gguf", "3");
  EXPECT_TRUE(mentions(error_of("org/repo"), "no GGUF file"));
  EXPECT_TRUE(mentions(error_of("org/repo:f16"), "no GGUF file"));
}

TEST_F(Names, DanglingLinksAndMissingPartsAreSaid) {
  set_ref(places_, kRepo, "main", kCommitA);
  const std::string link = add_hub(places_, kRepo, kCommitA, "m-00001-of-00002.gguf", "1");
  EXPECT_TRUE(mentions(error_of("org/repo"), "m-00002-of-00002.gguf is missing"));
  add_hub(places_, kRepo, kCommitA, "m-00002-of-00002.gguf", "2");
  EXPECT_EQ(path_of("org/repo"), link);
  std::filesystem::remove(places_.hugging_face + "/" + kRepo + "/blobs/" + sha256_of("1"));
  EXPECT_TRUE(mentions(error_of("org/repo"), "m-00001-of-00002.gguf is missing or leads nowhere"));
}

TEST_F(Names, ABlobThatIsNoSha256GivesNoDigest) {
  set_ref(places_, kRepo, "main", kCommitA);
  const std::string repo = places_.hugging_face + "/" + kRepo;
  write_text(repo + "/blobs/" + std::string(40, 'c'), "small");
  write_text(repo + "/snapshots/" + kCommitA + "/plain.gguf", "copy");
  std::filesystem::create_symlink(repo + "/blobs/" + std::string(40, 'c'),
                                  repo + "/snapshots/" + kCommitA + "/git.gguf");
  EXPECT_EQ(find("hf:org/repo:git.gguf")->sha256, "");
  EXPECT_EQ(find("hf:org/repo:plain.gguf")->sha256, "");
}

TEST_F(Names, HubNames) {
  for (const std::string name : {"repo", "a/b/c", "../x", "a/..", "a/b@", "a/b@../x",
                                 "a/b:", "a--b/c", "a/b c", "a/b@x y", "a/.b"}) {
    EXPECT_FALSE(parse_hub_name(name)) << name;
  }
  const auto name = parse_hub_name("Qwen/Qwen3-0.6B-GGUF@refs/pr/2:UD-Q4_K_XL");
  ASSERT_TRUE(name);
  EXPECT_EQ(name->revision, "refs/pr/2");
  EXPECT_EQ(name->quant, "UD-Q4_K_XL");
  EXPECT_EQ(to_text(*name), "Qwen/Qwen3-0.6B-GGUF@refs/pr/2:UD-Q4_K_XL");
}

TEST(GgufFiles, QuantIsAWholeToken) {
  EXPECT_TRUE(has_quant("x-1.5B.Q4_K_M.gguf", "q4_k_m"));
  EXPECT_TRUE(has_quant("x_q4_k_m.gguf", "Q4_K_M"));
  EXPECT_TRUE(has_quant("x-UD-Q4_K_XL.gguf", "UD-Q4_K_XL"));
  EXPECT_TRUE(has_quant("x-f16-00001-of-00009.gguf", "F16"));
  EXPECT_FALSE(has_quant("x-Q4_K_M.gguf", "Q4_K"));
  EXPECT_FALSE(has_quant("x-Q4_K_M.gguf", "K_M"));
  EXPECT_FALSE(has_quant("x-Q4_K_M.gguf", "M"));
  EXPECT_FALSE(has_quant("x-IQ4_XS.gguf", "Q4_XS"));
  EXPECT_FALSE(has_quant("x-bf16.gguf", "f16"));
  EXPECT_FALSE(has_quant("Q8_0/x.gguf", "Q8_0"));
  EXPECT_FALSE(has_quant("x.gguf", ""));
  EXPECT_EQ(quant_in_name("Model-1.5B-Q4_K_M.gguf"), "Q4_K_M");
  EXPECT_EQ(quant_in_name("gemma-3-270m-it-q8_0.gguf"), "q8_0");
  EXPECT_EQ(quant_in_name("dir-F16/m_IQ4_XS-00001-of-00002.gguf"), "IQ4_XS");
  EXPECT_EQ(quant_in_name("qwen.gguf"), "");
  EXPECT_EQ(parts_of("d/m-00001-of-00003.gguf").size(), 3u);
  EXPECT_EQ(parts_of("d/m-00001-of-00003.gguf")[2], "d/m-00003-of-00003.gguf");
  EXPECT_EQ(parts_of("m.gguf"), std::vector<std::string>{"m.gguf"});
  EXPECT_TRUE(parts_of("m-00001-of-99999.gguf").empty());
}

// ---------------------------------------------------------------- the order, and misses

TEST_F(Names, TheOrderIsPathOllamaHubOwn) {
  HubName name{"org", "repo", "", ""};
  const std::string own = hub_folder(places_, name) + "/" + kCommitB + "/m-Q4_K_M.gguf";
  write_text(own, "own");
  ASSERT_TRUE(write_source(
      own, {"hf:org/repo@bbbbbbbb:Q4_K_M", kCommitB, {"main"}, sha256_of("own"), 3, 1}));
  EXPECT_EQ(path_of("org/repo"), own);
  set_ref(places_, kRepo, "main", kCommitA);
  const std::string hub = add_hub(places_, kRepo, kCommitA, "m-Q8_0.gguf", "hub");
  EXPECT_EQ(path_of("org/repo"), hub);
  EXPECT_EQ(path_of("org/repo:Q4_K_M"), own);  // the hub has none: the search goes on
  const std::string blob = add_ollama(places_, "registry.ollama.ai/org/repo/latest", "ollama");
  EXPECT_EQ(path_of("org/repo"), blob);
  EXPECT_EQ(path_of("hf:org/repo"), hub);
  EXPECT_EQ(path_of("hf:org/repo@bbbbbbbb"), own);  // the hub has no such revision
}

TEST_F(Names, PulledRevisionsTheNewestPullWins) {
  HubName name{"org", "repo", "", ""};
  const std::string a = hub_folder(places_, name) + "/" + kCommitA + "/m-Q8_0.gguf";
  const std::string b = hub_folder(places_, name) + "/" + kCommitB + "/m-Q8_0.gguf";
  const std::string c = hub_folder(places_, name) + "/" + kCommitA + "/m-Q4_0.gguf";
  for (const auto& [path, when] : {std::pair{a, 10}, std::pair{b, 20}, std::pair{c, 5}}) {
    write_text(path, path);
    const bool is_b = path == b;
    ASSERT_TRUE(write_source(path, {"hf:x",
                                    is_b ? kCommitB : kCommitA,
                                    {"main", is_b ? "v2" : "v1"},
                                    sha256_of(path),
                                    1,
                                    when}));
  }
  EXPECT_EQ(path_of("org/repo:Q8_0"), b);
  EXPECT_EQ(path_of("org/repo:Q4_0"), c);
  EXPECT_EQ(path_of("org/repo@v1:Q8_0"), a);
  EXPECT_EQ(path_of("org/repo@aaaaaaa:Q8_0"), a);
}

TEST_F(Names, CatalogueNames) {
  EXPECT_TRUE(mentions(error_of("smollm2"), "culet pull smollm2-135m-instruct"));
  const CatalogueModel* model = catalogue_.find("SmolLM2");
  ASSERT_TRUE(model);
  const std::string path = places_.cache + "/" + model->file;
  write_text(path, "short");
  EXPECT_TRUE(mentions(error_of("smollm2"), "is damaged; run: culet pull"));
  std::filesystem::resize_file(path, model->bytes);
  EXPECT_EQ(path_of("smollm2-135m-instruct"), path);
  EXPECT_EQ(find("smollm2")->origin, "catalogue:smollm2-135m-instruct");
  remember_digest(places_, path, std::string(64, '0'));
  EXPECT_TRUE(mentions(error_of("smollm2"), "is damaged"));
  remember_digest(places_, path, model->sha256);
  EXPECT_EQ(find("smollm2")->sha256, model->sha256);
}

// Requirement names.a-name-that-is-nowhere "a name that is nowhere": the places that were searched,
// up to twelve names that are there, the nearest one
TEST_F(Names, AMissNamesThePlacesAndWhatThereIs) {
  std::string error = error_of("nothing-like-it");
  for (const std::string& part : {places_.ollama, places_.hugging_face, places_.cache,
                                  std::string("no model on this machine yet")}) {
    EXPECT_TRUE(mentions(error, part)) << error;
  }
  EXPECT_FALSE(mentions(error, "did you mean"));
  for (int i = 0; i < 20; ++i) {
    add_ollama(places_, kLibrary + "model" + std::to_string(i) + "/latest", std::to_string(i));
  }
  error = error_of("modle7");
  EXPECT_TRUE(mentions(error, "did you mean 'model7:latest'")) << error;
  EXPECT_TRUE(mentions(error, "and 8 more")) << error;
  EXPECT_TRUE(mentions(error_of("smolm2"), "did you mean 'smollm2'"));
  EXPECT_TRUE(mentions(error_of("other/repo"), "culet pull hf:other/repo"));
  EXPECT_FALSE(mentions(error_of("hf:other/repo"), "Ollama"));
  EXPECT_FALSE(mentions(error_of("ollama:other"), "Hugging Face"));
}

TEST_F(Names, UnreadableFoldersDoNotEndTheSearch) {
  std::filesystem::create_directories(places_.ollama + "/manifests");
  std::filesystem::create_symlink("loop", places_.ollama + "/manifests/loop");
  write_text(places_.ollama + "/manifests/registry.ollama.ai", "a file where a folder should be");
  write_text(places_.hugging_face, "a file");
  write_text(places_.cache + "/hf", "a file");
  const std::string error = error_of("tiny");
  EXPECT_TRUE(mentions(error, "no model is called 'tiny'")) << error;
  EXPECT_TRUE(mentions(error, "cannot read")) << error;
  EXPECT_TRUE(mentions(error_of("org/repo"), "no model is called"));
  EXPECT_FALSE(list_models(places_, catalogue_).problems.empty());
}

TEST_F(Names, UnknownHomeIsNoPlace) {
  const Places nowhere = places_from([](const char*) { return std::string(); });
  const auto ref = find_model(nowhere, catalogue_, "tiny");
  ASSERT_FALSE(ref);
  EXPECT_TRUE(mentions(ref.error().message, "HOME is not set")) << ref.error().message;
}

TEST_F(Names, TenThousandModelsAreFast) {
  const std::string blob = add_ollama(places_, kLibrary + "base/latest", "x");
  const std::string manifest = read_text(places_.ollama + "/manifests/" + kLibrary + "base/latest");
  for (int i = 0; i < 10'000; ++i) {
    write_text(places_.ollama + "/manifests/" + kLibrary + "m" + std::to_string(i) + "/latest",
               manifest);
  }
  const auto start = std::chrono::steady_clock::now();
  EXPECT_EQ(path_of("m4321"), blob);
  const auto hit = std::chrono::steady_clock::now() - start;
  EXPECT_LT(hit, std::chrono::milliseconds(100));
  EXPECT_TRUE(mentions(error_of("mm4321"), "did you mean 'm4321:latest'"));
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(10));
}

// ---------------------------------------------------------------- the environment

std::string value_of(const std::vector<std::pair<std::string, std::string>>& all,
                     const std::string& name) {
  for (const auto& [key, value] : all) {
    if (key == name) return value;
  }
  return "";
}

TEST(PlacesTest, VariablesInTheirOrder) {
  std::vector<std::pair<std::string, std::string>> all{{"HOME", "/h"}};
  const auto now = [&all] {
    return places_from([&all](const char* name) { return value_of(all, name); });
  };
  EXPECT_EQ(now().ollama, "/h/.ollama/models");
  EXPECT_EQ(now().hugging_face, "/h/.cache/huggingface/hub");
  EXPECT_EQ(now().cache, "/h/.cache/culet/models");
  EXPECT_EQ(now().hf_endpoint, "https://huggingface.co");
  EXPECT_EQ(now().pypi_index, "https://pypi.org/simple");
  EXPECT_EQ(now().hf_token_path, "/h/.cache/huggingface/token");
  all.push_back({"XDG_CACHE_HOME", "/x"});
  EXPECT_EQ(now().hugging_face, "/x/huggingface/hub");
  EXPECT_EQ(now().cache, "/x/culet/models");
  all.push_back({"HF_HOME", "/hf/"});
  EXPECT_EQ(now().hugging_face, "/hf//hub");
  EXPECT_EQ(now().hf_token_path, "/hf//token");
  all.push_back({"HUGGINGFACE_HUB_CACHE", "/old"});
  EXPECT_EQ(now().hugging_face, "/old");
  all.push_back({"HF_HUB_CACHE", "~/new/"});
  EXPECT_EQ(now().hugging_face, "/h/new");
  all.push_back({"OLLAMA_MODELS", "/o"});
  all.push_back({"CULET_CACHE", "relative"});
  all.push_back({"HF_ENDPOINT", "https://mirror.example/"});
  EXPECT_EQ(now().ollama, "/o");
  EXPECT_EQ(now().cache, std::filesystem::current_path().string() + "/relative");
  EXPECT_EQ(now().hf_endpoint, "https://mirror.example");
  all.push_back({"HF_TOKEN_PATH", "~/my/token"});
  EXPECT_EQ(now().hf_token_path, "/h/my/token");
  all.push_back({"HF_TOKEN", "hf_x"});
  EXPECT_EQ(now().hf_token, "hf_x");
  all.push_back({"HF_HUB_DISABLE_IMPLICIT_TOKEN", "Yes"});
  EXPECT_EQ(now().hf_token + now().hf_token_path, "");
}

// ---------------------------------------------------------------- digests, list, rm

// Requirement names.provenance "provenance": path, origin, revision and sha256, which the place
// knows or which is computed once; of every part of a split model
TEST_F(Names, DigestsAreComputedOnceAndOnlyForThisFile) {
  const std::string path = folder_ / "m.gguf";
  write_text(path, "content");
  int reads = 0;
  const auto count = [&reads](const Progress&) { return ++reads, true; };
  const auto ref = find(path);
  EXPECT_EQ(*model_sha256(places_, *ref, count), sha256_of("content"));
  EXPECT_GT(reads, 0);
  reads = 0;
  EXPECT_EQ(*model_sha256(places_, *ref, count), sha256_of("content"));
  EXPECT_EQ(reads, 0);
  write_text(path, "changed");  // the same size, a later time
  const timespec times[2] = {{2000, 0}, {2000, 0}};
  ASSERT_EQ(::utimensat(AT_FDCWD, path.c_str(), times, 0), 0);
  EXPECT_EQ(*model_sha256(places_, *ref, count), sha256_of("changed"));
  EXPECT_GT(reads, 0);
  const auto stop = [](const Progress&) { return false; };
  write_text(folder_ / "n.gguf", "other");
  EXPECT_EQ(model_sha256(places_, *find(folder_ / "n.gguf"), stop).error().code,
            ErrorCode::kCancelled);
}

// Verifies names.provenance.
TEST_F(Names, EveryPartOfASplitModelHasItsDigest) {
  const std::string first = folder_ / "m-00001-of-00002.gguf";
  const std::string second = folder_ / "m-00002-of-00002.gguf";
  write_text(first, "one");
  write_text(second, "second");
  uint64_t last_done = 0, last_total = 0;
  const auto note = [&](const Progress& p) {
    EXPECT_GE(p.done, last_done);
    last_done = p.done, last_total = p.total;
    return true;
  };
  auto digests = model_digests(places_, *find(first), note);
  ASSERT_TRUE(digests) << digests.error().message;
  ASSERT_EQ(digests->size(), 2u);
  EXPECT_EQ((*digests)[0].path, first);
  EXPECT_EQ((*digests)[0].sha256, sha256_of("one"));
  EXPECT_EQ((*digests)[1].path, second);
  EXPECT_EQ((*digests)[1].bytes, 6u);
  EXPECT_EQ((*digests)[1].sha256, sha256_of("second"));
  EXPECT_EQ(last_done, 9u);
  EXPECT_EQ(last_total, 9u);
  last_done = last_total = 0;  // remembered
  digests = model_digests(places_, *find(first), note);
  EXPECT_EQ((*digests)[1].sha256, sha256_of("second"));
  EXPECT_EQ(last_total, 0u);
  std::filesystem::remove(second);
  digests = model_digests(places_, *find(first), note);
  ASSERT_FALSE(digests);
  EXPECT_TRUE(mentions(digests.error().message, second)) << digests.error().message;
}

// Verifies names.provenance.
TEST_F(Names, TheHubKnowsTheDigestsOfAllParts) {
  add_hub(places_, "models--org--repo", std::string(40, 'a'), "m-00001-of-00002.gguf", "one");
  add_hub(places_, "models--org--repo", std::string(40, 'a'), "m-00002-of-00002.gguf", "second");
  const auto ref = find("org/repo");
  ASSERT_TRUE(ref) << ref.error().message;
  bool asked = false;
  const auto digests =
      model_digests(places_, *ref, [&asked](const Progress&) { return asked = true; });
  ASSERT_TRUE(digests) << digests.error().message;
  ASSERT_EQ(digests->size(), 2u);
  EXPECT_EQ((*digests)[0].sha256, sha256_of("one"));
  EXPECT_EQ((*digests)[1].sha256, sha256_of("second"));
  EXPECT_FALSE(asked);
}

TEST_F(Names, NotesBesideOwnFilesAreThoseOfTheScript) {
  const std::string path = places_.cache + "/m.gguf";
  write_text(path, "content");
  remember_digest(places_, path, sha256_of("content"));
  const std::string note = read_text(places_.cache + "/.m.gguf.verified");
  EXPECT_TRUE(note.starts_with("{\"sha256\":\"" + sha256_of("content") + "\",\"inode\":")) << note;
  EXPECT_TRUE(mentions(note, "\"bytes\":7,\"mtime_ns\":")) << note;
  EXPECT_EQ(known_digest(places_, path), sha256_of("content"));
  write_text(places_.cache + "/.m.gguf.verified", "{\"sha256\": \"" + sha256_of("x") + "\"}");
  EXPECT_EQ(known_digest(places_, path), std::nullopt);
  write_text(places_.cache + "/.m.gguf.verified", "not JSON");
  EXPECT_EQ(known_digest(places_, path), std::nullopt);
}

// Verifies names.status.
TEST_F(Names, ListShowsEveryPlace) {
  add_ollama(places_, kLibrary + "tiny/latest", tiny_gguf("llama"));
  add_ollama(places_, kLibrary + "junk/latest", "junk");
  set_ref(places_, kRepo, "main", kCommitA);
  add_hub(places_, kRepo, kCommitA, "A-Q8_0.gguf", tiny_gguf("qwen3"));
  add_hub(places_, kRepo, kCommitA, "B-Q8_0.gguf", tiny_gguf("qwen2"));
  add_hub(places_, "models--org--one", kCommitA, "x.gguf", tiny_gguf("gemma3"));
  const std::string own = places_.cache + "/ollama/" + kLibrary + "pulled/v1.gguf";
  write_text(own, tiny_gguf("llama"));
  ASSERT_TRUE(write_source(own, {"ollama:pulled:v1", "", {}, std::string(64, '0'), 1, 1}));
  write_text(places_.cache + "/byhand.gguf", tiny_gguf("llama"));
  const ModelList list = list_models(places_, catalogue_);
  std::vector<std::string> names;
  for (const ModelEntry& entry : list.models) {
    names.push_back(entry.name);
    const auto found = find(entry.name);
    EXPECT_TRUE(found && found->path == entry.path) << entry.name;
    EXPECT_EQ(entry.owned, mentions(entry.path, "/cache/")) << entry.name;
    if (entry.name == "junk:latest") {
      EXPECT_NE(entry.problem, "");
      continue;
    }
    EXPECT_EQ(entry.quantization, "Q4_K") << entry.name << entry.problem;
    EXPECT_EQ(entry.bytes, tiny_gguf(entry.architecture).size());
  }
  const std::vector<std::string> expected = {"junk:latest",
                                             "tiny:latest",
                                             "org/one",
                                             "hf:org/repo:A-Q8_0.gguf",
                                             "hf:org/repo:B-Q8_0.gguf",
                                             places_.cache + "/byhand.gguf",
                                             "pulled:v1"};
  EXPECT_EQ(names, expected);
  EXPECT_EQ(list.not_here.size(), catalogue_.models.size());
}

TEST_F(Names, RemoveTakesOnlyWhatIsOurs) {
  const std::string blob = add_ollama(places_, kLibrary + "tiny/latest", "one");
  set_ref(places_, kRepo, "main", kCommitA);
  const std::string hub = add_hub(places_, kRepo, kCommitA, "m.gguf", "two");
  write_text(folder_ / "mine.gguf", "three");
  const auto refused = [&](const std::string& name, const std::string& part) {
    const auto removed = remove_model(places_, catalogue_, name);
    ASSERT_FALSE(removed) << name;
    EXPECT_TRUE(mentions(removed.error().message, part)) << removed.error().message;
  };
  refused("tiny", "in the Ollama store");
  refused("org/repo", "in the Hugging Face cache");
  refused(folder_ / "mine.gguf", "a file of yours");
  refused(places_.cache + "/../mine.gguf", "does not exist");
  refused("nope", "no model is called");
  EXPECT_TRUE(is_file(blob) && is_file(hub) && is_file(folder_ / "mine.gguf"));
}

TEST_F(Names, RemoveTakesAllPartsAndNotes) {
  const std::string folder = hub_folder(places_, {"org", "big", "", ""}) + "/" + kCommitA;
  for (const std::string file : {"m-00001-of-00002.gguf", "m-00002-of-00002.gguf"}) {
    write_text(folder + "/" + file, file);
    ASSERT_TRUE(write_source(folder + "/" + file,
                             {"hf:x", kCommitA, {"main"}, std::string(64, '0'), 1, 1}));
    remember_digest(places_, folder + "/" + file, std::string(64, '0'));
  }
  write_text(places_.cache + "/other.gguf", "x");
  const auto removed = remove_model(places_, catalogue_, "org/big");
  ASSERT_TRUE(removed) << removed.error().message;
  EXPECT_EQ(removed->files.size(), 2u);
  EXPECT_EQ(removed->bytes, 42u);
  EXPECT_FALSE(std::filesystem::exists(places_.cache + "/hf"));
  EXPECT_TRUE(is_file(places_.cache + "/other.gguf"));
  const auto by_path = remove_model(places_, catalogue_, places_.cache + "/other.gguf");
  ASSERT_TRUE(by_path);
  EXPECT_TRUE(std::filesystem::exists(places_.cache));
}

TEST_F(Names, RemoveTakesADamagedCatalogueModel) {
  const std::string path = places_.cache + "/" + catalogue_.find("smollm2")->file;
  write_text(path, "short");
  ASSERT_TRUE(remove_model(places_, catalogue_, "smollm2"));
  EXPECT_FALSE(is_file(path));
}

}  // namespace
}  // namespace culet::resolve
