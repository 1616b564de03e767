// The values were chosen with the twelve tables of docs/tested.md. They must also suit a table with 50 rows, on which 30 epochs
// are 30 steps, so the run has at least min_steps steps. A larger table has more steps. The decay to a learning rate of 0 averages
// over the noise of the last steps.
#include "common/config/table_defaults.hpp"

namespace ddprun {

std::vector<std::pair<std::string_view, nlohmann::json>> defaults_for_tables() {
  return {{"model.type", "mlp"},
          {"model.hidden", {64, 64}},
          {"model.dropout", 0.1},
          {"data.test_table", ""},
          {"batch_size", 64},
          {"epochs", 30},
          {"min_steps", 2000},
          {"eval_every_epochs", 0},
          {"eval_every_steps", 500},
          {"optimizer.type", "adamw"},
          {"optimizer.lr", 0.003},
          {"optimizer.weight_decay", 0.1},
          {"schedule.type", "cosine"}};
}

}  // namespace ddprun
