// Takes a request, gives the answer's bytes or one sentence. Redirects are followed here, not by
// libcurl, because each step has rules of its own (http.h). A download continues at the length of
// its part file: with If-Range when the server gave a strong ETag, so that a changed file starts
// anew; the caller's sha256 decides in the end. Failures that may pass (a cut or silent connection,
// 429, 5xx) are tried again after a pause, and progress resets their count.
#include "resolve/http.h"

#include "base/files.h"
#include "base/json.h"
#include "base/os_error.h"
#include "resolve/disk.h"
#include "resolve/fields.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <curl/curl.h>
#include <fcntl.h>
#include <mutex>
#include <optional>
#include <span>
#include <thread>
#include <unistd.h>

namespace culet::resolve {
namespace {

constexpr int kRedirects = 8;
constexpr size_t kHeaderBytes = 256 << 10;
constexpr uint64_t kErrorBodyBytes = 1 << 20;  // of an answer that nobody reads
constexpr uint64_t kProgressBytes = 64 << 10;  // that make an attempt worth another
constexpr int kMostRounds = 10'000;

struct Answer {
  long status = 0;
  std::string url, type, etag, location, content_range;
  long retry_after = 0;
  CURLcode code = CURLE_OK;
  bool headers_too_long = false;
};

bool is_redirect(long status) {
  return status == 301 || status == 302 || status == 303 || status == 307 || status == 308;
}

std::string_view trimmed(std::string_view text) {
  while (!text.empty() && uint8_t(text.front()) <= ' ') text.remove_prefix(1);
  while (!text.empty() && uint8_t(text.back()) <= ' ') text.remove_suffix(1);
  return text;
}

// One that proves equality byte for byte, and can be sent back as it is.
bool is_strong_etag(const std::string& etag) {
  return etag.size() >= 2 && etag.size() <= 256 && etag.front() == '"' && etag.back() == '"' &&
         std::all_of(etag.begin(), etag.end(), [](char c) { return c >= ' ' && c <= '~'; });
}

// Why a transfer failed, in our words: libcurl's may quote the server.
std::string_view reason_of(CURLcode code) {
  switch (code) {
    case CURLE_COULDNT_RESOLVE_PROXY:
      return "the proxy's name is not known";
    case CURLE_COULDNT_RESOLVE_HOST:
      return "its name is not known (is this machine online?)";
    case CURLE_COULDNT_CONNECT:
      return "it cannot be reached";
    case CURLE_OPERATION_TIMEDOUT:
      return "it does not answer, or stopped sending";
    case CURLE_PARTIAL_FILE:
    case CURLE_GOT_NOTHING:
    case CURLE_RECV_ERROR:
    case CURLE_SEND_ERROR:
      return "the connection was cut";
    case CURLE_PEER_FAILED_VERIFICATION:
    case CURLE_SSL_CACERT_BADFILE:
      return "its certificate is not trusted (for certificates of your own set SSL_CERT_FILE)";
    case CURLE_SSL_CONNECT_ERROR:
      return "no secure connection could be made";
    default:
      return curl_easy_strerror(code);  // fixed texts
  }
}

bool may_pass(CURLcode code) {
  switch (code) {
    case CURLE_PEER_FAILED_VERIFICATION:
    case CURLE_SSL_CACERT_BADFILE:
    case CURLE_UNSUPPORTED_PROTOCOL:
    case CURLE_URL_MALFORMAT:
    case CURLE_OUT_OF_MEMORY:
      return false;
    default:
      return true;
  }
}

bool may_pass(long status) {
  return status == 408 || status == 429 || (status >= 500 && status <= 504 && status != 501);
}

// What an attempt came to: done, or an error that may pass or not.
struct Outcome {
  std::optional<Error> error;
  bool again = false;
  long wait_seconds = 0;  // that the server asked for

