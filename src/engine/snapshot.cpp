// A session's memory as bytes, and back (docs/formats/snapshot.md).
//
// A snapshot says what it fits: model, architecture text, KV types, cache windows. Everything is
// read into a timeline of its own; the session takes it over only when the checksum at the end is
// right.
#include "base/check.h"
#include "base/digest_cache.h"
#include "base/json.h"
#include "base/new_file.h"
#include "base/sha256.h"
#include "base/user_folders.h"
#include "culet/session.h"
#include "engine/session_impl.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <new>
#include <system_error>
#include <utility>

namespace culet {
namespace engine {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::string_view kMagic = "culetkv\n";
// 2: q8_0 keys are Hadamard-rotated (docs/decisions/0009). 3: the header's `stream` names its
// sinks.
constexpr uint32_t kVersion = 3;
constexpr uint32_t kMostHeader = 1 << 16;
constexpr size_t kSumBytes = 64;  // hexadecimal digits
constexpr int64_t kMostLength = int64_t{1} << 40;

// What must be the same for a snapshot to fit, in the order in which it is told.
Json binding_of(const SessionImpl& session, const std::vector<std::string>& digests) {
  const SessionOptions& o = session.options();
  const auto window = o.window_types.value_or(std::pair(o.keys, o.values));
  Json stream;
  if (o.stream) stream = {{"sinks", o.stream->sinks}, {"window", o.stream->window}};
  const model::LoadedModel& loaded = session.model_impl().loaded();
  Json binding = {{"model", digests},
                  {"architecture", loaded.compiled.plan.source_sha256},
                  {"precise", session.model()->info().precise},
                  {"keys", kv_type_name(o.keys)},
                  {"values", kv_type_name(o.values)},
                  {"window_keys", kv_type_name(window.first)},
                  {"window_values", kv_type_name(window.second)},
                  {"stream", stream},
                  {"start", o.start_position}};
  if (!loaded.compiled.plan.no_stream.empty()) binding["context"] = loaded.context;
  return binding;
}

template <class T>
std::span<const std::byte> bytes_of(const T& value) {
  return std::as_bytes(std::span(&value, 1));
}

tl::unexpected<Error> bad(std::string why) {
  return fail(ErrorCode::kCorrupt, "the snapshot cannot be used: " + std::move(why));
}
tl::unexpected<Error> cut() { return bad("it is cut short or damaged; save it again"); }

// Counts down what is left, so that no number in the file can ask for more.
class Reader {
 public:
  Reader(uint64_t size, const cache::Source& source) : left_(size), source_(source) {}

  bool read(std::span<std::byte> out) {
    if (out.empty()) return true;
    if (out.size() > left_ || !source_(out)) return false;
    left_ -= out.size();
    sum_.update(out);
    return true;
  }
  template <class T>
  bool number(T* out) {
    return read(std::as_writable_bytes(std::span(out, 1)));
  }
  template <class T>
  bool numbers(int64_t count, std::vector<T>* out) {
    if (count < 0 || static_cast<uint64_t>(count) > left_ / sizeof(T)) return false;
    for (auto left = static_cast<size_t>(count); left > 0;) {
      const size_t there = out->size(), more = std::min(left, kPiece);
      out->resize(there + more);
      if (!read(std::as_writable_bytes(std::span(*out).subspan(there)))) return false;
      left -= more;
    }
    return true;
  }
  // What follows must be the sum of everything before, and the end.
  bool ends() {
    std::string sum(kSumBytes, ' ');
    return left_ == kSumBytes &&
           source_(std::as_writable_bytes(std::span(sum.data(), sum.size()))) && sum == sum_.hex();
  }

 private:
  // Memory grows with what is there, not with what is announced.
  static constexpr size_t kPiece = 1 << 20;

