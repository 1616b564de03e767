#include "trainer/reading/source_error.hpp"

#include <c10/util/Exception.h>

#include <new>
#include <string>

#include "common/base/error.hpp"
#include "trainer/reading/mapping_watch.hpp"

namespace ddprun::trainer {

void rethrow_as_source_error() {
  require_mapped_files();  // throws if a mapped file has changed: the caught error is then only a consequence
  try {
    throw;
  } catch (const Error&) {
    throw;
  } catch (const SourceError&) {
    throw;
  } catch (const std::bad_alloc& refused) {
    throw SourceError(refused.what(), /*out_of_memory=*/true);
  } catch (const c10::OutOfMemoryError& refused) {
    throw SourceError(refused.what_without_backtrace(), /*out_of_memory=*/true);
  } catch (const c10::Error& error) {
    const std::string message = error.what_without_backtrace();
    // If the CPU allocator runs out of memory, it throws a plain c10::Error with this text.
    const bool memory = message.find("DefaultCPUAllocator") != std::string::npos;
    throw SourceError(message, memory);
  } catch (const std::exception& error) {
    throw SourceError(error.what(), /*out_of_memory=*/false);
  } catch (...) {
    throw SourceError("the data source threw an exception of an unknown type", /*out_of_memory=*/false);
  }
}

}  // namespace ddprun::trainer
