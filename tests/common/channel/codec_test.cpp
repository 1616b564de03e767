// Tests that messages pass through the worker channel (a socket between agent and worker) unchanged, no matter how the bytes
// are split into chunks. Invalid frames must be refused.
#include "common/channel/codec.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <limits>
#include <random>
#include <tuple>

namespace ddprun::channel {
namespace {

std::span<const std::byte> bytes_of(std::string_view text) {
  return std::as_bytes(std::span(text.data(), text.size()));
}

template <class Message>
Message through_worker_channel(const Message& message) {
  Decoder decoder;
  decoder.feed(bytes_of(encode(FromWorker(message))));
  const auto out = decoder.next_from_worker();
  EXPECT_TRUE(out.has_value());
  EXPECT_FALSE(decoder.next_from_worker().has_value());
  return std::get<Message>(out.value());
}

template <class Message>
Message through_agent_channel(const Message& message) {
  Decoder decoder;
  decoder.feed(bytes_of(encode(FromAgent(message))));
  return std::get<Message>(decoder.next_from_agent().value());
}

std::string frame(const std::string& json, const std::string& blob = "") {
  std::string out;
  for (const std::size_t length : {4 + json.size() + blob.size(), json.size()}) {
    for (unsigned i = 0; i < 4; ++i) out.push_back(static_cast<char>((length >> (8 * i)) & 0xff));
  }
  return out + json + blob;
}

std::string refused_bytes(const std::string& bytes) {
  Decoder decoder;
  decoder.feed(bytes_of(bytes));
  try {
    decoder.next_from_worker();
  } catch (const ProtocolError& error) {
    return error.what();
  }
  return "no error";
}

TEST(Codec, AFrameIsTwoLengthsJsonAndBytes) {
  EXPECT_EQ(encode(FromAgent(IgnoreSignal{15})), frame(R"({"signal":15,"type":"carry"})"));
  EXPECT_EQ(
      encode(FromAgent(StoreReply{7, StoreReply::Status::kOk, std::string("\0\xff", 2), 3, ""})),
      frame(R"({"id":7,"message":"","number":3,"status":"ok","type":"store_reply","value":2})", std::string("\0\xff", 2)));
}

TEST(Codec, WorkerMessagesRoundTrip) {
  const Hello hello = through_worker_channel(Hello{1, "0.1.0 (LibTorch 2.11)", 4711});
  EXPECT_EQ(hello.protocol, 1);
  EXPECT_EQ(hello.version, "0.1.0 (LibTorch 2.11)");
  EXPECT_EQ(hello.pid, 4711);
  EXPECT_EQ(hello.minor, kProtocolMinor);

  for (const Phase phase :
       {Phase::kStarting, Phase::kJoining, Phase::kRunning, Phase::kSaving, Phase::kEvaluating, Phase::kDone}) {
    const PhaseChange change = through_worker_channel(PhaseChange{phase, 5, 2});
    EXPECT_EQ(change.phase, phase);
    EXPECT_EQ(change.step, 5);
    EXPECT_EQ(change.epoch, 2);
  }

  EXPECT_EQ(through_worker_channel(Progress{.figures = {{"accuracy", 0.5}}}).figures, (MetricList{{"accuracy", 0.5}}));
  EXPECT_EQ(through_worker_channel(Progress{.figures_step = 7}).figures_step, 7);
  EXPECT_FALSE(through_worker_channel(Progress{}).figures_step);
  for (const Stage stage : {Stage::kBatchNorm, Stage::kSomewhere})
    EXPECT_EQ(through_worker_channel(Position{.stage = stage}).stage, stage);
  const Position position = through_worker_channel(Position{Phase::kRunning, 17, Stage::kOptimizer});
  EXPECT_EQ(position.step, 17);
  EXPECT_EQ(position.stage, Stage::kOptimizer);

  const EvalResult eval = through_worker_channel(EvalResult{400, 2, {{"loss", 0.25}, {"accuracy", 0.9025}}, 10000});
  EXPECT_EQ(eval.figures, (MetricList{{"loss", 0.25}, {"accuracy", 0.9025}}));
  EXPECT_EQ(eval.samples, 10000);

  WorkerError error{ErrorKind::kOutOfMemory, "CUDA out of memory", "cuda:1", 17, Phase::kSaving, 1 << 30, {}, 123, false, 84};
  error = through_worker_channel(error);
  EXPECT_EQ(error.kind, ErrorKind::kOutOfMemory);
  EXPECT_EQ(error.message, "CUDA out of memory");
  EXPECT_EQ(error.device, "cuda:1");
  EXPECT_EQ(error.phase, Phase::kSaving);
  EXPECT_EQ(error.bytes_asked, 1 << 30);
  EXPECT_FALSE(error.bytes_free.has_value());
  EXPECT_FALSE(error.fatal);
  EXPECT_EQ(error.exit_code, 84);

  const auto saved =
      through_worker_channel(CheckpointPublished{400, "/runs/a/checkpoints/step-000000400", 0.001, 0.25, 1 << 20});
  EXPECT_EQ(saved.path, "/runs/a/checkpoints/step-000000400");
  EXPECT_EQ(saved.pause_s, 0.001);
  EXPECT_EQ(through_worker_channel(SignalReceived{15}).signal, 15);
  EXPECT_EQ(through_worker_channel(StopReady{99}).started, 99);
  through_worker_channel(SavesOnStop{});
  through_worker_channel(Regroupable{});
  through_worker_channel(StandbyReady{});
  const RegroupReady ready = through_worker_channel(RegroupReady{.generation = 3, .step = -1});
  EXPECT_EQ(ready.generation, 3);
  EXPECT_EQ(ready.step, -1);
  const GroupFormed regrouped = through_worker_channel(GroupFormed{.generation = 3, .step = 120});
  EXPECT_EQ(regrouped.generation, 3);
  EXPECT_EQ(regrouped.step, 120);
}

TEST(Codec, AgentMessagesRoundTrip) {
  const Stop stop = through_agent_channel(Stop{Stop::Mode::kSave, 30000, "SIGTERM"});
  EXPECT_EQ(stop.mode, Stop::Mode::kSave);
  EXPECT_EQ(stop.deadline_ms, 30000);
  EXPECT_EQ(stop.reason, "SIGTERM");
  EXPECT_EQ(through_agent_channel(StopAt{1000}).step, 1000);
  EXPECT_EQ(through_agent_channel(IgnoreSignal{10}).signal, 10);
  EXPECT_EQ(through_agent_channel(Regroup{.generation = 4}).generation, 4);
  const Regroup regroup =
      through_agent_channel(Regroup{.generation = 5, .rank = 3, .world_size = 6, .group_rank = 1, .group_world_size = 2});
  EXPECT_EQ(std::tuple(regroup.rank, regroup.world_size, regroup.group_rank, regroup.group_world_size), std::tuple(3, 6, 1, 2));
  through_agent_channel(Hold{});
  const AssignRank assignment = through_agent_channel(AssignRank{.rank = 5, .local_rank = 1, .restart_count = 7});
  EXPECT_EQ(assignment.rank, 5);
  EXPECT_EQ(assignment.local_rank, 1);
  EXPECT_EQ(assignment.restart_count, 7);
  through_agent_channel(PositionRequest{});
  const StoreReply reply = through_agent_channel(StoreReply{~0ull, StoreReply::Status::kError, "", -3, "no such key"});
  EXPECT_EQ(reply.id, ~0ull);
  EXPECT_EQ(reply.status, StoreReply::Status::kError);
  EXPECT_EQ(reply.number, -3);
  EXPECT_EQ(reply.message, "no such key");
}

TEST(Codec, DoublesRoundTripBitForBit) {
  for (const double value :
       {0.1, 1.0 / 3, -0.0, 1e-308, 5e-324, std::numeric_limits<double>::max(), 1.0, 123456789012345678.0}) {
    const Progress progress = through_worker_channel(Progress{.loss = value});
    EXPECT_EQ(progress.loss, value);
    EXPECT_EQ(std::signbit(*progress.loss), std::signbit(value));
    EXPECT_FALSE(progress.lr.has_value());
  }
}

TEST(Codec, NonFiniteLossesRoundTrip) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  EXPECT_TRUE(std::isnan(*through_worker_channel(Progress{.loss = std::nan("")}).loss));
  EXPECT_EQ(through_worker_channel(Progress{.loss = kInfinity}).loss, kInfinity);
  EXPECT_EQ(through_worker_channel(EvalResult{.figures = {{"loss", -kInfinity}}}).figures.at(0).value, -kInfinity);
}

TEST(Codec, IntegersAtTheirLimits) {
  constexpr auto kMin = std::numeric_limits<std::int64_t>::min();
  constexpr auto kMax = std::numeric_limits<std::int64_t>::max();
  EXPECT_EQ(through_worker_channel(StopReady{kMin}).started, kMin);
  EXPECT_EQ(through_worker_channel(StopReady{kMax}).started, kMax);
}

TEST(Codec, KeysAndValuesAreBytes) {
  StoreRequest request;
  request.id = 1;
  request.op = StoreRequest::Op::kCompareSet;
  request.keys = {std::string("a\0\xff", 3), ""};
  request.value = std::string(1 << 20, '\x80');
  request.expected = "\xc3";
  request.timeout_ms = -1;
  const StoreRequest out = through_worker_channel(request);
  EXPECT_EQ(out.op, request.op);
  EXPECT_EQ(out.keys, request.keys);
  EXPECT_EQ(out.value, request.value);
  EXPECT_EQ(out.expected, request.expected);
  EXPECT_EQ(out.timeout_ms, -1);
}

TEST(Codec, StoreOperationsAndStatusesRoundTrip) {
  for (int op = 0; op <= static_cast<int>(StoreRequest::Op::kNumKeys); ++op) {
    StoreRequest request{.op = static_cast<StoreRequest::Op>(op), .keys = {}, .value = "", .expected = ""};
    EXPECT_EQ(through_worker_channel(request).op, request.op);
  }
  for (int status = 0; status <= static_cast<int>(StoreReply::Status::kError); ++status) {
    StoreReply reply{.status = static_cast<StoreReply::Status>(status), .value = "", .message = ""};
    EXPECT_EQ(through_agent_channel(reply).status, reply.status);
  }
}

TEST(Codec, LargestValuePassesAndOneByteMoreFails) {
  StoreRequest request{.keys = {std::string(kMaxKeyBytes, 'k')}, .value = std::string(kMaxValueBytes, 'v'), .expected = ""};
  EXPECT_EQ(through_worker_channel(request).value.size(), kMaxValueBytes);
  request.value += 'v';
  EXPECT_THROW(encode(FromWorker(request)), ProtocolError);
  request.value = "";
  request.keys = {std::string(kMaxKeyBytes + 1, 'k')};
  EXPECT_THROW(encode(FromWorker(request)), ProtocolError);
  request.keys.assign(kMaxKeys + 1, "k");
  EXPECT_THROW(encode(FromWorker(request)), ProtocolError);
}

TEST(Codec, ErrorMessagesAreRepairedAndTruncated) {
  WorkerError error;
  error.message = "bad \xff byte";
  EXPECT_EQ(through_worker_channel(error).message, "bad \xEF\xBF\xBD byte");
  error.message = "x" + std::string(kMaxTextBytes, '\x01');
  error.device = std::string(2 * kMaxTextBytes, '\x01');
  EXPECT_EQ(through_worker_channel(error).message.size(), kMaxTextBytes);
  error.message = "x";
  while (error.message.size() < 2 * kMaxTextBytes) error.message += "\xC3\xA9";  // the limit falls within a two-byte character
  EXPECT_EQ(through_worker_channel(error).message.size(), kMaxTextBytes - 1);
}

TEST(Codec, DecodesBytesInAnyPieces) {
  std::string stream;
  for (std::int64_t i = 0; i < 50; ++i) {
    stream += encode(FromWorker(StopReady{i}));
    stream += encode(
        FromWorker(StoreRequest{.keys = {"k"}, .value = std::string(static_cast<std::size_t>(i) * 7, 'v'), .expected = ""}));
  }
  for (const std::size_t piece : {1u, 3u, 64u, 1000u, 100000u}) {
    Decoder decoder;
    std::int64_t count = 0;
    for (std::size_t at = 0; at < stream.size(); at += piece) {
      decoder.feed(bytes_of(std::string_view(stream).substr(at, piece)));
      while (const auto message = decoder.next_from_worker()) {
        if (count % 2 == 0) {
          EXPECT_EQ(std::get<StopReady>(*message).started, count / 2);
        } else {
          EXPECT_EQ(std::get<StoreRequest>(*message).value.size(), static_cast<std::size_t>(count / 2) * 7);
        }
        ++count;
      }
    }
    EXPECT_EQ(count, 100);
  }
}

TEST(Codec, LimitsAreCheckedBeforeTheBytesArrive) {
  EXPECT_EQ(refused_bytes("\xff\xff\xff\xff"),
            "expected a frame of 4 to 17825788 bytes, found a declared length of 4294967295");
  EXPECT_EQ(refused_bytes(std::string(4, '\0')), "expected a frame of 4 to 17825788 bytes, found a declared length of 0");
  EXPECT_EQ(refused_bytes(std::string("\x08\0\0\0\x05\0\0\0", 8)),
            "a frame of 8 bytes declares a JSON part of 5 bytes, which is too long");
}

TEST(Codec, InvalidMessagesAreRefused) {
  EXPECT_EQ(refused_bytes(frame("")), "the header of a frame is not a JSON object");
  EXPECT_EQ(refused_bytes(frame("[1]")), "the header of a frame is not a JSON object");
  EXPECT_EQ(refused_bytes(frame("{}")), "a message has no type");
  EXPECT_EQ(refused_bytes(frame(R"({"type":"signal"})")), "field 'signal' is missing");
  EXPECT_EQ(refused_bytes(frame(R"({"type":"signal","signal":"9"})")),
            "field 'signal': expected an integer in range, found string");
  EXPECT_EQ(refused_bytes(frame(R"({"type":"signal","signal":4294967296})")),
            "field 'signal': expected an integer in range, found number");
  EXPECT_EQ(refused_bytes(frame(R"({"type":"signal","signal":1.5})")),
            "field 'signal': expected an integer in range, found number");
  EXPECT_EQ(refused_bytes(frame(R"({"type":"phase","phase":"x","step":0,"epoch":0})")), "field 'phase' has an unknown value");
  const std::string store = R"({"type":"store","id":1,"op":"set","keys":[1],"value":9,"expected":0,"amount":0,"timeout_ms":0})";
  EXPECT_EQ(refused_bytes(frame(store, "kv")),
            "field 'value' has a declared length of 9 bytes, but only 1 are left in the frame");
}

TEST(Codec, AdditionsOfNewerMinorVersionsAreIgnored) {
  Decoder decoder;
  decoder.feed(bytes_of(frame(R"({"type":"dance","tempo":3})", "bytes of it")));
  decoder.feed(bytes_of(frame(R"({"type":"stop"})")));  // only the agent may send this message
  decoder.feed(bytes_of(frame(R"({"type":"signal","signal":9,"more":[1]})", "bytes behind it")));
  EXPECT_EQ(std::get<SignalReceived>(decoder.next_from_worker().value()).signal, 9);
  EXPECT_FALSE(decoder.next_from_worker().has_value());
  decoder.feed(bytes_of(frame(R"({"type":"position","phase":"running","step":3,"stage":"dancing"})")));
  EXPECT_EQ(std::get<Position>(decoder.next_from_worker().value()).stage, Stage::kSomewhere);
  decoder.feed(bytes_of(frame(R"({"type":"dance"})") + frame(R"({"type":"stop_at","step":5,"more":null})")));
  EXPECT_EQ(std::get<StopAt>(decoder.next_from_agent().value()).step, 5);
}

TEST(Codec, FieldsMissingInOlderMinorVersionsGetDefaults) {
  Decoder decoder;
  decoder.feed(bytes_of(frame(R"({"type":"hello","protocol":1,"version":"v","pid":2})")));
  EXPECT_EQ(std::get<Hello>(decoder.next_from_worker().value()).minor, 0);
  const std::string progress = R"({"type":"progress","step":1,"steps_total":2,"epoch":0,"epochs":0,"samples":3})";
  decoder.feed(bytes_of(frame(progress)));
  EXPECT_TRUE(std::get<Progress>(decoder.next_from_worker().value()).figures.empty());
  EXPECT_EQ(encode(FromWorker(Progress{.step = 1})).find("figures"), std::string::npos)
      << "it costs nothing where there are none";
}

TEST(Codec, StepTimesRoundTripAndAreValidated) {
  const Pace pace{.times = {{.step = 7, .steps = 1, .own_us = 20'000, .waiting_us = 3, .data_us = 0}, {.step = 9, .steps = 2}}};
  EXPECT_EQ(through_worker_channel(pace).times, pace.times);
  Decoder decoder;
  decoder.feed(bytes_of(frame(R"({"type":"pace","times":[[1,2,3,4,5,"of a newer version"]]})")));
  EXPECT_EQ(std::get<Pace>(decoder.next_from_worker().value()).times.at(0).data_us, 5);
  EXPECT_EQ(refused_bytes(frame(R"({"type":"pace","times":[[1,2,3,4]]})")),
            "field 'times': expected five numbers for each step, found array");
  EXPECT_EQ(refused_bytes(frame(R"({"type":"pace","times":[[1,2,3,4,0.5]]})")),
            "field 'times': expected an integer in range, found number");
  EXPECT_EQ(refused_bytes(frame(R"({"type":"pace","times":7})")),
            "field 'times': expected an array of step times, found number");
  EXPECT_THROW(encode(FromWorker(Pace{.times = std::vector<StepTime>(kMaxStepTimes + 1)})), ProtocolError);
}

// In a different major version, all other fields of the message, and all later messages, may have a different meaning. So only
// the version is read.
TEST(Codec, OnlyTheVersionOfAnotherMajorIsRead) {
  Decoder decoder;
  decoder.feed(bytes_of(frame(R"({"type":"hello","protocol":2,"minor":7,"version":"9.0","pid":"twelve"})")));
  const Hello hello = std::get<Hello>(decoder.next_from_worker().value());
  EXPECT_EQ(hello.protocol, 2);
  EXPECT_EQ(hello.minor, 7);
  EXPECT_EQ(hello.version, "9.0");
  decoder.feed(bytes_of(frame(R"({"type":"hello","protocol":2})")));
  EXPECT_EQ(std::get<Hello>(decoder.next_from_worker().value()).minor, 0);
  EXPECT_EQ(refused_bytes(frame(R"({"type":"hello","protocol":"2"})")),
            "field 'protocol': expected an integer in range, found string");
}

// Randomly damaged bytes give a message, an incomplete frame or a ProtocolError, but never a crash. A failure prints its seed,
// and DDPRUN_TEST_SEED=SEED repeats the failure.
TEST(Codec, DamagedStreamsNeverCrash) {
  const char* given = std::getenv("DDPRUN_TEST_SEED");
  const unsigned seed = given != nullptr ? static_cast<unsigned>(std::strtoul(given, nullptr, 10)) : std::random_device{}();
  SCOPED_TRACE("DDPRUN_TEST_SEED=" + std::to_string(seed));
  std::mt19937 random(seed);
  const auto below = [&](std::size_t n) { return std::uniform_int_distribution<std::size_t>(0, n - 1)(random); };

  WorkerError error;
  error.message = "boom";
  const std::vector<std::string> worker_frames{
      encode(FromWorker(Hello{1, "v", 2})), encode(FromWorker(Progress{.step = 3, .loss = 0.5})), encode(FromWorker(error)),
      encode(FromWorker(StoreRequest{.keys = {"a", "bc"}, .value = "value", .expected = "x"}))};
  const std::vector<std::string> agent_frames{encode(FromAgent(Stop{Stop::Mode::kNow, 1, "r"})),
                                              encode(FromAgent(StoreReply{.value = "abc", .message = ""}))};
  int refused = 0, passed = 0;
  for (int round = 0; round < 20000; ++round) {
    const bool from_worker = below(2) == 0;
    const auto& frames = from_worker ? worker_frames : agent_frames;
    std::string stream = frames[below(frames.size())] + frames[below(frames.size())];
    for (std::size_t n = below(4); n > 0; --n) {
      const std::size_t at = below(stream.size());
      switch (below(3)) {
        case 0:
          stream[at] = static_cast<char>(below(256));
          break;
        case 1:
          stream.erase(at, 1 + below(3));
          break;
        default:
          stream.insert(at, 1, static_cast<char>(below(256)));
      }
    }
    Decoder decoder;
    try {
      while (!stream.empty()) {
        const std::size_t piece = std::min(stream.size(), 1 + below(40));
        decoder.feed(bytes_of(std::string_view(stream).substr(0, piece)));
        stream.erase(0, piece);
        while (from_worker ? decoder.next_from_worker().has_value() : decoder.next_from_agent().has_value()) ++passed;
      }
    } catch (const ProtocolError&) {
      ++refused;
    }
  }
  EXPECT_GT(refused, 0);
  EXPECT_GT(passed, 0);
}

}  // namespace
}  // namespace ddprun::channel
