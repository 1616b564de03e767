// Checks the flag protocol with the model checker (flag_model.hpp): all executions of 2 and 3 ranks are correct, and each
// planted error is found.
#include <gtest/gtest.h>

#include "tests/trainer/collectives/flag_model.hpp"
#include "trainer/collectives/exchange.hpp"
#include "trainer/collectives/send_receive.hpp"

namespace ddprun::trainer::collectives::model {
namespace {

// An exchange whose steps access the data of the model instead of memory. Each chunk has a different value. So it is a
// violation too if a rank reads the data of a different chunk.
class ModelExchange final : public Exchange {
 public:
  ModelExchange(Transport& transport, std::uint64_t chunks, bool combines, std::uint64_t number)
      : Exchange(transport,
                 {.kind = combines ? OperationKind::kAllReduce : OperationKind::kAllGather,
                  .type = ElementType::kU8,
                  .elements = chunks * 64},
                 1, nullptr),
        combines_(combines),
        number_(number * 100) {}

 private:
  bool combines() const override { return combines_; }
  std::uint64_t value(const Chunk& chunk) const { return number_ + chunk.begin / 64; }

  void write(const Chunk& chunk) override { write_data(rank(), Data::kInput, rank(), chunk.slot, value(chunk)); }
  void combine(const Chunk& chunk) override {
    for (int from = 0; from < ranks(); ++from) {
      if (from == rank()) continue;
      if (all_exposed()) {
        // The reduction is in place: each rank changes its slice of the buffers of all ranks.
        write_data(rank(), Data::kExposed, from, slice(), number_ + 1);
      } else {
        require(read_data(rank(), Data::kInput, from, chunk.slot) == value(chunk), "a rank combines another chunk");
      }
    }
    if (all_exposed()) {
      write_data(rank(), Data::kExposed, rank(), slice(), number_ + 1);
    } else {
      write_data(rank(), Data::kResult, rank(), chunk.slot, value(chunk));
    }
  }
  void read(const Chunk& chunk) override {
    for (int from = 0; from < ranks(); ++from) {
      if (from == rank() || (all_exposed() && combines_)) continue;
      const std::uint64_t found = all_exposed() ? read_data(rank(), Data::kExposed, from, 0)
                                                : read_data(rank(), combines_ ? Data::kResult : Data::kInput, from, chunk.slot);
      require(found == value(chunk), "a rank reads another chunk");
    }
  }
  std::size_t slice() const { return static_cast<std::size_t>(rank()); }

