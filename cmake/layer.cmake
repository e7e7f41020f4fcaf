# culet_layer(NAME SOURCES a.cpp ... DEPS culet_base ... [PRIVATE_DEPS PkgConfig::X ...] [TESTS a_test.cpp ...])
#   one static library a layer (target culet_NAME) and one test program (NAME_test).
function(culet_layer name)
  cmake_parse_arguments(L "" "" "SOURCES;DEPS;PRIVATE_DEPS;TESTS;TEST_DEPS" ${ARGN})
  add_library(culet_${name} STATIC ${L_SOURCES})
  target_include_directories(culet_${name} PUBLIC ${CMAKE_SOURCE_DIR}/src ${CMAKE_SOURCE_DIR}/include)
  target_link_libraries(culet_${name} PUBLIC ${L_DEPS} PRIVATE ${L_PRIVATE_DEPS})
  if(CULET_TESTS AND L_TESTS)
    culet_test(${name}_test SOURCES ${L_TESTS} DEPS culet_${name} ${L_TEST_DEPS})
  endif()
endfunction()

# culet_test(NAME SOURCES a_test.cpp ... DEPS ... [TIMEOUT seconds])
# Tests find their data through CULET_TEST_DATA (tests/golden and friends).
function(culet_test name)
  cmake_parse_arguments(T "" "TIMEOUT" "SOURCES;DEPS" ${ARGN})
  if(NOT T_TIMEOUT)
    set(T_TIMEOUT 120)
  endif()
  add_executable(${name} ${T_SOURCES})
  target_link_libraries(${name} PRIVATE ${T_DEPS} GTest::gtest GTest::gtest_main)
  target_compile_definitions(${name} PRIVATE CULET_TEST_DATA="${CMAKE_SOURCE_DIR}/tests"
                                             CULET_SOURCE_DIR="${CMAKE_SOURCE_DIR}")
  gtest_discover_tests(${name} TEST_PREFIX "${name}." DISCOVERY_TIMEOUT 60
                       PROPERTIES TIMEOUT ${T_TIMEOUT})
endfunction()
