// Streams a text through a model and prints what it costs and how well it predicts, as one JSON
// object. bench/streaming.py runs the experiments of docs/streaming.md with it.
//
//   stream_bench MODEL.gguf TEXT --tokens 20000 --sinks 4 --window 1020
//   --tokens 0          all of the text
//   --skip N            leaves out the N tokens behind the first
//   --dense             a fixed context that holds everything, instead of a stream
//   --step N            tokens of one append (default 64)
//   --last              logits of the last token of each append only, as `culet run` has them
//   --tail N            also the surprisal of each of the last N tokens
//   --find TEXT         also the number of the token that ends the first TEXT
//   --nll FILE          writes the surprisal of every token, one a line
//   --recompute N       also, at N positions: the first token and the last sinks + window - 1 ones
//                       in a session of their own
//   --keys T --values T f32, f16, bf16, q8_0
//   --reference         also a session with f32 keys and values: mean KL of the distributions to it
//   --fork              also the time of forks at the end
//   --young N           also the time of a token at the end against one of a session that has seen
//   N
//                       tokens: 200 pairs of appends, in turns
//   --threads N --precise
#include "culet/culet.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <fstream>
#include <iostream>
#include <map>
#include <set>
#include <sstream>
#include <string>
#include <unistd.h>

namespace {

using culet::Session;
using culet::Token;
using Json = nlohmann::ordered_json;

[[noreturn]] void die(const std::string& why) {
  std::cerr << "stream_bench: " << why << "\n";
  std::exit(1);
}

template <class T>
T get(culet::Result<T> result) {
  if (!result) die(result.error().message);
  return *std::move(result);
}
void get(const culet::Result<void>& result) {
  if (!result) die(result.error().message);
}

double now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

int64_t resident_bytes() {
  std::ifstream statm("/proc/self/statm");
  int64_t all = 0, resident = 0;
  statm >> all >> resident;
  return resident * ::sysconf(_SC_PAGESIZE);
}

struct Options {
  std::map<std::string, std::string> values;
  std::set<std::string> flags;

  bool has(const std::string& name) const { return flags.count(name) > 0; }
  int64_t number(const std::string& name, int64_t otherwise) const {
    const auto at = values.find(name);
    return at == values.end() ? otherwise : std::atoll(at->second.c_str());
  }
  std::string text(const std::string& name) const {
    const auto at = values.find(name);
    return at == values.end() ? "" : at->second;
  }
  culet::KvType type(const std::string& name) const {
    static const std::map<std::string, culet::KvType> kTypes = {{"f32", culet::KvType::kF32},
                                                                {"f16", culet::KvType::kF16},
                                                                {"bf16", culet::KvType::kBf16},
                                                                {"q8_0", culet::KvType::kQ8}};
    const auto at = values.find(name);
    if (at == values.end()) return culet::KvType::kF16;
    if (kTypes.count(at->second) == 0) die("no such KV type: " + at->second);
    return kTypes.at(at->second);
  }
};

Options parse(int argc, char** argv) {
  const std::set<std::string> kFlags = {"dense", "precise", "reference", "fork", "last"};
  Options options;
  for (int i = 3; i < argc; ++i) {
    std::string name = argv[i];
    if (name.rfind("--", 0) != 0) die("not an option: " + name);
    name.erase(0, 2);
    if (kFlags.count(name) > 0)
      options.flags.insert(name);
    else if (i + 1 < argc)
      options.values[name] = argv[++i];
    else
      die("--" + name + " needs a value");
  }
  return options;
}

// The number of the token with which `text` has come for the first time, -1 if it never has.
int64_t token_that_ends(const culet::Model& model, std::span<const Token> tokens,
                        const std::string& text) {
  std::string so_far;
  for (size_t i = 0; i < tokens.size(); ++i) {
    const size_t before = so_far.size();
    so_far += model.vocabulary().piece(tokens[i]);
    if (so_far.find(text, before - std::min(before, text.size())) != std::string::npos)
      return static_cast<int64_t>(i);
  }
  return -1;
}

double nll_of(std::span<const float> logits, Token id) {
  const double max = *std::max_element(logits.begin(), logits.end());
  double sum = 0;
  for (const float x : logits) sum += std::exp(static_cast<double>(x) - max);
  return max + std::log(sum) - static_cast<double>(logits[static_cast<size_t>(id)]);
}

double kl_of(std::span<const float> from, std::span<const float> to) {
  const double a = *std::max_element(from.begin(), from.end());
  const double b = *std::max_element(to.begin(), to.end());
  double za = 0, zb = 0, sum = 0;
  for (size_t i = 0; i < from.size(); ++i) {
    const double pa = std::exp(static_cast<double>(from[i]) - a);
    za += pa, zb += std::exp(static_cast<double>(to[i]) - b);
    sum += pa * ((static_cast<double>(from[i]) - a) - (static_cast<double>(to[i]) - b));
  }
  return sum / za - std::log(za) + std::log(zb);
}

// A block of a thousand tokens.
struct Block {
  double nll = 0, kl = 0, seconds = 0;
  int64_t tokens = 0, predicted = 0, resident = 0;
};

}  // namespace

