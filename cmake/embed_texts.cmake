# cmake -DOUT=file.cpp -DFILES="a.arch;b.arch" -DHEADER=plan/builtin.h -DNAMESPACE=culet::plan
#       -DSTRUCT=BuiltinArch -DFUNCTION=builtin_archs -P embed_texts.cmake
# Writes the function of the header: a span of {name without extension, text} for each file, as C++
# raw strings.
set(body "// Written by cmake/embed_texts.cmake.\n#include \"${HEADER}\"\n\nnamespace ${NAMESPACE} {\n\n")
string(APPEND body "std::span<const ${STRUCT}> ${FUNCTION}() {\n  static constexpr ${STRUCT} kTexts[] = {\n")
foreach(file ${FILES})
  file(READ ${file} text)
  get_filename_component(name ${file} NAME_WE)
  string(APPEND body "      {\"${name}\", R\"embedded(${text})embedded\"},\n")
endforeach()
string(APPEND body "  };\n  return kTexts;\n}\n\n}  // namespace ${NAMESPACE}\n")
file(WRITE ${OUT} "${body}")
