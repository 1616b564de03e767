# `cmake --install`: a tree that can be moved as a whole. Programs find their modules, LibTorch and configs relative to themselves.
# lib/ddprun/torch is a link to the LibTorch of the build; point it elsewhere to use another one of the same version. The component
# `launcher` is what needs no LibTorch: a Python wheel has nothing else (pyproject.toml).
include(GNUInstallDirs)
set(module_folder lib/ddprun)  # not CMAKE_INSTALL_LIBDIR: RUNPATH and dlopen name this one
if(SKBUILD)  # a wheel: pip installs its scripts to bin and its data beside that
  set(CMAKE_INSTALL_BINDIR ${SKBUILD_SCRIPTS_DIR})
  set(module_folder ${SKBUILD_DATA_DIR}/lib/ddprun)
  if(DDPRUN_NOTICE)  # of what is linked in; packaging/package.py makes it
    install(FILES ${DDPRUN_NOTICE} DESTINATION ${SKBUILD_METADATA_DIR}/licenses COMPONENT launcher)
  endif()
endif()

install(TARGETS ddprun RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR} COMPONENT launcher)
# Only on request: it would hide PyTorch's torchrun from whoever has both on PATH.
option(DDPRUN_INSTALL_TORCHRUN_LINK "Also install a link named torchrun, so that scripts which call torchrun need no edit" OFF)
if(DDPRUN_INSTALL_TORCHRUN_LINK)
  install(CODE "
    set(link \"\$ENV{DESTDIR}\${CMAKE_INSTALL_PREFIX}/${CMAKE_INSTALL_BINDIR}/torchrun\")
    message(STATUS \"Linking: \${link} -> ddprun\")
    file(CREATE_LINK ddprun \"\${link}\" SYMBOLIC)" COMPONENT launcher)
endif()
if(DDPRUN_BUILD_TRAINER)
  install(TARGETS ddptrain RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
  install(DIRECTORY DESTINATION ${module_folder})
  install(CODE "
    set(link \"\$ENV{DESTDIR}\${CMAKE_INSTALL_PREFIX}/${module_folder}/torch\")
    message(STATUS \"Linking: \${link} -> ${TORCH_ROOT}\")
    file(CREATE_LINK \"${TORCH_ROOT}\" \"\${link}\" SYMBOLIC)")
endif()
# Modules are the MODULE libraries of the rooms.
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
install(DIRECTORY configs/ DESTINATION ${CMAKE_INSTALL_DATADIR}/ddprun/configs FILES_MATCHING PATTERN "*.json")
install(DIRECTORY docs/ DESTINATION ${CMAKE_INSTALL_DOCDIR})
install(FILES README.md LICENSE DESTINATION ${CMAKE_INSTALL_DOCDIR})
