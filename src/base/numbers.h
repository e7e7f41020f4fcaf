// Numbers in text, and a guard for code of others that reads them by the locale of the host
// program.
#pragma once

#include <locale.h>
#include <optional>
#include <string_view>

namespace culet::base {

// The whole text as a number, nearest double, whatever the locale: "-1.5", "1e-5", "inf", "nan".
// Too large becomes an infinity, too small becomes zero. Nothing: the text is no number, or has
// something before or behind it (blanks and '+' too).
std::optional<double> parse_double(std::string_view text);

// While one lives, C functions on this thread (strtod, localeconv, strftime) follow the C locale.
// Other threads keep the program's locale.
class CLocale {
 public:
  CLocale();
  ~CLocale();
  CLocale(const CLocale&) = delete;
  CLocale& operator=(const CLocale&) = delete;

 private:
  locale_t c_, before_;
};

}  // namespace culet::base
