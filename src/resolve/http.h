// The network, as culet uses it: documents into memory, files that can be continued. The only file
// that knows libcurl is http.cpp, and only `culet pull` gets here.
//
// https only, http for loopback addresses (tests, a proxy of one's own); never from https back to
// http. Redirects are followed a few times, and an Authorization header goes to the origin (scheme,
// host, port) of the first address only. Proxies by the usual variables (https_proxy, no_proxy).
// Answers are bounded in size; a server that stops sending is given up. Messages show no query, no
// login and nothing that a server wrote.
#pragma once

#include "culet/result.h"

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace culet::resolve {

struct HttpSettings {
  int connect_seconds = 30;
  int stall_seconds = 60;         // with nothing coming
  int document_seconds = 120;     // for a whole document
  int attempts = 5;               // in a row without progress
  int pause_ms = 1000;            // before the second, longer before each later one
  int longest_wait_seconds = 60;  // that a server may ask for (Retry-After)
  std::string ca_file;            // certificates, "" = the system's
};

// Bytes done and bytes in all (0: not known); called several times a second also while nothing
// comes. False stops with kCancelled.
using HttpTick = std::function<bool(uint64_t done, uint64_t total)>;

struct HttpRequest {
  std::string url;
  std::vector<std::string> headers;  // "Accept: ..."
  std::string authorization;         // "Bearer ...", "" = none
  std::string login_hint;            // what to do about 401 and 403
};

struct HttpDocument {
  std::string url;   // after redirects
  std::string type;  // Content-Type, lower case, without parameters
  std::string body;
};

struct HttpTarget {
  std::string part;      // file to continue or create; its notes are in part + ".state"
  std::string identity;  // of the content: a part of another one is thrown away
  uint64_t bytes = 0;    // exact size, 0: not known
  uint64_t limit = 0;    // never more than this
};

class Http {
 public:
  Http(HttpSettings settings, HttpTick tick);
  ~Http();
  Http(const Http&) = delete;
  Http& operator=(const Http&) = delete;

  // kNotFound: 404. kExhausted: longer than limit, or asked to come later.
  Result<HttpDocument> get(const HttpRequest& request, uint64_t limit);
  // Afterwards the part has all bytes, synced; what they are worth is for the caller to check. On
  // an error the part has what came so far.
  Result<void> download(const HttpRequest& request, const HttpTarget& target);

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

// https, or http to a loopback address; else kInvalidArgument.
Result<void> check_url(const std::string& url);
// "scheme://host:port" in lower case, the port always there; "" when it is no URL.
std::string origin_of(const std::string& url);
// Without login, query and fragment, for messages.
std::string shown_url(const std::string& url);
// What `reference` means on the page `base`; "" when it is no URL.
std::string join_url(const std::string& base, const std::string& reference);
// Where a redirect leads: kIo when that is nowhere, or from https to something else.
Result<std::string> next_address(const std::string& url, const std::string& location);
// Takes "user:secret@" out of *url and gives "Basic ..." for it, or "".
std::string take_login(std::string* url);
// Bytes that are not unreserved in a URL as %XX; slashes stay.
std::string escape_path(std::string_view path);

// "bytes 5-9/10": first 5, total 10. False: it says something else.
struct ContentRange {
  uint64_t first = 0, total = 0;  // of "bytes */10": first is total
};
bool parse_content_range(std::string_view text, ContentRange* range);

}  // namespace culet::resolve
