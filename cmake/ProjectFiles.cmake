# Writes a header that contains the files of sdk/project as strings. `ddprun init cpp` writes these files.
set(project_files CMakeLists.txt README.md task.cpp train.json)
set(project_folder ${CMAKE_BINARY_DIR}/generated/project)
set(entries)
foreach(file ${project_files})
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/sdk/project/${file})
  file(READ ${PROJECT_SOURCE_DIR}/sdk/project/${file} text)
  string(APPEND entries "    {\"${file}\", R\"~~~(${text})~~~\"},\n")
endforeach()
list(LENGTH project_files count)
file(WRITE ${project_folder}/files.in
"// Generated from sdk/project by cmake/ProjectFiles.cmake.
#pragma once
#include <array>
#include <string_view>
#include <utility>
namespace ddprun {
inline constexpr std::array<std::pair<std::string_view, std::string_view>, ${count}> kProjectFiles{{
${entries}}};
}  // namespace ddprun
")
configure_file(${project_folder}/files.in ${project_folder}/ddprun_project_files.hpp COPYONLY)