  static Outcome final(Error error) { return {std::move(error), false, 0}; }
  static Outcome passing(Error error) { return {std::move(error), true, 0}; }
};

Outcome status_outcome(const Answer& answer, const HttpRequest& request) {
  const std::string url = shown_url(request.url);
  const long status = answer.status;
  if (status == 404 || status == 410) {
    return Outcome::final(
        {ErrorCode::kNotFound,
         fmt::format("{} is not there (the server answered {}); check the name", url, status)});
  }
  if (status == 401 || status == 403) {
    return Outcome::final({ErrorCode::kIo, fmt::format("{} may not be read (the server answered "
                                                       "{}); {}",
                                                       url, status, request.login_hint)});
  }
  if (status == 429) {
    return {Error{ErrorCode::kExhausted,
                  fmt::format("the server of {} asks to come later (429, too many requests); run "
                              "the same command again in {}",
                              url,
                              answer.retry_after > 0 ? fmt::format("{} seconds", answer.retry_after)
                                                     : "a while")},
            true, answer.retry_after};
  }
  Error error{ErrorCode::kIo,
              fmt::format("the server of {} answered {}; try again later", url, status)};
  return {std::move(error), may_pass(status), answer.retry_after};
}

}  // namespace

// ---------------------------------------------------------------- one exchange

namespace {

// The answer's bytes; false ends the exchange.
using Sink = std::function<bool(const Answer&, std::span<const char>)>;

struct Exchange {
  Answer answer;
  const Sink* sink = nullptr;
  const std::function<bool()>* tick = nullptr;
  size_t header_bytes = 0;
  bool cancelled = false;
};

void take_header(std::string_view line, Answer* answer) {
  if (line.starts_with("HTTP/")) {  // after "100 Continue" a second one
    *answer = Answer{};
    return;
  }
  const size_t colon = line.find(':');
  if (colon == line.npos) return;
  const std::string name = lower(line.substr(0, colon));
  const std::string value(trimmed(line.substr(colon + 1)));
  if (name == "etag") answer->etag = value;
  if (name == "location") answer->location = value;
  if (name == "content-range") answer->content_range = value;
  if (name == "content-type") answer->type = lower(trimmed(value.substr(0, value.find(';'))));
}

size_t on_header(char* data, size_t size, size_t count, void* context) {
  auto* exchange = static_cast<Exchange*>(context);
  exchange->header_bytes += size * count;
  if (exchange->header_bytes > kHeaderBytes) {
    exchange->answer.headers_too_long = true;
    return 0;
  }
  take_header({data, size * count}, &exchange->answer);
  return size * count;
}

struct Transfer {
  CURL* curl;
  Exchange exchange;
};

size_t on_body(char* data, size_t size, size_t count, void* context) {
  auto* transfer = static_cast<Transfer*>(context);
  Exchange& exchange = transfer->exchange;
  curl_easy_getinfo(transfer->curl, CURLINFO_RESPONSE_CODE, &exchange.answer.status);
  const bool more = (*exchange.sink)(exchange.answer, {data, size * count});
  return more ? size * count : 0;
}

int on_progress(void* context, curl_off_t, curl_off_t, curl_off_t, curl_off_t) {
  auto* transfer = static_cast<Transfer*>(context);
  transfer->exchange.cancelled = !(*transfer->exchange.tick)();
  return transfer->exchange.cancelled ? 1 : 0;
}

struct List {
  curl_slist* items = nullptr;
  ~List() { curl_slist_free_all(items); }
  void add(const std::string& line) {
    if (curl_slist* longer = curl_slist_append(items, line.c_str())) items = longer;
  }
};

}  // namespace

class Http::Impl {
 public:
  Impl(HttpSettings settings, HttpTick tick)
      : settings_(std::move(settings)), tick_(std::move(tick)) {
    curl_global_init(CURL_GLOBAL_DEFAULT);
    curl_ = curl_easy_init();
  }
  ~Impl() {
    curl_easy_cleanup(curl_);
    curl_global_cleanup();
  }

