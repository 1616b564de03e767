// The network for data.type "table". Its inputs follow the column plan (common/tables/column_plan.hpp). The result is the sum
// of a linear layer and of a multilayer perceptron, both on the same inputs.
//
// Why the sum: on small tables, a linear model is often the best model, and a network alone needs many steps to approximate
// it. With the linear layer, the network only learns the difference. Wide and deep learning (Cheng et al. 2016) uses the same
// sum.
//
// The layers are named linear; fc1, fc2, ... as in an mlp; and embedding1, embedding2, ... in the order of the embedded
// columns. For a number, the buffers target_mean and target_deviation convert the result to the unit of the table, so that
// predictions and metrics are in this unit.
#pragma once

#include <c10/core/Device.h>

#include <cstdint>
#include <memory>

#include "common/config/train_config.hpp"
#include "common/tables/column_plan.hpp"
#include "trainer/models/model.hpp"

namespace ddprun::trainer {

// Makes the network on `device`, in training mode. Uses model.hidden, dropout and lora. The same seed gives the same bits on
// every device. The state of the default generator is not changed. forward() takes float32 [n, width_of(plan).all()]. It
// returns logits [n, classes], or numbers [n, 1] in the unit of the target.
std::shared_ptr<Model> make_table_network(const ModelConfig& config, const TablePlan& plan, std::uint64_t seed,
                                          c10::Device device);

}  // namespace ddprun::trainer
