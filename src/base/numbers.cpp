#include "base/numbers.h"

#include "base/check.h"

#include <algorithm>
#include <charconv>
#include <limits>
#include <system_error>

namespace culet::base {
namespace {

bool is_digit(char c) { return c >= '0' && c <= '9'; }

// Whether a number that fits no double is too large; it is too small otherwise. The power of ten of
// its first digit says so.
bool too_large(std::string_view text) {
  const size_t e = text.find_first_of("eE");
  const std::string_view mantissa = text.substr(0, e);
  const size_t point = std::min(mantissa.find('.'), mantissa.size());
  const size_t first = mantissa.find_first_of("123456789");
  if (first == std::string_view::npos) return false;
  double power = static_cast<double>(point) - static_cast<double>(first);
  if (e != std::string_view::npos) {
    double exponent = 0;
    for (const char c : text.substr(e + 1))
      if (is_digit(c)) exponent = std::min(10 * exponent + (c - '0'), 1e300);
    power += text[e + 1] == '-' ? -exponent : exponent;
  }
  return power > 0;
}

}  // namespace

std::optional<double> parse_double(std::string_view text) {
  double value = 0;
  const char* const end = text.data() + text.size();
  const auto [at, error] = std::from_chars(text.data(), end, value);
  if (text.empty() || at != end || error == std::errc::invalid_argument) return std::nullopt;
  if (error != std::errc::result_out_of_range) return value;
  const double limit = too_large(text) ? std::numeric_limits<double>::infinity() : 0;
  return text.front() == '-' ? -limit : limit;
}

CLocale::CLocale() : c_(newlocale(LC_ALL_MASK, "C", nullptr)), before_(nullptr) {
  CULET_CHECK(c_ != nullptr);  // part of every C library; nothing to load
  before_ = uselocale(c_);
}

CLocale::~CLocale() {
  uselocale(before_);
  freelocale(c_);
}

}  // namespace culet::base