  Result<HttpDocument> get(const HttpRequest& request, uint64_t limit);
  Result<void> download(const HttpRequest& request, const HttpTarget& target);

 private:
  class Part;

  bool tick() { return !tick_ || tick_(done_, total_); }
  Answer exchange(const std::string& url, const List& headers, long seconds, const Sink& sink,
                  bool* cancelled);
  Result<Answer> follow(const HttpRequest& request, const std::vector<std::string>& more,
                        long seconds, const Sink& sink);
  Outcome failed_transfer(const Answer& answer, const HttpRequest& request) const;
  Outcome get_once(const HttpRequest& request, uint64_t limit, HttpDocument* document);
  Outcome download_once(const HttpRequest& request, const HttpTarget& target, Part* part);
  Outcome after_download(const HttpRequest& request, const HttpTarget& target, const Answer& answer,
                         Part* part);
  Result<void> pause(const Outcome& outcome, int failures);

  HttpSettings settings_;
  HttpTick tick_;
  CURL* curl_ = nullptr;
  uint64_t done_ = 0, total_ = 0;
};

Answer Http::Impl::exchange(const std::string& url, const List& headers, long seconds,
                            const Sink& sink, bool* cancelled) {
  const std::function<bool()> tick = [this] { return this->tick(); };
  Transfer transfer{curl_, {}};
  transfer.exchange.sink = &sink;
  transfer.exchange.tick = &tick;
  curl_easy_reset(curl_);
  const auto set = [this](CURLoption option, auto value) {
    curl_easy_setopt(curl_, option, value);
  };
  set(CURLOPT_URL, url.c_str());
  set(CURLOPT_HTTPHEADER, headers.items);
  set(CURLOPT_USERAGENT, "culet");
  set(CURLOPT_PROTOCOLS_STR, "http,https");
  set(CURLOPT_SSLVERSION, long(CURL_SSLVERSION_TLSv1_2));
  set(CURLOPT_FOLLOWLOCATION, 0L);
  set(CURLOPT_NOSIGNAL, 1L);
  set(CURLOPT_SUPPRESS_CONNECT_HEADERS, 1L);
  set(CURLOPT_CONNECTTIMEOUT, long(settings_.connect_seconds));
  set(CURLOPT_LOW_SPEED_LIMIT, 1L);
  set(CURLOPT_LOW_SPEED_TIME, long(settings_.stall_seconds));
  set(CURLOPT_TIMEOUT, seconds);
  set(CURLOPT_BUFFERSIZE, 256L << 10);
  if (!settings_.ca_file.empty()) set(CURLOPT_CAINFO, settings_.ca_file.c_str());
  set(CURLOPT_HEADERFUNCTION, on_header);
  set(CURLOPT_HEADERDATA, static_cast<void*>(&transfer.exchange));
  set(CURLOPT_WRITEFUNCTION, on_body);
  set(CURLOPT_WRITEDATA, static_cast<void*>(&transfer));
  set(CURLOPT_NOPROGRESS, 0L);
  set(CURLOPT_XFERINFOFUNCTION, on_progress);
  set(CURLOPT_XFERINFODATA, static_cast<void*>(&transfer));

  Answer& answer = transfer.exchange.answer;
  const CURLcode code = curl_easy_perform(curl_);
  answer.code = code;
  answer.url = url;
  curl_easy_getinfo(curl_, CURLINFO_RESPONSE_CODE, &answer.status);
  curl_off_t wait = 0;
  curl_easy_getinfo(curl_, CURLINFO_RETRY_AFTER, &wait);
  answer.retry_after = long(std::clamp<curl_off_t>(wait, 0, 1'000'000));
  *cancelled = transfer.exchange.cancelled;
  return answer;
}

// Errors: kCancelled, and addresses that are refused.
Result<Answer> Http::Impl::follow(const HttpRequest& request, const std::vector<std::string>& more,
                                  long seconds, const Sink& sink) {
  std::string url = request.url;
  const std::string login = take_login(&url);
  const std::string authorization = request.authorization.empty() ? login : request.authorization;
  const std::string home = origin_of(url);
  for (int hop = 0; hop <= kRedirects; ++hop) {
    CULET_TRY_VOID(check_url(url));
    List headers;
    for (const std::string& line : request.headers) headers.add(line);
    for (const std::string& line : more) headers.add(line);
    if (!authorization.empty() && origin_of(url) == home) {
      headers.add("Authorization: " + authorization);
    }
    bool cancelled = false;
    Answer answer = exchange(url, headers, seconds, sink, &cancelled);
    if (cancelled) return fail(ErrorCode::kCancelled, "the download was stopped");
    if (!is_redirect(answer.status) || answer.code != CURLE_OK) return answer;
    CULET_TRY(url, next_address(url, answer.location));
  }
  return fail(ErrorCode::kIo,
              fmt::format("the server of {} redirects more than {} times; use another source",
                          shown_url(request.url), kRedirects));
}

Outcome Http::Impl::failed_transfer(const Answer& answer, const HttpRequest& request) const {
  if (answer.headers_too_long) {
    return Outcome::final(
        {ErrorCode::kCorrupt,
         fmt::format("the server of {} answered with headers of more than {}; use "
                     "another source",
                     shown_url(request.url), in_words(kHeaderBytes))});
  }
  Error error{ErrorCode::kIo,
              fmt::format("{} could not be fetched: {}; run the same command again to continue",
                          shown_url(request.url), reason_of(answer.code))};
  return {std::move(error), may_pass(answer.code), 0};
}

Result<void> Http::Impl::pause(const Outcome& outcome, int failures) {
  if (outcome.wait_seconds > settings_.longest_wait_seconds) return tl::unexpected(*outcome.error);
  const auto planned = std::chrono::milliseconds(int64_t{settings_.pause_ms} * failures);
  const auto end =
      std::chrono::steady_clock::now() +
      std::max<std::chrono::milliseconds>(planned, std::chrono::seconds(outcome.wait_seconds));
  while (std::chrono::steady_clock::now() < end) {
    if (!tick()) return fail(ErrorCode::kCancelled, "the download was stopped");
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  return {};
}

// ---------------------------------------------------------------- documents

Outcome Http::Impl::get_once(const HttpRequest& request, uint64_t limit, HttpDocument* document) {
  document->body.clear();
  bool too_long = false;
  const auto sink = [&](const Answer& answer, std::span<const char> bytes) {
    const uint64_t most = answer.status == 200 ? limit : kErrorBodyBytes;
    too_long = document->body.size() + bytes.size() > most;
    if (!too_long) document->body.append(bytes.data(), bytes.size());
    return !too_long;
  };
  // Each hop of a redirect has a body too; none is longer than an error's.
  const auto clearing = [&](const Answer& answer, std::span<const char> bytes) {
    if (is_redirect(answer.status)) return bytes.size() <= kErrorBodyBytes;
    return sink(answer, bytes);
  };
  const auto answer = follow(request, {}, settings_.document_seconds, clearing);
  if (!answer) return Outcome::final(answer.error());
  if (too_long && answer->status == 200) {
    return Outcome::final({ErrorCode::kExhausted,
                           fmt::format("{} is longer than the {} that are read of it; use another "
                                       "source",
                                       shown_url(request.url), in_words(limit))});
  }
  if (answer->code != CURLE_OK && !too_long) return failed_transfer(*answer, request);
  if (answer->status != 200) return status_outcome(*answer, request);
  document->url = answer->url;
  document->type = answer->type;
  return {};
}

Result<HttpDocument> Http::Impl::get(const HttpRequest& request, uint64_t limit) {
  done_ = total_ = 0;
  HttpDocument document;
  for (int failures = 1;; ++failures) {
    Outcome outcome = get_once(request, limit, &document);
    if (!outcome.error) return document;
    if (!outcome.again || failures >= settings_.attempts) {
      return tl::unexpected(std::move(*outcome.error));
    }
    CULET_TRY_VOID(pause(outcome, failures));
  }
}

// ---------------------------------------------------------------- files

// The file that grows, and what is known about its content.
class Http::Impl::Part {
 public:
  ~Part() {
    if (fd_ >= 0) ::close(fd_);
  }
  Result<void> open(const HttpTarget& target) {
    path_ = target.part;
    identity_ = target.identity;
    fd_ = ::open(path_.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666);
    if (fd_ < 0) return tl::unexpected(base::os_error("create", path_, errno));
    size_ = file_bytes(path_);
    read_state();
    if (size_ > target.limit || (target.bytes && size_ > target.bytes)) return restart();
    return {};
  }
  uint64_t size() const { return size_; }
  const std::string& etag() const { return etag_; }

  Result<void> restart() {
    if (::ftruncate(fd_, 0) != 0) return tl::unexpected(base::os_error("write", path_, errno));
    size_ = 0;
    etag_.clear();
    return {};
  }
  Result<void> set_etag(const std::string& etag) {
    etag_ = is_strong_etag(etag) ? etag : "";
    return write_whole(state_path(), base::dump_json({{"identity", identity_}, {"etag", etag_}}));
  }
  Result<void> append(std::span<const char> bytes) {
    while (!bytes.empty()) {
      const ssize_t written = ::pwrite(fd_, bytes.data(), bytes.size(), off_t(size_));
      if (written < 0 && errno == EINTR) continue;
      if (written <= 0) return tl::unexpected(base::os_error("write", path_, errno));
      bytes = bytes.subspan(size_t(written));
      size_ += uint64_t(written);
    }
    return {};
  }
  Result<void> sync() {
    if (::fsync(fd_) != 0) return tl::unexpected(base::os_error("write", path_, errno));
    return {};
  }

 private:
  std::string state_path() const { return path_ + ".state"; }
  void read_state() {
    constexpr uint64_t kMostBytes = 4096;
    constexpr int kDepth = 2;
    const auto text = base::read_file(state_path(), kMostBytes);
    const auto json = text ? base::parse_json(*text, kDepth) : fail(ErrorCode::kNotFound, "");
    if (json && text_of(*json, "identity") == identity_) {
      etag_ = text_of(*json, "etag").value_or("");
      if (!is_strong_etag(etag_)) etag_.clear();
    } else if (::ftruncate(fd_, 0) == 0) {
      size_ = 0;
    }
  }

  int fd_ = -1;
  std::string path_, identity_, etag_;
  uint64_t size_ = 0;
};

Outcome Http::Impl::after_download(const HttpRequest& request, const HttpTarget& target,
                                   const Answer& answer, Part* part) {
  ContentRange range;
  if (answer.status == 416) {
    const bool whole = parse_content_range(answer.content_range, &range) && target.bytes == 0 &&
                       range.total == part->size() && part->size() > 0;
    if (whole) return {};
    if (const auto done = part->restart(); !done) return Outcome::final(done.error());
    return Outcome::passing(
        {ErrorCode::kIo,
         fmt::format("the server of {} has another number of bytes than it should have; run the "
                     "same command again later",
                     shown_url(request.url))});
  }
  if (answer.code != CURLE_OK) return failed_transfer(answer, request);
  if (answer.status != 200 && answer.status != 206) return status_outcome(answer, request);
  const uint64_t whole =
      target.bytes ? target.bytes
                   : (parse_content_range(answer.content_range, &range) ? range.total : 0);
  if (whole && part->size() < whole) {
    return Outcome::passing(
        {ErrorCode::kIo, fmt::format("{} ended after {} of {} bytes; run the same command again to "
                                     "continue",
                                     shown_url(request.url), part->size(), whole)});
  }
  return {};
}

Outcome Http::Impl::download_once(const HttpRequest& request, const HttpTarget& target,
                                  Part* part) {
  const uint64_t start = part->size();
  std::vector<std::string> more;
  if (start > 0) more.push_back(fmt::format("Range: bytes={}-", start));
  if (start > 0 && !part->etag().empty()) more.push_back("If-Range: " + part->etag());

  std::optional<Error> error;
  bool again = false, begun = false;
  const auto give_up = [&](Error e, bool passing) {
    error = std::move(e);
    again = passing;
    return false;
  };
  // The first bytes: is this the range we asked for, of the file we began?
  const auto begin = [&](const Answer& answer) {
    begun = true;
    ContentRange range;
    if (answer.status == 206) {
      const bool same =
          parse_content_range(answer.content_range, &range) && range.first == start &&
          (!target.bytes || range.total == target.bytes) &&
          (part->etag().empty() || !is_strong_etag(answer.etag) || answer.etag == part->etag());
      if (same) return true;
      const auto done = part->restart();
      return give_up(done ? Error{ErrorCode::kIo,
                                  fmt::format("the server of {} answered with another part of the "
                                              "file than it was asked for; run the same command "
                                              "again",
                                              shown_url(request.url))}
                          : done.error(),
                     done.has_value());
    }
    auto done = part->restart();
    if (done) done = part->set_etag(answer.etag);
    return done ? true : give_up(done.error(), false);
  };
  uint64_t unread = 0;
  const auto sink = [&](const Answer& answer, std::span<const char> bytes) {
    if (answer.status != 200 && answer.status != 206) {
      return (unread += bytes.size()) <= kErrorBodyBytes;
    }
    if (!begun && !begin(answer)) return false;
    if (part->size() + bytes.size() > target.limit) {
      static_cast<void>(part->restart());
      return give_up(
          {ErrorCode::kCorrupt,
           fmt::format("the server of {} sends more than the {} bytes that are expected; "
                       "use another source",
                       shown_url(request.url), target.limit)},
          false);
    }
    const auto done = part->append(bytes);
    done_ = part->size();
    return done ? true : give_up(done.error(), false);
  };
  const auto answer = follow(request, more, 0, sink);
  if (answer && answer->status == 200 && answer->code == CURLE_OK && !begun) begin(*answer);
  if (error) return {std::move(error), again, 0};
  if (!answer) return Outcome::final(answer.error());
  return after_download(request, target, *answer, part);
}

Result<void> Http::Impl::download(const HttpRequest& request, const HttpTarget& target) {
  Part part;
  CULET_TRY_VOID(part.open(target));
  CULET_TRY_VOID(part.set_etag(part.etag()));
  total_ = target.bytes;
  uint64_t most = part.size();
  int failures = 0;
  for (int round = 0; !(target.bytes && part.size() == target.bytes); ++round) {
    done_ = part.size();
    Outcome outcome = download_once(request, target, &part);
    if (!outcome.error) break;
    failures = part.size() >= most + kProgressBytes ? 1 : failures + 1;
    most = std::max(most, part.size());
    if (!outcome.again || failures >= settings_.attempts || round >= kMostRounds) {
      return tl::unexpected(std::move(*outcome.error));
    }
    CULET_TRY_VOID(pause(outcome, failures));
  }
  return part.sync();
}

Http::Http(HttpSettings settings, HttpTick tick)
    : impl_(std::make_unique<Impl>(std::move(settings), std::move(tick))) {}
Http::~Http() = default;

Result<HttpDocument> Http::get(const HttpRequest& request, uint64_t limit) {
  return impl_->get(request, limit);
}
Result<void> Http::download(const HttpRequest& request, const HttpTarget& target) {
  return impl_->download(request, target);
}

}  // namespace culet::resolve
