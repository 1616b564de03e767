# Installs the files that users need to build their own worker program: headers, one library with the whole trainer, and a
# package for find_package(ddprun). sdk/example is such a program; tests/whole_program/test_sdk.py builds it.
include(CMakePackageConfigHelpers)

# One archive contains the objects of all modules. The archives that they link are installed next to it.
add_library(ddprun_worker STATIC)
set_target_properties(ddprun_worker PROPERTIES LINKER_LANGUAGE CXX ARCHIVE_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/sdk)
get_property(modules GLOBAL PROPERTY DDPRUN_MODULES)
foreach(module ${modules})
  ddprun_target_of(${module} target)
  get_target_property(type ${target} TYPE)
  if(module MATCHES "^(common|trainer)/" AND type STREQUAL STATIC_LIBRARY)
    target_sources(ddprun_worker PRIVATE $<TARGET_OBJECTS:${target}>)
  endif()
endforeach()
set(archives)
set(linked_libraries)  # the name that ddprunConfig.cmake uses
foreach(library ${XXHASH_LIBRARY} ${LIBDEFLATE_LIBRARY} ${JPEG_LIBRARY} ${PNG_LIBRARY})
  get_filename_component(file ${library} NAME)
  if(library MATCHES "\\.a$")
    list(APPEND archives ${library})
    list(APPEND linked_libraries "\${ddprun_prefix}/lib/ddprun/${file}")
  else()
    string(REGEX REPLACE "^lib|\\.so.*$" "" name ${file})
    list(APPEND linked_libraries ${name})
  endif()
endforeach()
list(JOIN linked_libraries " " linked_libraries)

set(package_folder lib/cmake/ddprun)
configure_file(${PROJECT_SOURCE_DIR}/sdk/ddprunConfig.cmake.in ${CMAKE_BINARY_DIR}/sdk/ddprunConfig.cmake @ONLY)
write_basic_package_version_file(${CMAKE_BINARY_DIR}/sdk/ddprunConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${CMAKE_BINARY_DIR}/sdk/ddprunConfig.cmake ${CMAKE_BINARY_DIR}/sdk/ddprunConfigVersion.cmake
              ${PROJECT_SOURCE_DIR}/cmake/FindTorchFolder.cmake
        DESTINATION ${package_folder})
install(TARGETS ddprun_worker ARCHIVE DESTINATION lib/ddprun)
install(FILES ${archives} DESTINATION lib/ddprun)
install(DIRECTORY ${PROJECT_SOURCE_DIR}/sdk/include/ddprun DESTINATION include)
install(DIRECTORY ${PROJECT_SOURCE_DIR}/sdk/example DESTINATION ${CMAKE_INSTALL_DATADIR}/ddprun)
install(FILES ${PROJECT_SOURCE_DIR}/examples/cpp-loop/loop.cpp DESTINATION ${CMAKE_INSTALL_DATADIR}/ddprun/example)
# Installs the headers that the public headers include, and no others.
foreach(header common/base/error.hpp common/base/exit_code.hpp common/config/task_keys.hpp common/config/train_config.hpp trainer/data/inflated_files.hpp
               trainer/data/source.hpp trainer/image_files/data_check.hpp trainer/life/subject.hpp trainer/life/worker.hpp trainer/surroundings/options.hpp
               trainer/surroundings/bench_options.hpp trainer/surroundings/saved_options.hpp trainer/task/figures.hpp trainer/task/task.hpp)
  get_filename_component(folder ${header} DIRECTORY)
  install(FILES ${PROJECT_SOURCE_DIR}/${header} DESTINATION include/ddprun/${folder})
endforeach()
