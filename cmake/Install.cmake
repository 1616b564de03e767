# Defines what `cmake --install` installs: a tree that can be moved as a whole. Programs find their modules, LibTorch and
# configs relative to themselves. lib/ddprun/torch is a link to the LibTorch of the build; to use another LibTorch of the same
# version, change the link. The component `launcher` is the part that needs no LibTorch: a Python wheel contains only that
# (pyproject.toml).
include(GNUInstallDirs)
set(module_folder lib/ddprun)  # CMAKE_INSTALL_LIBDIR is not used here, because RUNPATH and dlopen() contain this name
set(share_folder ${CMAKE_INSTALL_DATADIR})
if(SKBUILD)  # in a wheel: pip installs scripts to `bin` and data next to `bin`
  set(CMAKE_INSTALL_BINDIR ${SKBUILD_SCRIPTS_DIR})
  set(module_folder ${SKBUILD_DATA_DIR}/lib/ddprun)
  set(share_folder ${SKBUILD_DATA_DIR}/share)
  if(DDPRUN_NOTICE)  # licences of the libraries that are linked in; packaging/package.py creates the folder
    install(FILES ${DDPRUN_NOTICE} DESTINATION ${SKBUILD_METADATA_DIR}/licenses COMPONENT launcher)
  endif()
endif()

install(TARGETS ddprun RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR} COMPONENT launcher)
# The link is installed only on request: on PATH it would hide PyTorch's torchrun from users who have both.
option(DDPRUN_INSTALL_TORCHRUN_LINK "Also install a link named torchrun, so that scripts which call torchrun need no edit" OFF)
if(DDPRUN_INSTALL_TORCHRUN_LINK)
  install(CODE "
    set(link \"\$ENV{DESTDIR}\${CMAKE_INSTALL_PREFIX}/${CMAKE_INSTALL_BINDIR}/torchrun\")
    message(STATUS \"Linking: \${link} -> ddprun\")
    file(CREATE_LINK ddprun \"\${link}\" SYMBOLIC)
    list(APPEND CMAKE_INSTALL_MANIFEST_FILES \"\${CMAKE_INSTALL_PREFIX}/${CMAKE_INSTALL_BINDIR}/torchrun\")" COMPONENT launcher)
endif()
if(DDPRUN_BUILD_TRAINER)
  install(TARGETS ddptrain RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
  install(DIRECTORY DESTINATION ${module_folder})
  install(CODE "
    set(link \"\$ENV{DESTDIR}\${CMAKE_INSTALL_PREFIX}/${module_folder}/torch\")
    message(STATUS \"Linking: \${link} -> ${TORCH_ROOT}\")
    file(CREATE_LINK \"${TORCH_ROOT}\" \"\${link}\" SYMBOLIC)
    list(APPEND CMAKE_INSTALL_MANIFEST_FILES \"\${CMAKE_INSTALL_PREFIX}/${module_folder}/torch\")")
endif()
# Installs all libraries of the type MODULE that are defined below `folder`.
function(ddprun_install_modules folder component)
  get_property(targets DIRECTORY ${folder} PROPERTY BUILDSYSTEM_TARGETS)
  foreach(target ${targets})
    get_target_property(type ${target} TYPE)
    if(type STREQUAL MODULE_LIBRARY)
      install(TARGETS ${target} LIBRARY DESTINATION ${module_folder} COMPONENT ${component})
    endif()
  endforeach()
  get_property(subfolders DIRECTORY ${folder} PROPERTY SUBDIRECTORIES)
  foreach(subfolder ${subfolders})
    ddprun_install_modules(${subfolder} ${component})
  endforeach()
endfunction()
ddprun_install_modules(${PROJECT_SOURCE_DIR}/rendezvous launcher)
ddprun_install_modules(${PROJECT_SOURCE_DIR}/launcher launcher)
if(DDPRUN_BUILD_TRAINER)
  ddprun_install_modules(${PROJECT_SOURCE_DIR}/trainer trainer)
endif()
# The package that Python scripts import. For this, PYTHONPATH must contain this folder. A wheel installs it as an ordinary
# package (pyproject.toml).
install(DIRECTORY python/ DESTINATION ${CMAKE_INSTALL_DATADIR}/ddprun/python FILES_MATCHING PATTERN "*.py" PATTERN __pycache__ EXCLUDE)
install(DIRECTORY configs/ DESTINATION ${CMAKE_INSTALL_DATADIR}/ddprun/configs FILES_MATCHING PATTERN "*.json" PATTERN "*.yaml" PATTERN "perl-text.sh"
        PATTERN "letters.py" PATTERN perl-text EXCLUDE PATTERN letters EXCLUDE PATTERN digits EXCLUDE)
# README and the examples are next to docs/, as in the sources, so that their links work.
install(DIRECTORY docs DESTINATION ${CMAKE_INSTALL_DOCDIR})
install(DIRECTORY examples DESTINATION ${CMAKE_INSTALL_DOCDIR}  # without the results of examples that were run in this folder
        FILES_MATCHING PATTERN "*.md" PATTERN "*.py" PATTERN "*.json" PATTERN "*.cpp" PATTERN CMakeLists.txt PATTERN build EXCLUDE
        PATTERN checkpoints EXCLUDE PATTERN data EXCLUDE PATTERN model.ddp EXCLUDE PATTERN out EXCLUDE PATTERN runs EXCLUDE PATTERN shapes EXCLUDE)
install(FILES README.md CHANGELOG.md CONTRIBUTING.md LICENSE DESTINATION ${CMAKE_INSTALL_DOCDIR})

# ddprun prints the manual page and the completions from its tables. A program for another processor cannot run on this machine.
# In that case DDPRUN_PAGES names a folder of pages that a build for this machine's processor has made (packaging/package.py).
set(DDPRUN_PAGES "" CACHE PATH "Folder of pages made by another build (man/, completions/); empty: made by this one")
set(pages ${DDPRUN_PAGES})
if(NOT pages AND NOT DDPRUN_SANITIZE)
  set(pages ${CMAKE_BINARY_DIR}/pages)
  set(page_files man1/ddprun.1 bash-completion/completions/ddprun zsh/site-functions/_ddprun fish/vendor_completions.d/ddprun.fish)
  list(TRANSFORM page_files PREPEND ${pages}/)
  add_custom_command(
    OUTPUT ${page_files}
    COMMAND ${CMAKE_COMMAND} -DPROGRAM=$<TARGET_FILE:ddprun> -DFOLDER=${pages} -P ${PROJECT_SOURCE_DIR}/cmake/WritePages.cmake
    DEPENDS ddprun ${PROJECT_SOURCE_DIR}/cmake/WritePages.cmake
    COMMENT "Writing the manual page and the completions")
  add_custom_target(ddprun_pages ALL DEPENDS ${page_files})
endif()
if(pages)
  install(DIRECTORY ${pages}/man1 DESTINATION ${share_folder}/man COMPONENT launcher)
  foreach(shell bash-completion zsh fish)
    install(DIRECTORY ${pages}/${shell} DESTINATION ${share_folder} COMPONENT launcher)
  endforeach()
endif()

if(DDPRUN_BUILD_TRAINER)
  include(${CMAKE_CURRENT_LIST_DIR}/Sdk.cmake)
endif()

add_custom_target(uninstall COMMAND ${CMAKE_COMMAND} -DBUILD=${CMAKE_BINARY_DIR} -P ${PROJECT_SOURCE_DIR}/cmake/Uninstall.cmake)
