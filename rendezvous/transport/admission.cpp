#include "rendezvous/transport/admission.hpp"

#include <algorithm>

namespace ddprun {

bool Admission::may_admit(TimePoint now) const {
  return size() < limits_.total || admits_at() <= now;
}

Admission::TimePoint Admission::admits_at() const {
  if (!silent_.empty()) return silent_.front().arrival + limits_.min_wait;
  return started_.empty() ? TimePoint::min() : started_.front().arrival + limits_.grace;
}

Admission::Admitted Admission::admit(const SourceAddress& source, TimePoint now) {
  Admitted result;
  std::size_t& of_source = silent_of_[source];
  if (of_source >= limits_.silent_per_source) {
    const auto oldest = std::find_if(silent_.begin(), silent_.end(), [&](const Newcomer& n) { return n.source == source; });
    if (oldest->arrival + limits_.grace <= now) evict(oldest, silent_, result.evicted);
  }
  if (size() >= limits_.total) {
    Queue& queue = silent_.empty() ? started_ : silent_;
    evict(queue.begin(), queue, result.evicted);
  }
  result.id = next_id_++;
  silent_.push_back({result.id, source, now});
  where_[result.id] = {&silent_, std::prev(silent_.end())};
  ++silent_of_[source];  // the key is looked up again, because the eviction above may have removed its entry
  return result;
}

void Admission::started(Id id) {
  const auto found = where_.find(id);
  if (found == where_.end() || found->second.queue == &started_) return;
  const auto entry = found->second.entry;
  std::size_t& started_count = started_of_[entry->source];
  if (started_count >= limits_.started_per_source) return;
  ++started_count;
  const auto count = silent_of_.find(entry->source);
  if (--count->second == 0) silent_of_.erase(count);
  // The queue is in the order of arrival, except for a peer whose ClientHello was late. This exception is harmless, because
  // this peer is only closed a little later.
  started_.splice(started_.end(), silent_, entry);
  found->second.queue = &started_;
}

void Admission::forget(Id id) {
  const auto found = where_.find(id);
  if (found == where_.end()) return;
  std::vector<Id> ignored;
  evict(found->second.entry, *found->second.queue, ignored);
}

std::optional<Admission::Id> Admission::evict_one() {
  Queue& queue = silent_.empty() ? started_ : silent_;
  if (queue.empty()) return std::nullopt;
  std::vector<Id> evicted;
  evict(queue.begin(), queue, evicted);
  return evicted.front();
}

std::vector<Admission::Id> Admission::expire(TimePoint now) {
  std::vector<Id> expired;
  for (Queue* queue : {&silent_, &started_}) {
    while (!queue->empty() && queue->front().arrival + limits_.handshake_time <= now) evict(queue->begin(), *queue, expired);
  }
  return expired;
}

std::optional<Admission::TimePoint> Admission::next_deadline() const {
  std::optional<TimePoint> next;
  for (const Queue* queue : {&silent_, &started_}) {
    if (queue->empty()) continue;
    const TimePoint deadline = queue->front().arrival + limits_.handshake_time;
    if (!next || deadline < *next) next = deadline;
  }
  return next;
}

void Admission::evict(Queue::iterator entry, Queue& queue, std::vector<Id>& evicted) {
  evicted.push_back(entry->id);
  auto& of_source = &queue == &silent_ ? silent_of_ : started_of_;
  const auto count = of_source.find(entry->source);
  if (--count->second == 0) of_source.erase(count);
  where_.erase(entry->id);
  queue.erase(entry);
}

}  // namespace ddprun