  uint64_t left_;
  const cache::Source& source_;
  base::Sha256 sum_;
};

Result<Json> read_header(Reader* reader) {
  char magic[kMagic.size()] = {};
  uint32_t version = 0, size = 0;
  if (!reader->read(std::as_writable_bytes(std::span(magic))) ||
      std::string_view(magic, sizeof magic) != kMagic)
    return bad("it does not begin like a snapshot; use a file that --save has written");
  if (!reader->number(&version) || !reader->number(&size)) return cut();
  if (version != kVersion) {
    return fail(
        ErrorCode::kUnsupported,
        fmt::format("the snapshot has format version {}, this culet reads {}; save it again",
                    version, kVersion));
  }
  std::vector<char> text;
  if (size > kMostHeader || !reader->numbers(size, &text)) return cut();
  auto header = base::parse_json({text.data(), text.size()});
  if (!header || !header->is_object()) return cut();
  return header;
}

Result<void> check_binding(const Json& header, const Json& expected) {
  for (const auto& [key, value] : expected.items()) {
    const auto found = header.find(key);
    if (found == header.end()) return cut();
    if (*found == value) continue;
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("the snapshot does not fit this session: its '{}' is {}, but here it "
                            "is {}; use the same model and options as when it was saved",
                            key, base::dump_json(*found), base::dump_json(value)));
  }
  return {};
}

// A whole number of the header from 0 to `most`; -1: there is none.
int64_t count(const Json& header, const char* key, int64_t most) {
  const auto found = header.find(key);
  if (found == header.end() || !found->is_number_integer()) return -1;
  const auto n = found->is_number_unsigned()
                     ? static_cast<int64_t>(std::min<uint64_t>(found->get<uint64_t>(), INT64_MAX))
                     : found->get<int64_t>();
  return n < 0 || n > most ? -1 : n;
}

Result<History> read_history(const SessionImpl& session, const Json& header, Reader* reader) {
  const int64_t length = count(header, "length", kMostLength);
  const int64_t forgotten = count(header, "forgotten", length);
  const auto digest = header.find("digest");
  if (length < 0 || forgotten < 0 || digest == header.end() || !digest->is_string()) return cut();
  if (length > session.context()) {
    return fail(ErrorCode::kExhausted,
                fmt::format("the snapshot has {} tokens, the context holds {}; use a larger one",
                            length, session.context()));
  }
  if (forgotten > 0 && !session.options().stream) return cut();
  std::vector<Token> tokens;
  if (!reader->numbers(length - forgotten, &tokens)) return cut();
  const int64_t vocabulary = session.model()->info().vocabulary_size;
  for (const Token token : tokens)
    if (token < 0 || token >= vocabulary) return cut();
  auto history = History::restored(forgotten, digest->get<std::string>(), std::move(tokens));
  if (!history) return cut();
  return std::move(*history);
}

// The bytes of a snapshot (docs/formats/snapshot.md); `digests`: sha256 of the model's files.
Result<void> write_snapshot(const SessionImpl& session, const std::vector<std::string>& digests,
                            const cache::Sink& sink) {
  const Timeline timeline = session.settled();
  Json header = binding_of(session, digests);
  header["length"] = session.length();
  header["forgotten"] = timeline.history.forgotten();
  header["digest"] = timeline.history.digest();
  header["logits"] = session.logits().size();
  const std::string text = base::dump_json(header);
  base::Sha256 sum;
  const auto put = [&](std::span<const std::byte> bytes) {
    if (bytes.empty()) return true;
    sum.update(bytes);
    return sink(bytes);
  };
  const bool done = put(std::as_bytes(std::span(kMagic))) && put(bytes_of(kVersion)) &&
                    put(bytes_of(static_cast<uint32_t>(text.size()))) &&
                    put(std::as_bytes(std::span(text))) &&
                    put(std::as_bytes(timeline.history.kept())) &&
                    put(std::as_bytes(session.logits())) && timeline.caches.save(put);
  const std::string hex = sum.hex();
  if (!done || !sink(std::as_bytes(std::span(hex))))
    return fail(ErrorCode::kIo, "the snapshot could not be written");
  return {};
}

// The timeline in `size` bytes of a snapshot, if it fits the session.
Result<Timeline> read_snapshot(const SessionImpl& session, const std::vector<std::string>& digests,
                               uint64_t size, const cache::Source& source) {
  Reader reader(size, source);
  CULET_TRY(const Json header, read_header(&reader));
  CULET_TRY_VOID(check_binding(header, binding_of(session, digests)));
  CULET_TRY(History history, read_history(session, header, &reader));
  const int64_t vocabulary = session.model()->info().vocabulary_size;
  const int64_t logits = count(header, "logits", vocabulary);
  std::vector<float> values;
  if ((logits != 0 && logits != vocabulary) || !reader.numbers(logits, &values)) return cut();
  CULET_TRY(auto caches, make_caches(session.model_impl(), session.options()));
  const auto loaded = caches->load(session.options().start_position + history.length(),
                                   [&](std::span<std::byte> out) { return reader.read(out); });
  if (!loaded && loaded.error().code == ErrorCode::kCorrupt) return bad(loaded.error().message);
  if (!loaded) return tl::unexpected(loaded.error());
  if (!reader.ends()) return cut();
  Timeline timeline{std::move(*caches), std::move(history), {}};
  if (!values.empty() && !timeline.logits.set(*session.model_impl().loaded().memory, values))
    return fail(ErrorCode::kExhausted, "there is no memory for its logits");
  return timeline;
}

// Of all the model's files; remembered in culet's cache folder, as culet show remembers them.
Result<std::vector<std::string>> digests_of(const SessionImpl& session) {
  const base::DigestCache cache(base::culet_cache(base::environment()));
  return cache.sums(session.model_impl().loaded().file.paths());
}

// ---------------------------------------------------------------- files

struct Close {
  void operator()(std::FILE* file) const { std::fclose(file); }
};
using File = std::unique_ptr<std::FILE, Close>;

tl::unexpected<Error> io_error(const std::string& path, const char* what) {
  return fail(ErrorCode::kIo,
              fmt::format("{}: {}: {}", path, what, std::system_category().message(errno)));
}

struct OpenSnapshot {
  File file;
  uint64_t bytes;
};

Result<OpenSnapshot> open_snapshot(const std::string& path) {
  std::error_code unknown;
  const uintmax_t size = std::filesystem::file_size(path, unknown);
  File file(unknown ? nullptr : std::fopen(path.c_str(), "rb"));
  if (file) return OpenSnapshot{std::move(file), size};
  errno = unknown ? unknown.value() : errno;
  return io_error(path, "cannot be read");
}

}  // namespace
}  // namespace engine

