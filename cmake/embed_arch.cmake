# cmake -DOUT=file.cpp -DFILES="a.arch;b.arch" -P embed_arch.cmake
# Writes the text of the architecture files as C++ raw strings.
set(table "")
set(body "// Written by cmake/embed_arch.cmake.\n#include \"plan/builtin.h\"\n\nnamespace culet::plan {\n\n")
string(APPEND body "std::span<const BuiltinArch> builtin_archs() {\n  static constexpr BuiltinArch kArchs[] = {\n")
foreach(file ${FILES})
  file(READ ${file} text)
  get_filename_component(name ${file} NAME_WE)
  string(APPEND body "      {\"${name}\", R\"arch(${text})arch\"},\n")
endforeach()
string(APPEND body "  };\n  return kArchs;\n}\n\n}  // namespace culet::plan\n")
file(WRITE ${OUT} "${body}")
