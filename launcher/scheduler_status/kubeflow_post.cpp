#include "launcher/scheduler_status/kubeflow_post.hpp"

#include <cstdlib>
#include <string>

#include "common/base/error.hpp"
#include "common/base/printable.hpp"
#include "common/bounded/bounded_file.hpp"
#include "launcher/scheduler_status/kubeflow_body.hpp"
#include "rendezvous/identity/tls.hpp"

namespace ddprun {
namespace {

constexpr const char* kUrl = "KUBEFLOW_TRAINER_SERVER_URL";
constexpr const char* kCaFile = "KUBEFLOW_TRAINER_SERVER_CA_CERT";
constexpr const char* kTokenFile = "KUBEFLOW_TRAINER_SERVER_TOKEN";
constexpr std::size_t kMaxTokenFile = 64 << 10;
constexpr std::size_t kMaxDetail = 200;

std::string variable(const char* name) {
  const char* const value = std::getenv(name);
  return value != nullptr ? value : "";
}

std::string post(const std::string& body) {
  const auto url = parse_https_url(variable(kUrl));
  if (!url) return std::string(kUrl) + " is not an https URL: '" + printable(variable(kUrl)) + "'";
  const std::string file = variable(kTokenFile);
  const auto token = bearer_token(read_bounded(file, kMaxTokenFile, "the token of Kubeflow"));
  if (!token) return file + ", named by " + kTokenFile + ", contains no bearer token";
  const HttpsAnswer answer = tls_module().post(
      {.host = url->host, .port = url->port, .path = url->path, .ca_file = variable(kCaFile), .bearer = *token, .body = body});
  if (answer.status >= 200 && answer.status < 300) return "";
  const std::string detail = answer.problem.empty() ? "" : ": " + printable(cut_to(answer.problem, kMaxDetail));
  return answer.status == 0 ? "no answer" + detail : "answer " + std::to_string(answer.status) + detail;
}

}  // namespace

std::string post_kubeflow_status(const std::string& body) {
  try {
    return post(body);
  } catch (const Error& error) {
    return error.what();
  }
}

bool has_kubeflow_server() {
  return !variable(kUrl).empty() && !variable(kCaFile).empty() && !variable(kTokenFile).empty();
}

}  // namespace ddprun
