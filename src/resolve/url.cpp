// Addresses by libcurl's own parser, so that what is checked here is what is asked for there.
#include "resolve/disk.h"
#include "resolve/http.h"

#include <fmt/format.h>

#include <algorithm>
#include <curl/curl.h>
#include <memory>

namespace culet::resolve {
namespace {

struct Close {
  void operator()(CURLU* url) const { curl_url_cleanup(url); }
};
using Url = std::unique_ptr<CURLU, Close>;

Url parse(const std::string& text) {
  constexpr size_t kLongest = 8000;
  if (text.size() > kLongest || text.find('\0') != text.npos) return nullptr;
  Url url(curl_url());
  if (!url || curl_url_set(url.get(), CURLUPART_URL, text.c_str(), 0) != CURLUE_OK) return nullptr;
  return url;
}

std::string part_of(const Url& url, CURLUPart part, unsigned flags = 0) {
  char* text = nullptr;
  if (curl_url_get(url.get(), part, &text, flags) != CURLUE_OK) return "";
  const std::string out = text;
  curl_free(text);
  return out;
}

bool is_loopback(const std::string& host) {
  if (host == "localhost" || host == "[::1]" || host == "::1") return true;
  return host.starts_with("127.") && std::count(host.begin(), host.end(), '.') == 3 &&
         host.find_first_not_of("0123456789.") == host.npos;
}

std::string base64(std::string_view bytes) {
  constexpr char kDigits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string out;
  for (size_t i = 0; i < bytes.size(); i += 3) {
    const size_t n = std::min<size_t>(3, bytes.size() - i);
    uint32_t group = 0;
    for (size_t j = 0; j < 3; ++j) group = group << 8 | (j < n ? uint8_t(bytes[i + j]) : 0u);
    for (size_t j = 0; j < 4; ++j) {
      out += j <= n ? kDigits[group >> (18 - 6 * j) & 63] : '=';
    }
  }
  return out;
}

}  // namespace

Result<void> check_url(const std::string& text) {
  const Url url = parse(text);
  if (!url) return fail(ErrorCode::kInvalidArgument, "this is not an address");
  const std::string scheme = lower(part_of(url, CURLUPART_SCHEME));
  if (scheme == "https") return {};
  if (scheme == "http" && is_loopback(lower(part_of(url, CURLUPART_HOST)))) return {};
  return fail(ErrorCode::kInvalidArgument,
              fmt::format("{} is refused: models are downloaded over https only (http is for "
                          "loopback addresses); give an https address",
                          shown_url(text)));
}

std::string origin_of(const std::string& text) {
  const Url url = parse(text);
  if (!url) return "";
  return lower(part_of(url, CURLUPART_SCHEME) + "://" + part_of(url, CURLUPART_HOST) + ":" +
               part_of(url, CURLUPART_PORT, CURLU_DEFAULT_PORT));
}

std::string shown_url(const std::string& text) {
  const Url url = parse(text);
  if (!url) return "an invalid address";
  for (const CURLUPart part : {CURLUPART_USER, CURLUPART_PASSWORD, CURLUPART_OPTIONS,
                               CURLUPART_QUERY, CURLUPART_FRAGMENT}) {
    curl_url_set(url.get(), part, nullptr, 0);
  }
  constexpr size_t kShown = 200;
  std::string out = part_of(url, CURLUPART_URL);
  if (out.size() > kShown) out = out.substr(0, kShown) + "...";
  return out;
}

std::string join_url(const std::string& base, const std::string& reference) {
  const Url url = parse(base);
  if (!url || reference.empty() || reference.find('\0') != reference.npos) return "";
  if (curl_url_set(url.get(), CURLUPART_URL, reference.c_str(), CURLU_URLENCODE) != CURLUE_OK) {
    return "";
  }
  curl_url_set(url.get(), CURLUPART_FRAGMENT, nullptr, 0);
  return part_of(url, CURLUPART_URL);
}

Result<std::string> next_address(const std::string& url, const std::string& location) {
  std::string next = join_url(url, location);
  take_login(&next);
  if (next.empty()) {
    return fail(
        ErrorCode::kIo,
        fmt::format("the server of {} redirects to nowhere; try again later", shown_url(url)));
  }
  if (url.starts_with("https:") && !next.starts_with("https:")) {
    return fail(ErrorCode::kIo, fmt::format("the server of {} redirects from https to http, which "
                                            "is refused; use another source",
                                            shown_url(url)));
  }
  return next;
}

std::string take_login(std::string* text) {
  const Url url = parse(*text);
  if (!url) return "";
  const std::string user = part_of(url, CURLUPART_USER, CURLU_URLDECODE);
  const std::string password = part_of(url, CURLUPART_PASSWORD, CURLU_URLDECODE);
  for (const CURLUPart part : {CURLUPART_USER, CURLUPART_PASSWORD, CURLUPART_OPTIONS}) {
    curl_url_set(url.get(), part, nullptr, 0);
  }
  *text = part_of(url, CURLUPART_URL);
  return user.empty() && password.empty() ? "" : "Basic " + base64(user + ":" + password);
}

std::string escape_path(std::string_view path) {
  std::string out;
  for (const char c : path) {
    const bool plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                       c == '-' || c == '.' || c == '_' || c == '~' || c == '/';
    if (plain) {
      out += c;
    } else {
      out += fmt::format("%{:02X}", unsigned(uint8_t(c)));
    }
  }
  return out;
}

bool parse_content_range(std::string_view text, ContentRange* range) {
  constexpr std::string_view kUnit = "bytes ";
  if (!lower(text).starts_with(kUnit)) return false;
  text.remove_prefix(kUnit.size());
  const auto number = [&text](uint64_t* out) {
    size_t digits = 0;
    *out = 0;
    while (digits < text.size() && digits < 18 && text[digits] >= '0' && text[digits] <= '9') {
      *out = *out * 10 + uint64_t(text[digits++] - '0');
    }
    text.remove_prefix(digits);
    return digits > 0;
  };
  const auto skip = [&text](char c) {
    if (text.empty() || text[0] != c) return false;
    text.remove_prefix(1);
    return true;
  };
  uint64_t last = 0;
  if (skip('*')) {
    if (!skip('/') || !number(&range->total)) return false;
    range->first = range->total;
  } else {
    if (!number(&range->first) || !skip('-') || !number(&last) || !skip('/')) return false;
    if (!number(&range->total) || last < range->first || range->total <= last) return false;
  }
  return text.empty();
}

}  // namespace culet::resolve
