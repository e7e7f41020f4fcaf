# The public API (include/culet) as two libraries, the same targets for the command line, for programs
# that add this folder to their own build (examples/ask), and installed for find_package(culet):
#   culet::culet  inference and conversion: every header but hub.h; needs no network library
#   culet::hub    models by name, stores, pulling (culet/hub.h): culet::culet, libcurl and zlib
# Each is one archive of its layers. Who links them sees include/ and tl::expected, and no header of src/.
set(CULET_HUB_LAYERS resolve)

function(culet_archive target name)  # LAYER...
  set(objects "")
  foreach(layer ${ARGN})
    list(APPEND objects $<TARGET_OBJECTS:culet_${layer}>)
  endforeach()
  add_library(${target} STATIC ${objects})
  add_library(culet::${name} ALIAS ${target})
  set_target_properties(${target} PROPERTIES EXPORT_NAME ${name} LINKER_LANGUAGE CXX)
  target_compile_features(${target} PUBLIC cxx_std_20)
  target_include_directories(${target} PUBLIC $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/include>)
endfunction()

set(layers ${CULET_LAYERS})
list(REMOVE_ITEM layers ${CULET_HUB_LAYERS})
culet_archive(culet_library culet ${layers})
set_target_properties(culet_library PROPERTIES OUTPUT_NAME culet)
culet_archive(culet_hub_library hub ${CULET_HUB_LAYERS})
set_target_properties(culet_hub_library PROPERTIES OUTPUT_NAME culet_hub)

# What the objects need when a program is linked; cmake/culetConfig.cmake.in finds the same.
target_link_libraries(culet_library PUBLIC tl::expected
                                    PRIVATE fmt::fmt OpenSSL::Crypto PkgConfig::PCRE2 PkgConfig::UTF8PROC
                                            Threads::Threads)
target_link_libraries(culet_hub_library PUBLIC culet_library PRIVATE CURL::libcurl ZLIB::ZLIB)