int main(int argc, char** argv) {
  if (argc < 3) die("usage: stream_bench MODEL.gguf TEXT [options]; see the top of its source");
  const Options options = parse(argc, argv);
  culet::ModelOptions load;
  load.threads = static_cast<int>(options.number("threads", 0));
  load.precise = options.has("precise");
  const auto model = get(culet::Model::load(argv[1], load));
  std::ostringstream text;
  text << std::ifstream(argv[2]).rdbuf();
  std::vector<Token> tokens = get(model->vocabulary().tokenize(text.str(), {.end = false}));
  const int64_t skipped = options.number("skip", 0);
  if (skipped > 0) {
    if (static_cast<int64_t>(tokens.size()) <= skipped) die("the text is too short");
    tokens.erase(tokens.begin() + 1, tokens.begin() + 1 + skipped);
  }
  int64_t wanted = options.number("tokens", 20000);
  if (wanted == 0) wanted = static_cast<int64_t>(tokens.size());
  if (static_cast<int64_t>(tokens.size()) < wanted) die("the text is too short");
  tokens.resize(static_cast<size_t>(wanted));

  culet::SessionOptions session_options;
  session_options.keys = options.type("keys");
  session_options.values = options.type("values");
  const culet::StreamOptions stream{options.number("sinks", 4), options.number("window", 1020)};
  if (options.has("dense"))
    session_options.context = wanted;
  else
    session_options.stream = stream;
  const auto session = get(Session::make(model, session_options));
  culet::SessionOptions reference_options = session_options;
  reference_options.keys = reference_options.values = culet::KvType::kF32;
  std::unique_ptr<Session> reference;
  if (options.has("reference")) reference = get(Session::make(model, reference_options));

  std::vector<Block> blocks;
  std::vector<double> nll(tokens.size(), 0);
  std::vector<std::vector<float>> exact;
  const auto step = static_cast<size_t>(options.number("step", 64));
  const auto tail = static_cast<size_t>(options.number("tail", 0));
  if (options.has("last") && reference) die("--reference needs the logits of every token");
  for (size_t at = 0; at < tokens.size();) {
    const size_t n = std::min({step, tokens.size() - at, 1000 - at % 1000});
    if (at % 1000 == 0) blocks.emplace_back();
    Block& block = blocks.back();
    const auto chunk = std::span(tokens).subspan(at, n);
    if (reference) {
      exact.clear();
      get(reference->append_each(chunk, [&](int64_t, std::span<const float> logits) {
        exact.emplace_back(logits.begin(), logits.end());
      }));
    }
    double reading = 0;
    const double start = now();
    const auto read = [&](int64_t index, std::span<const float> logits) {
      const double before = now();
      const auto next = static_cast<size_t>(index) + 1;
      if (next < tokens.size()) {
        block.nll += nll[next] = nll_of(logits, tokens[next]);
        ++block.predicted;
      }
      if (reference) block.kl += kl_of(exact[static_cast<size_t>(index) - at], logits);
      reading += now() - before;
    };
    if (options.has("last") && at + n + tail <= tokens.size()) {
      get(session->append(chunk));
      read(static_cast<int64_t>(at + n) - 1, session->logits());
    } else {
      get(session->append_each(chunk, read));
    }
    block.seconds += now() - start - reading;
    block.tokens += static_cast<int64_t>(n);
    block.resident = resident_bytes();
    at += n;
  }

  Json result{{"model", argv[1]}, {"tokens", wanted}, {"evicted", session->evicted()}};
  if (!options.has("dense"))
    result.update({{"sinks", session->options().stream->sinks},
                   {"window", session->options().stream->window}});
  double sum = 0, kl = 0;
  int64_t predicted = 0;
  Json list = Json::array();
  for (const Block& block : blocks) {
    sum += block.nll, kl += block.kl, predicted += block.predicted;
    const auto n = static_cast<double>(block.tokens);
    list.push_back({{"nll", block.nll / static_cast<double>(std::max<int64_t>(block.predicted, 1))},
                    {"ms_per_token", 1000 * block.seconds / n},
                    {"resident_bytes", block.resident}});
  }
  result["mean_nll"] = sum / static_cast<double>(predicted);
  if (reference) result["mean_kl"] = kl / static_cast<double>(wanted);
  result["session_bytes"] = session->memory().own + session->memory().shared;
  const auto memory = get(culet::context_memory(*model, session->options()));
  result["payload_bytes"] = memory.payload;
  result["allocated_bytes"] = memory.allocated;
  result["blocks"] = list;
  for (size_t i = tokens.size() - std::min(tail, tokens.size()); i < tokens.size(); ++i)
    result["tail"].push_back({{"token", model->vocabulary().piece(tokens[i])}, {"nll", nll[i]}});
  if (const std::string text_to_find = options.text("find"); !text_to_find.empty())
    result["found"] = token_that_ends(*model, tokens, text_to_find);
  if (const std::string path = options.text("nll"); !path.empty()) {
    std::ofstream out(path);
    for (const double x : nll) out << fmt::format("{:.5f}\n", x);
  }

  if (options.has("fork")) {
    std::vector<double> times;
    for (int i = 0; i < 101; ++i) {
      const double start = now();
      const auto fork = session->fork();
      times.push_back(1e6 * (now() - start));
    }
    std::sort(times.begin(), times.end());
    result["fork_microseconds"] = {{"median", times[50]}, {"most", times[100]}};
  }

  if (const int64_t seen = options.number("young", 0); seen > 0) {
    const auto young = get(Session::make(model, session_options));
    get(young->append(std::span(tokens).first(static_cast<size_t>(seen))));
    std::vector<double> old_times, young_times, ratios;
    const auto time_of = [&](Session& s) {
      const auto chunk = std::span(tokens).subspan(static_cast<size_t>(seen), step);
      const double start = now();
      get(s.append(chunk));
      return 1000 * (now() - start) / static_cast<double>(chunk.size());
    };
    for (int i = 0; i < 200; ++i) {
      young_times.push_back(time_of(*young));
      old_times.push_back(time_of(*session));
      ratios.push_back(old_times.back() / young_times.back());
    }
    for (auto* times : {&old_times, &young_times, &ratios}) std::sort(times->begin(), times->end());
    result["young"] = {{"tokens", seen},
                       {"ms_per_token", young_times[100]},
                       {"ms_per_token_at_the_end", old_times[100]},
                       {"ratio", ratios[100]},
                       {"quartiles", {ratios[50], ratios[150]}}};
  }

  if (const int64_t count = options.number("recompute", 0); count > 0) {
    const int64_t seen = stream.sinks + stream.window;
    double streamed = 0, recomputed = 0;
    const auto fresh = get(Session::make(
        model, {.context = seen, .keys = session_options.keys, .values = session_options.values}));
    for (int64_t i = 0; i < count; ++i) {
      const int64_t last = 2 * seen + i * (wanted - 2 - 2 * seen) / count;  // the last one seen
      std::vector<Token> part(tokens.begin() + (last - seen + 1), tokens.begin() + last + 1);
      part[0] = tokens[0];
      fresh->clear();
      get(fresh->append(part));
      const auto next = static_cast<size_t>(last) + 1;
      const double here = nll_of(fresh->logits(), tokens[next]);
      recomputed += here;
      streamed += nll[next];
      result["at"].push_back(
          {{"token", next}, {"streamed_nll", nll[next]}, {"recomputed_nll", here}});
    }
    result["positions"] = count;
    result["streamed_nll"] = streamed / static_cast<double>(count);
    result["recomputed_nll"] = recomputed / static_cast<double>(count);
  }
  std::cout << result.dump(1) << "\n";
  return 0;
}
