# What `cmake --install` puts where, and the .deb. Architecture files and the catalogue are part of
# the program, so nothing is looked for at run time.
#
# Components: program and library anywhere; system is what a hand-made installation has besides,
# debian what a Debian package has instead.
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

# Pages that the program writes about itself. SOURCE_DATE_EPOCH sets their date.
string(TIMESTAMP date "%Y-%m-%d" UTC)
set(pages ${PROJECT_BINARY_DIR}/pages)
file(MAKE_DIRECTORY ${pages})
add_custom_command(
  OUTPUT ${pages}/culet.1 ${pages}/culet.1.gz ${pages}/culet.bash ${pages}/_culet ${pages}/culet.fish
  COMMAND culet __manual ${date} > ${pages}/culet.1
  COMMAND gzip -9nf --keep ${pages}/culet.1
  COMMAND culet completion bash > ${pages}/culet.bash
  COMMAND culet completion zsh > ${pages}/_culet
  COMMAND culet completion fish > ${pages}/culet.fish
  DEPENDS culet COMMENT "Manual page and completions" VERBATIM)
add_custom_target(culet_pages ALL DEPENDS ${pages}/culet.1)

install(TARGETS culet RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR} COMPONENT program)
install(FILES ${pages}/culet.bash RENAME culet
        DESTINATION ${CMAKE_INSTALL_DATADIR}/bash-completion/completions COMPONENT program)
install(FILES ${pages}/culet.fish
        DESTINATION ${CMAKE_INSTALL_DATADIR}/fish/vendor_completions.d COMPONENT program)

install(FILES ${pages}/culet.1 DESTINATION ${CMAKE_INSTALL_MANDIR}/man1 COMPONENT system)
install(FILES ${pages}/_culet
        DESTINATION ${CMAKE_INSTALL_DATADIR}/zsh/site-functions COMPONENT system)
install(FILES LICENSE DESTINATION ${CMAKE_INSTALL_DATADIR}/doc/culet COMPONENT system)

# Two export sets, so that a program without culet::hub need not have what that one links.
install(TARGETS culet_library EXPORT culetTargets
        ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT library
        INCLUDES DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
install(TARGETS culet_hub_library EXPORT culetHubTargets
        ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT library
        INCLUDES DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
install(DIRECTORY include/culet DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} COMPONENT library)
set(package_folder ${CMAKE_INSTALL_LIBDIR}/cmake/culet)
foreach(set culetTargets culetHubTargets)
  install(EXPORT ${set} NAMESPACE culet:: DESTINATION ${package_folder} COMPONENT library)
endforeach()
configure_package_config_file(cmake/culetConfig.cmake.in ${PROJECT_BINARY_DIR}/culetConfig.cmake
                              INSTALL_DESTINATION ${package_folder})
write_basic_package_version_file(${PROJECT_BINARY_DIR}/culetConfigVersion.cmake
                                 COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/culetConfig.cmake ${PROJECT_BINARY_DIR}/culetConfigVersion.cmake
        DESTINATION ${package_folder} COMPONENT library)

# ---------------------------------------------------------------- .deb: `cpack -G DEB`, make deb
set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGE_NAME culet)
set(CPACK_PACKAGE_CONTACT "The culet maintainers <maintainers@users.noreply.a-seed-ef3f48aa.example>")
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "run open language models on the processor")
set(CPACK_PACKAGE_DESCRIPTION
"culet answers prompts, continues and scores texts with open language models
in GGUF files, on the machine's own processor and without a network. The same
context gives the same bits on every processor.
.
A model family is a text file that reads like the paper; the program checks it
against the model before the first token. Models are found in the Ollama store
and the Hugging Face cache, or fetched with culet pull.")
# Revision 0culet1, as derivatives name theirs: not Debian's own package, and older than one.
set(CPACK_DEBIAN_PACKAGE_RELEASE 0culet1)
set(CPACK_DEBIAN_PACKAGE_SECTION science)
set(CPACK_DEBIAN_PACKAGE_PRIORITY optional)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEB_COMPONENT_INSTALL ON)
set(CPACK_COMPONENTS_GROUPING ALL_COMPONENTS_IN_ONE)
set(CPACK_COMPONENTS_ALL program debian)
set(CPACK_STRIP_FILES ON)
set(CPACK_INSTALL_DEFAULT_DIRECTORY_PERMISSIONS
    OWNER_READ OWNER_WRITE OWNER_EXECUTE GROUP_READ GROUP_EXECUTE WORLD_READ WORLD_EXECUTE)

string(TIMESTAMP CULET_DEBIAN_DATE "%a, %d %b %Y %H:%M:%S +0000" UTC)
set(CULET_DEBIAN_VERSION ${PROJECT_VERSION}-${CPACK_DEBIAN_PACKAGE_RELEASE})
configure_file(packaging/changelog.in ${pages}/changelog.Debian @ONLY)
configure_file(packaging/copyright.in ${pages}/copyright @ONLY)
add_custom_command(
  OUTPUT ${pages}/changelog.Debian.gz
  COMMAND gzip -9nf --keep ${pages}/changelog.Debian
  DEPENDS ${pages}/changelog.Debian VERBATIM)
add_custom_target(culet_debian ALL DEPENDS ${pages}/changelog.Debian.gz)
install(FILES ${pages}/culet.1.gz DESTINATION share/man/man1
        COMPONENT debian EXCLUDE_FROM_ALL)
install(FILES ${pages}/_culet DESTINATION share/zsh/vendor-completions
        COMPONENT debian EXCLUDE_FROM_ALL)
install(FILES ${pages}/copyright ${pages}/changelog.Debian.gz DESTINATION share/doc/culet
        COMPONENT debian EXCLUDE_FROM_ALL)
include(CPack)