  bool combines_;
  std::uint64_t number_;
};

void copied(Transport& transport, std::uint64_t chunks, bool combines, std::uint64_t number = 1) {
  ModelExchange(transport, chunks, combines, number).run();
}

// In this program each rank writes its buffer before a collective, and reads and changes it after the collective.
void exposed(Transport& transport, bool combines) {
  for (std::uint64_t number = 1; number <= 2; ++number) {
    const auto slices = static_cast<std::size_t>(combines ? transport.ranks() : 1);
    for (std::size_t slice = 0; slice < slices; ++slice) {
      write_data(transport.rank(), Data::kExposed, transport.rank(), slice, number * 100);
    }
    copied(transport, 1, combines, number);
    for (std::size_t slice = 0; slice < slices && combines; ++slice) {
      require(read_data(transport.rank(), Data::kExposed, transport.rank(), slice) == number * 100 + 1,
              "a slice is not reduced");
    }
  }
}

void several_short(Transport& transport) {
  for (std::uint64_t number = 1; number <= 3; ++number) copied(transport, 1, /*combines=*/false, number);
}

// In this program rank 1 makes no call, as if it hung outside of collectives.
void one_missing(Transport& transport) {
  if (transport.rank() == 0) copied(transport, 1, /*combines=*/false);
}

// In this program rank 1 stops after it has published its first phase.
void stops_after_one(Transport& transport) {
  const std::uint32_t phase = transport.arrive();
  if (transport.rank() == 0) transport.await_all(phase + kPhaseStep);
}

void messages(Transport& transport) {
  Messages lane(transport);
  std::byte data[300]{};  // needs five 64-byte cells
  if (transport.rank() == 1) lane.send(0, 1, data);
  if (transport.rank() == 0) lane.receive(1, 1, data);
}

struct Case {
  const char* name;
  Scenario scenario;
};

Scenario with(int ranks, std::function<void(Transport&)> program) {
  Scenario scenario;
  scenario.ranks = ranks;
  scenario.program = std::move(program);
  return scenario;
}

Scenario exposed_with(int ranks, bool combines) {
  Scenario scenario = with(ranks, [combines](Transport& each) { exposed(each, combines); });
  scenario.exposed = true;
  return scenario;
}

Scenario aborted(Scenario scenario) {
  scenario.aborts = true;
  return scenario;
}

Scenario waiting(Waiting how, Scenario scenario) {
  scenario.waiting = how;
  return scenario;
}

const Scenario& copied_by_2() {
  static const Scenario scenario = with(2, [](Transport& each) { copied(each, 5, false); });
  return scenario;
}

std::vector<Case> cases() {
  return {
      {"2 ranks, 5 chunks", copied_by_2()},
      {"2 ranks, 2 chunks, spinning or sleeping",
       waiting(Waiting::kEither, with(2, [](Transport& each) { copied(each, 2, false); }))},
      {"2 ranks, 5 combined chunks", with(2, [](Transport& each) { copied(each, 5, true); })},
      {"2 ranks, 3 operations", with(2, several_short)},
      {"2 ranks, exposed", exposed_with(2, false)},
      {"2 ranks, in place", exposed_with(2, true)},
      {"2 ranks, abort", aborted(with(2, [](Transport& each) { copied(each, 1, true); }))},
      {"2 ranks, one of them never arrives, abort", aborted(with(2, one_missing))},
      {"2 ranks, one of them stops, abort", aborted(with(2, stops_after_one))},
      {"2 ranks, messages", with(2, messages)},
      {"3 ranks, 1 chunk", with(3, [](Transport& each) { copied(each, 1, false); })},
      {"3 ranks, 2 chunks, spinning", waiting(Waiting::kSpin, with(3, [](Transport& each) { copied(each, 2, false); }))},
      {"3 ranks, 2 combined chunks, spinning",
       waiting(Waiting::kSpin, with(3, [](Transport& each) { copied(each, 2, true); }))},
      {"3 ranks, 3 operations, spinning", waiting(Waiting::kSpin, with(3, several_short))},
      {"3 ranks, in place, spinning", waiting(Waiting::kSpin, exposed_with(3, true))},
      {"3 ranks, abort, spinning", waiting(Waiting::kSpin, aborted(with(3, [](Transport& each) { copied(each, 1, false); })))},
  };
}

TEST(FlagModel, AllExecutionsOfTwoAndThreeRanksAreCorrect) {
  for (const Case& each : cases()) {
    const Result result = explore(each.scenario, {});
    EXPECT_EQ(result.violation, "") << each.name;
    EXPECT_GT(result.states, 20u) << each.name;
  }
}

struct PlantedError {
  const char* name;
  std::function<void(Mutation&)> plant;
  Scenario scenario;
};

TEST(FlagModel, FindsEachPlantedError) {
  const Scenario aborted_2 = aborted(with(2, one_missing));
  const std::vector<PlantedError> errors = {
      {"acquire weakened", [](Mutation& mutation) { mutation.relaxed_load = true; }, copied_by_2()},
      {"release weakened", [](Mutation& mutation) { mutation.relaxed_publish = true; }, copied_by_2()},
      {"acquire weakened, in place", [](Mutation& mutation) { mutation.relaxed_load = true; }, exposed_with(2, true)},
      {"abort check dropped", [](Mutation& mutation) { mutation.abort_unchecked = true; }, aborted_2},
      {"abort bit lost", [](Mutation& mutation) { mutation.lost_abort_bit = true; }, aborted(with(2, stops_after_one))},
      {"no wake", [](Mutation& mutation) { mutation.no_wake = true; }, copied_by_2()},
      {"no wake on abort", [](Mutation& mutation) { mutation.no_wake_on_abort = true; }, aborted_2},
      {"sleep without a comparison", [](Mutation& mutation) { mutation.blind_sleep = true; }, copied_by_2()},
      {"3 slots", [](Mutation& mutation) { mutation.slots = 3; }, copied_by_2()},
      {"1 descriptor", [](Mutation& mutation) { mutation.descriptors = 1; }, with(2, several_short)},
      {"release weakened, messages", [](Mutation& mutation) { mutation.relaxed_publish = true; }, with(2, messages)},
  };
  for (const PlantedError& each : errors) {
    Mutation mutation;
    each.plant(mutation);
    const Result result = explore(each.scenario, mutation);
    EXPECT_NE(result.violation, "") << each.name;
  }
}

}  // namespace
}  // namespace ddprun::trainer::collectives::model
