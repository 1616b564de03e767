# What a worker program of somebody's own is built with, as `cmake --install` brings it: headers, one library with all of the
# trainer, and a package for find_package(ddprun). sdk/example is such a program; tests/whole_program/test_sdk.py builds it.
include(CMakePackageConfigHelpers)

# One archive of the rooms' archives, and of what they link that is an archive itself.
get_property(rooms GLOBAL PROPERTY DDPRUN_ROOMS)
set(archives)
set(targets)
foreach(room ${rooms})
  if(room MATCHES "^(common|trainer)/")
    string(REPLACE "/" "_" target ${room})
    get_target_property(type ${target} TYPE)
    if(type STREQUAL STATIC_LIBRARY)
      list(APPEND targets ${target})
      list(APPEND archives $<TARGET_FILE:${target}>)
    endif()
  endif()
endforeach()
set(shared_libraries)
foreach(library ${XXHASH_LIBRARY} ${LIBDEFLATE_LIBRARY})
  if(library MATCHES "\\.a$")
    list(APPEND archives ${library})
  else()
    get_filename_component(name ${library} NAME_WE)
    string(REGEX REPLACE "^lib" "" name ${name})
    list(APPEND shared_libraries ${name})
  endif()
endforeach()
list(REMOVE_DUPLICATES archives)
set(worker_library ${CMAKE_BINARY_DIR}/sdk/libddprun_worker.a)
list(JOIN archives "\nADDLIB " added)
file(GENERATE OUTPUT ${CMAKE_BINARY_DIR}/sdk/archive.mri CONTENT "CREATE ${worker_library}\nADDLIB ${added}\nSAVE\nEND\n")
add_custom_command(
  OUTPUT ${worker_library}
  COMMAND ${CMAKE_COMMAND} -E rm -f ${worker_library}
  COMMAND ${CMAKE_AR} -M < ${CMAKE_BINARY_DIR}/sdk/archive.mri
  COMMAND ${CMAKE_RANLIB} ${worker_library}
  DEPENDS ${targets} ${CMAKE_BINARY_DIR}/sdk/archive.mri
  COMMENT "Joining the library of worker programs"
  VERBATIM)
add_custom_target(ddprun_sdk ALL DEPENDS ${worker_library})

set(package_folder lib/cmake/ddprun)
configure_file(${PROJECT_SOURCE_DIR}/sdk/ddprunConfig.cmake.in ${CMAKE_BINARY_DIR}/sdk/ddprunConfig.cmake @ONLY)
write_basic_package_version_file(${CMAKE_BINARY_DIR}/sdk/ddprunConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${CMAKE_BINARY_DIR}/sdk/ddprunConfig.cmake ${CMAKE_BINARY_DIR}/sdk/ddprunConfigVersion.cmake
              ${PROJECT_SOURCE_DIR}/cmake/FindTorchFolder.cmake
        DESTINATION ${package_folder})
install(FILES ${worker_library} DESTINATION lib/ddprun)
install(FILES ${PROJECT_SOURCE_DIR}/sdk/include/ddprun/worker.hpp DESTINATION include/ddprun)
install(DIRECTORY ${PROJECT_SOURCE_DIR}/sdk/example DESTINATION ${CMAKE_INSTALL_DATADIR}/ddprun)
# What that header includes, and nothing else.
foreach(header common/base/error.hpp common/base/exit_code.hpp common/config/train_config.hpp trainer/data/inflated_files.hpp
               trainer/data/source.hpp trainer/life/subject.hpp trainer/life/worker.hpp trainer/surroundings/options.hpp
               trainer/task/figures.hpp trainer/task/task.hpp)
  get_filename_component(folder ${header} DIRECTORY)
  install(FILES ${PROJECT_SOURCE_DIR}/${header} DESTINATION include/ddprun/${folder})
endforeach()
