#include "trainer/failure/failure.hpp"

#include <c10/util/Exception.h>

#include <new>
#include <regex>
#include <string>

#include "trainer/parallel/process_group.hpp"
#include "trainer/reading/source_error.hpp"
#include "trainer/state/program_builds.hpp"
#include "trainer/state/state_comparison.hpp"

namespace ddprun::trainer {
namespace {

std::optional<std::int64_t> size_in(const std::string& message, const char* pattern) {
  std::smatch found;
  if (!std::regex_search(message, found, std::regex(pattern, std::regex::icase))) return std::nullopt;
  const std::string unit = found[2];
  double scale = 1;
  for (const char* larger : {"KiB", "MiB", "GiB", "TiB"}) {
    scale *= 1024;
    if (unit == larger) return static_cast<std::int64_t>(std::stod(found[1]) * scale);
  }
  return static_cast<std::int64_t>(std::stod(found[1]));
}

bool is_out_of_memory_text(const std::string& message) {
  // c10's CPU allocator throws a plain c10::Error, so only the message identifies the error.
  return message.find("DefaultCPUAllocator") != std::string::npos || message.find("not enough memory") != std::string::npos ||
         message.find("can't allocate memory") != std::string::npos;
}

Failure out_of_memory(const std::string& message) {
  return {.kind = channel::ErrorKind::kOutOfMemory,
          .exit_code = static_cast<int>(ExitCode::kOutOfMemory),
          .message = "out of memory: " + message,
          .bytes_asked = bytes_requested_in(message),
          .bytes_free = bytes_free_in(message)};
}

channel::ErrorKind kind_of(ExitCode code) {
  switch (code) {
    case ExitCode::kUsage:
      return channel::ErrorKind::kUsage;
    case ExitCode::kOutOfMemory:
      return channel::ErrorKind::kOutOfMemory;
    case ExitCode::kBadCheckpoint:
      return channel::ErrorKind::kCheckpoint;
    case ExitCode::kDiverged:
      return channel::ErrorKind::kDiverged;
    case ExitCode::kSuperseded:
      return channel::ErrorKind::kSuperseded;
    default:
      return channel::ErrorKind::kException;
  }
}

// If `message` is PyTorch's error about an operator without a deterministic implementation, returns our message for this
// error. Otherwise returns an empty string. PyTorch's message starts with the operator's name.
std::string nondeterministic_operator(const std::string& message) {
  const std::size_t end = message.find(" does not have a deterministic implementation");
  if (end == std::string::npos) return "";
  return "\"deterministic\" is true, but the operator " + message.substr(0, end) +
         " has no deterministic implementation on this device; set \"deterministic\" to false, or use another operator";
}

// Classifies an exception that is not one of ddprun's classes.
Failure foreign(const std::exception& error, const std::string& message) {
  if (is_out_of_memory_text(message)) return out_of_memory(message);
  if (const std::string refusal = nondeterministic_operator(message); !refusal.empty()) {
    return {.kind = channel::ErrorKind::kUsage, .exit_code = static_cast<int>(ExitCode::kUsage), .message = refusal};
  }
  if (is_lost_peer(error)) return {.kind = channel::ErrorKind::kLostPeer, .message = "lost a peer: " + message};
  return {.message = message};
}

}  // namespace

std::optional<std::int64_t> bytes_requested_in(const std::string& message) {
  return size_in(message, R"(tried to allocate ([0-9.]+) ?(bytes|KiB|MiB|GiB|TiB))");
}

std::optional<std::int64_t> bytes_free_in(const std::string& message) {
  return size_in(message, R"(of which ([0-9.]+) ?(bytes|KiB|MiB|GiB|TiB) is free)");
}

Failure classify(const std::exception_ptr& error) {
  try {
    std::rethrow_exception(error);
  } catch (const CorruptStateError& corrupt) {
    return {.kind = channel::ErrorKind::kCorruptState,
            .exit_code = static_cast<int>(corrupt.code()),
            .message = corrupt.what(),
            .others_suspect = corrupt.others_suspect()};
  } catch (const OtherBuildError& other) {
    return {.message = other.what(), .others_suspect = true};
  } catch (const UnsavedError& unsaved) {
    return {.kind = channel::ErrorKind::kCheckpoint, .exit_code = static_cast<int>(unsaved.code()), .message = unsaved.what()};
  } catch (const Error& known) {
    return {.kind = kind_of(known.code()), .exit_code = static_cast<int>(known.code()), .message = known.what()};
  } catch (const SourceError& source) {
    Failure failure = source.out_of_memory() ? out_of_memory(source.what()) : Failure{.message = source.what()};
    failure.of_data = true;
    if (source.out_of_memory()) failure.message += "; memory ran out while data was read, so a smaller batch does not help";
    return failure;
  } catch (const c10::OutOfMemoryError& refused) {
    return out_of_memory(refused.what_without_backtrace());
  } catch (const std::bad_alloc& refused) {
    return out_of_memory(refused.what());
  } catch (const c10::Error& torch) {
    return foreign(torch, torch.what_without_backtrace());  // LibTorch's C++ stack does not help users
  } catch (const std::exception& other) {
    return foreign(other, other.what());
  } catch (...) {
    return {.message = "an exception of an unknown type"};
  }
}

}  // namespace ddprun::trainer
