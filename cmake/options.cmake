# Compile options of every target. Two rules that results depend on (docs/decisions/0003):
# no contraction of a*b+c by the compiler, and no -march flag outside the kernel files.
if(NOT CMAKE_BUILD_TYPE)
  set(CMAKE_BUILD_TYPE Release)
endif()
add_compile_options(-ffp-contract=off -fno-math-errno -Wall -Wextra -Wshadow -Wnon-virtual-dtor
                    -Wimplicit-fallthrough -Werror)
if(NOT CMAKE_CXX_FLAGS_RELEASE MATCHES "-O")
  set(CMAKE_CXX_FLAGS_RELEASE "-O2 -g1")
endif()

set(CULET_SANITIZE "" CACHE STRING "Sanitizers, as for -fsanitize= (for example address,undefined)")
if(CULET_SANITIZE)
  add_compile_options(-fsanitize=${CULET_SANITIZE} -fno-omit-frame-pointer -fno-sanitize-recover=all)
  add_link_options(-fsanitize=${CULET_SANITIZE})
endif()

find_program(CCACHE ccache)
if(CCACHE AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  set(CMAKE_CXX_COMPILER_LAUNCHER ${CCACHE})
endif()