Result<void> Session::save(const SnapshotSink& sink) const {
  CULET_TRY(const std::vector<std::string> digests, engine::digests_of(*impl_));
  Result<void> taken;
  const auto written =
      engine::write_snapshot(*impl_, digests, [&](std::span<const std::byte> bytes) {
        taken = sink(bytes);
        return taken.has_value();
      });
  return taken ? written : taken;
}

Result<std::vector<std::byte>> Session::snapshot() const {
  std::vector<std::byte> bytes;
  const auto keep = [&bytes](std::span<const std::byte> more) -> Result<void> {
    try {
      bytes.insert(bytes.end(), more.begin(), more.end());
    } catch (const std::bad_alloc&) {
      return fail(ErrorCode::kExhausted, "there is not enough memory for a snapshot");
    }
    return {};
  };
  CULET_TRY_VOID(save(keep));
  return bytes;
}

Result<void> Session::save(const std::string& path, const ProgressFn& progress) const {
  CULET_TRY(base::NewFile file, base::NewFile::create(path));
  const SessionMemory held = memory();
  const uint64_t total = held.own + held.shared;
  const auto write = [&](std::span<const std::byte> bytes) -> Result<void> {
    CULET_TRY_VOID(file.write(bytes));
    const auto done = static_cast<uint64_t>(file.bytes());
    if (!progress || progress({"saving", std::min(done, total), total, path})) return {};
    return fail(ErrorCode::kCancelled, "stopped on request");
  };
  CULET_TRY_VOID(save(write));
  return file.commit();
}

Result<void> Session::restore(uint64_t bytes, const SnapshotSource& source) {
  CULET_TRY(const std::vector<std::string> digests, engine::digests_of(*impl_));
  Result<void> given;
  auto timeline = engine::read_snapshot(*impl_, digests, bytes, [&](std::span<std::byte> out) {
    given = source(out);
    return given.has_value();
  });
  if (!given) return given;
  if (!timeline) return tl::unexpected(timeline.error());
  impl_->timeline() = std::move(*timeline);
  return {};
}

Result<void> Session::restore(std::span<const std::byte> snapshot) {
  size_t at = 0;
  return restore(snapshot.size(), [&](std::span<std::byte> out) -> Result<void> {
    std::memcpy(out.data(), snapshot.data() + at, out.size());
    at += out.size();
    return {};
  });
}

Result<void> Session::restore(const std::string& path, const ProgressFn& progress) {
  CULET_TRY(const auto opened, engine::open_snapshot(path));
  std::FILE* const file = opened.file.get();
  const uint64_t size = opened.bytes;
  uint64_t done = 0;
  auto restored = restore(size, [&](std::span<std::byte> out) -> Result<void> {
    if (std::fread(out.data(), 1, out.size(), file) != out.size())
      return fail(ErrorCode::kCorrupt, "it was cut while it was read");
    done += out.size();
    if (!progress || progress({"restoring", done, size, path})) return {};
    return fail(ErrorCode::kCancelled, "stopped on request");
  });
  if (restored || restored.error().code == ErrorCode::kCancelled) return restored;
  return fail(restored.error().code, fmt::format("{}: {}", path, restored.error().message));
}

Result<int64_t> snapshot_length(const std::string& path) {
  CULET_TRY(const engine::OpenSnapshot opened, engine::open_snapshot(path));
  const cache::Source read = [&](std::span<std::byte> out) {
    return std::fread(out.data(), 1, out.size(), opened.file.get()) == out.size();
  };
  engine::Reader reader(opened.bytes, read);
  const auto header = engine::read_header(&reader);
  const int64_t length = header ? engine::count(*header, "length", engine::kMostLength) : -1;
  if (length >= 0) return length;
  const Error error = header ? engine::cut().value() : header.error();
  return fail(error.code, fmt::format("{}: {}", path, error.message));
}

}  // namespace culet
