# culet::culet: the public API (include/culet), the same target for the command line, for programs
# that add this folder to their own build (examples/ask), and installed for find_package(culet).
# One archive of all layers. Who links it sees include/ and tl::expected, and no header of src/.
set(objects "")
foreach(layer ${CULET_LAYERS})
  list(APPEND objects $<TARGET_OBJECTS:culet_${layer}>)
endforeach()
add_library(culet_library STATIC ${objects})
add_library(culet::culet ALIAS culet_library)
set_target_properties(culet_library PROPERTIES OUTPUT_NAME culet EXPORT_NAME culet LINKER_LANGUAGE CXX)
target_compile_features(culet_library PUBLIC cxx_std_20)
target_include_directories(culet_library PUBLIC $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/include>)
# What the objects need when a program is linked; cmake/culetConfig.cmake.in finds the same.
target_link_libraries(culet_library PUBLIC tl::expected
                                    PRIVATE fmt::fmt OpenSSL::Crypto CURL::libcurl ZLIB::ZLIB
                                            PkgConfig::PCRE2 PkgConfig::UTF8PROC Threads::Threads)
