# Defines the target Boost::headers, from any Boost that has the required features. asio's as_tuple left its experimental
# namespace late (1.81 is the oldest version that was tried), and Debian 12 has an older Boost under the usual name.
# find_package(Boost) is not used: it only returns a version number, and CMake 3.30 and newer warn about it.
find_path(DDPRUN_BOOST_INCLUDE boost/asio/as_tuple.hpp HINTS ENV BOOST_ROOT)
if(DDPRUN_BOOST_INCLUDE)
  foreach(header boost/beast/http.hpp boost/crc.hpp)
    if(NOT EXISTS ${DDPRUN_BOOST_INCLUDE}/${header})
      message(FATAL_ERROR "Boost in ${DDPRUN_BOOST_INCLUDE} lacks ${header}: install all of Boost's headers")
    endif()
  endforeach()
  file(STRINGS ${DDPRUN_BOOST_INCLUDE}/boost/version.hpp version REGEX "define BOOST_LIB_VERSION")
  string(REGEX REPLACE ".*\"(.*)\".*" "\\1" version "${version}")
  message(STATUS "Boost ${version}: ${DDPRUN_BOOST_INCLUDE}")
else()
  message(FATAL_ERROR "Boost 1.81 or newer (boost/asio/as_tuple.hpp) was not found. Install libboost1.81-dev "
                      "(Debian 12) or libboost-dev (newer ones), or pass -DDDPRUN_BOOST_INCLUDE=DIR, a folder that contains boost/.")
endif()
add_library(Boost::headers INTERFACE IMPORTED GLOBAL)
target_include_directories(Boost::headers INTERFACE ${DDPRUN_BOOST_INCLUDE})
