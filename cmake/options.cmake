# Compile options of every target. Two rules that results depend on (docs/decisions/0003):
# no contraction of a*b+c by the compiler, and no -m or -march flag outside the kernel files.
# The presets (CMakePresets.json) only pick among the switches below.
option(CULET_WERROR "Treat warnings as errors" ${PROJECT_IS_TOP_LEVEL})
set(CULET_SANITIZE "" CACHE STRING "Sanitizers, as for -fsanitize= (for example address,undefined)")

if(NOT CMAKE_BUILD_TYPE)
  set(CMAKE_BUILD_TYPE Release)
endif()
if(NOT CMAKE_BUILD_TYPE MATCHES "^(Debug|Release|RelWithDebInfo)$")
  message(FATAL_ERROR "CMAKE_BUILD_TYPE is '${CMAKE_BUILD_TYPE}'; use Debug, Release or RelWithDebInfo")
endif()
# Release keeps line numbers for profiles. RelWithDebInfo is what the tests run: the same -O2, with
# assertions of the C library and of libstdc++ left in. Lines are enough for a stack; variables would
# make a build a quarter longer (Debug has them).
set(CMAKE_CXX_FLAGS_DEBUG "-O0 -g")
set(CMAKE_CXX_FLAGS_RELEASE "-O2 -g1 -DNDEBUG")
set(CMAKE_CXX_FLAGS_RELWITHDEBINFO "-O2 -g1")
add_compile_definitions($<$<NOT:$<CONFIG:Release>>:_GLIBCXX_ASSERTIONS>)

add_compile_options(-ffp-contract=off -fno-math-errno
                    -Wall -Wextra -Wshadow -Wnon-virtual-dtor -Wimplicit-fallthrough)
if(CULET_WERROR)
  add_compile_options(-Werror)
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    # These depend on what the optimizer inlined; each g++ finds other ghosts inside std::vector
    # (13 does where 12 is silent). They are shown, but do not stop a build.
    add_compile_options(-Wno-error=array-bounds -Wno-error=maybe-uninitialized -Wno-error=restrict
                        -Wno-error=stringop-overflow -Wno-error=stringop-overread)
  elseif(CMAKE_CXX_COMPILER_ID MATCHES "Clang")
    # std::stable_sort of libstdc++ uses what it calls deprecated itself; clang tells, g++ does not.
    add_compile_options(-Wno-deprecated-declarations)
  endif()
endif()

if(CULET_SANITIZE)
  # -Og: g++ takes up to three times as long to optimize what it has instrumented. Kernels and quant,
  # where the tests spend their time, stay at -O2 (cmake/layer.cmake).
  set(CMAKE_CXX_FLAGS_RELWITHDEBINFO "-Og -g1")
  add_compile_options(-fsanitize=${CULET_SANITIZE} -fno-omit-frame-pointer -fno-sanitize-recover=all)
  add_link_options(-fsanitize=${CULET_SANITIZE})
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    # g++ reports variables that only its own instrumentation leaves unset.
    add_compile_options(-Wno-maybe-uninitialized)
  endif()
endif()

find_program(CCACHE ccache)
if(CCACHE AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  set(CMAKE_CXX_COMPILER_LAUNCHER ${CCACHE})
endif()
