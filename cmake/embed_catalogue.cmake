# cmake -DOUT=file.cpp -DFILE=catalogue.json -P embed_catalogue.cmake
# Writes the text of the catalogue as C++ raw strings, cut so that none is longer than a compiler must take.
file(READ ${FILE} text)
string(LENGTH "${text}" left)
set(at 0)
set(pieces "")
while(left GREATER 0)
  string(SUBSTRING "${text}" ${at} 8000 piece)
  string(APPEND pieces "      R\"catalogue(${piece})catalogue\"\n")
  math(EXPR at "${at} + 8000")
  math(EXPR left "${left} - 8000")
endwhile()
file(WRITE ${OUT} "// Written by cmake/embed_catalogue.cmake.
#include \"resolve/catalogue.h\"

namespace culet::resolve {

std::string_view builtin_catalogue_text() {
  static constexpr std::string_view kText =
${pieces}  ;
  return kText;
}

}  // namespace culet::resolve
")
