# usage: cmake -DBUILD=b -P cmake/Uninstall.cmake
#
# Removes the files that `cmake --install b` has installed, and the folders that are then empty. The target `uninstall` runs
# this script. Files that no longer exist are skipped, and other files are not removed.
cmake_minimum_required(VERSION 3.25)
file(GLOB manifests ${BUILD}/install_manifest*.txt)
if(NOT manifests)
  message(FATAL_ERROR "${BUILD} has no install_manifest.txt: nothing was installed from there")
endif()
set(folders "")
foreach(manifest ${manifests})
  file(STRINGS ${manifest} files ENCODING UTF-8)
  foreach(file ${files})
    set(path "$ENV{DESTDIR}${file}")
    if(EXISTS "${path}" OR IS_SYMLINK "${path}")
      message(STATUS "Removing: ${path}")
      file(REMOVE "${path}")
    endif()
    get_filename_component(folder "${path}" DIRECTORY)
    if(path MATCHES "\\.py$")  # Python writes this file when a script imports the module
      file(REMOVE_RECURSE "${folder}/__pycache__")
    endif()
    while(NOT folder IN_LIST folders AND NOT folder STREQUAL "/")
      list(APPEND folders "${folder}")
      get_filename_component(folder "${folder}" DIRECTORY)
    endwhile()
  endforeach()
  file(REMOVE ${manifest})
endforeach()
# The deepest folders are removed first. rmdir does not remove a folder that is not empty.
list(SORT folders ORDER DESCENDING)
foreach(folder ${folders})
  execute_process(COMMAND rmdir "${folder}" ERROR_QUIET OUTPUT_QUIET RESULT_VARIABLE ignored)
endforeach()
