#include "trainer/commit/step_progress.hpp"

#include "common/base/check.hpp"

namespace ddprun::trainer {

void StepProgress::start_from(std::int64_t step, LayoutPlace place) {
  check(step >= 0, "training starts at a negative step number");
  report_ = {.place = place, .made = step, .received = step, .agreed = step};
}

void StepProgress::begin_step() {
  check(report_.made >= 0 && report_.made == report_.received && report_.made == report_.agreed,
        "a step starts before the previous step is complete");
  check(!report_.next, "a step starts before the switch to the new state layout");
  report_.gradients = kNoStep;
}

void StepProgress::gradients_reduced() {
  check(report_.made == report_.agreed && report_.gradients == kNoStep,
        "gradients are reduced a second time, or after agree()");
  report_.gradients = report_.made + 1;
}

void StepProgress::agree_passed() {
  check(report_.gradients == report_.agreed + 1, "agree() is called before the gradients are reduced");
  report_.agreed = report_.gradients;
  report_.evaluated = false;
}

void StepProgress::begin_update() {
  check(report_.gradients == report_.agreed && report_.made + 1 == report_.agreed,
        "an update starts before the gradients are reduced and the values are agreed");
  report_.made = kNoStep;
}

void StepProgress::updated() {
  check(report_.made == kNoStep && report_.gradients == report_.agreed, "an update ends before it has started");
  report_.made = report_.agreed;
  report_.received = kNoStep;
}

void StepProgress::published() {
  check(report_.made == report_.agreed && report_.received == kNoStep,
        "the new weights are gathered before the update is finished");
  report_.received = report_.agreed;
}

void StepProgress::evaluated() {
  check(report_.made == report_.agreed && report_.received == report_.agreed, "an evaluation ends before its step is complete");
  report_.evaluated = true;
}

StepReport StepProgress::report() const {
  StepReport report = report_;
  if (keeps_gradients_) return report;
  report.gradients = kNoStep;
  if (report.made != report.agreed && !report.next) report.agreed = report.made;
  return report;
}

void StepProgress::take_values(std::int64_t step, bool evaluated) {
  check(step >= report().agreed, "the received agreed values belong to an earlier step");
  report_.agreed = step;
  report_.evaluated = evaluated;
}

void StepProgress::received_all(LayoutPlace place) {
  check(report_.agreed >= 0, "the pieces of the training state arrive before the agreed values");
  if (report_.place && report_.place->layout_number != place.layout_number) {
    report_.next = place;
    return;
  }
  report_.place = place;
  report_.made = report_.received = report_.agreed;
}

void StepProgress::switch_layout() {
  if (!report_.next) return;
  report_.place = report_.next;
  report_.next.reset();
  report_.made = report_.received = report_.agreed;
  report_.gradients = kNoStep;
}

}  // namespace ddprun::trainer
