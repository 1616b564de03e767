# usage: cmake -DVERSION=1.2.3 -DSOURCES=. -DFILE=header -P cmake/WriteVersion.cmake
#
# Writes the version and the commit of the checkout as a header. The header is written only when one of them changes. Outside a
# checkout, the commit is the one that git archive has inserted below, if any.
cmake_minimum_required(VERSION 3.25)
set(commit "$Format:%H$")  # export-subst, see .gitattributes
if(commit MATCHES "Format")
  set(commit "")
endif()
execute_process(COMMAND git -C ${SOURCES} rev-parse --show-toplevel OUTPUT_VARIABLE top ERROR_QUIET OUTPUT_STRIP_TRAILING_WHITESPACE)
get_filename_component(sources ${SOURCES} REALPATH)
if(top STREQUAL sources)  # false if the sources are within the checkout of another project
  execute_process(COMMAND git -C ${SOURCES} rev-parse HEAD OUTPUT_VARIABLE commit ERROR_QUIET OUTPUT_STRIP_TRAILING_WHITESPACE)
  execute_process(COMMAND git -C ${SOURCES} diff --quiet HEAD -- RESULT_VARIABLE changed ERROR_QUIET)
endif()
string(SUBSTRING "${commit}" 0 12 commit)
if(commit AND changed)
  string(APPEND commit "+")
endif()
file(CONFIGURE OUTPUT ${FILE} @ONLY
     CONTENT "#define DDPRUN_BUILT_VERSION \"${VERSION}\"\n#define DDPRUN_BUILT_COMMIT \"${commit}\"\n")
