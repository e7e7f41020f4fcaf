# culet_layer(NAME SOURCES a.cpp ... DEPS culet_base ... [PRIVATE_DEPS PkgConfig::X ...]
#             [TESTS a_test.cpp ...] [TEST_DEPS culet_x ...])
#   one static library a layer (target culet_NAME) and one test program (NAME_test, label unit).
function(culet_layer name)
  cmake_parse_arguments(L "" "" "SOURCES;DEPS;PRIVATE_DEPS;TESTS;TEST_DEPS" ${ARGN})
  add_library(culet_${name} STATIC ${L_SOURCES})
  target_include_directories(culet_${name} PUBLIC ${PROJECT_SOURCE_DIR}/src ${PROJECT_SOURCE_DIR}/include)
  target_link_libraries(culet_${name} PUBLIC ${L_DEPS} PRIVATE ${L_PRIVATE_DEPS})
  if(CULET_TESTS AND L_TESTS)
    culet_test(${name}_test SOURCES ${L_TESTS} DEPS culet_${name} ${L_TEST_DEPS} LABEL unit)
  endif()
endfunction()

# culet_test(NAME SOURCES a_test.cpp ... DEPS ... [TIMEOUT seconds] [LABEL unit|whole])
#   LABEL unit: small, run under sanitizers too. LABEL whole (the default): needs models or the whole
#   engine at full speed, so sanitizer builds leave it out.
# A cross compiled test runs in the toolchain's emulator and is told to keep to small sizes.
# Tests find their data through CULET_TEST_DATA (tests/golden and friends).
function(culet_test name)
  cmake_parse_arguments(T "" "TIMEOUT;LABEL" "SOURCES;DEPS" ${ARGN})
  if(NOT T_TIMEOUT)
    set(T_TIMEOUT 120)
  endif()
  if(NOT T_LABEL)
    set(T_LABEL whole)
  endif()
  set(prefix "")
  set(environment "")
  if(CMAKE_CROSSCOMPILING)
    set(prefix "${CMAKE_SYSTEM_PROCESSOR}.")
    set(environment ENVIRONMENT CULET_TEST_SIZE=small)
  endif()
  if(CULET_SANITIZE)
    if(T_LABEL STREQUAL "whole")
      return()
    endif()
    set(prefix "sanitized.")
    math(EXPR T_TIMEOUT "5 * ${T_TIMEOUT}")
  endif()
  add_executable(${name} ${T_SOURCES})
  target_link_libraries(${name} PRIVATE ${T_DEPS} GTest::gtest GTest::gtest_main)
  target_compile_definitions(${name} PRIVATE CULET_TEST_DATA="${PROJECT_SOURCE_DIR}/tests"
                                             CULET_SOURCE_DIR="${PROJECT_SOURCE_DIR}")
  gtest_discover_tests(${name} TEST_PREFIX "${prefix}${name}." DISCOVERY_TIMEOUT 60
                       PROPERTIES TIMEOUT ${T_TIMEOUT} LABELS ${T_LABEL} ${environment})
endfunction()
