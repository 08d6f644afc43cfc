// Channel: a bounded queue between workers that wakes its reader on arrival; first in, first out.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <mutex>
#include <vector>

namespace soc {

// A queue in memory that was taken beforehand; the user guards it.
template <typename Item>
class Ring {
 public:
  explicit Ring(size_t capacity) : items_(capacity) {}
  size_t size() const { return count_; }
  bool full() const { return count_ == items_.size(); }
  void push(Item item) { items_[(first_ + count_++) % items_.size()] = item; }
  const Item& operator[](size_t place) const { return items_[(first_ + place) % items_.size()]; }
  Item pop() {
    const Item item = items_[first_];
    first_ = (first_ + 1) % items_.size();
    --count_;
    return item;
  }

 private:
  std::vector<Item> items_;
  size_t first_ = 0, count_ = 0;
};

template <typename Item>
class Channel {
 public:
  explicit Channel(size_t capacity) : ring_(capacity) {}

  // Waits for a place, then hands over the item.
  void put(Item item) {
    std::unique_lock lock(mutex_);
    if (ring_.full()) {
      ++writers_;
      room_.wait(lock, [this] { return !ring_.full(); });
      --writers_;
    }
    ring_.push(item);
    const bool wake = readers_ > 0;
    lock.unlock();
    if (wake) arrival_.notify_one();
  }

  // Waits for an item; null if the channel is closed and everything before has been read.
  Item get() {
    std::unique_lock lock(mutex_);
    if (ring_.size() == 0) {
      ++readers_;
      arrival_.wait(lock, [this] { return ring_.size() > 0 || closed_; });
      --readers_;
    }
    if (ring_.size() == 0) return nullptr;
    const Item item = ring_.pop();
    const bool wake = writers_ > 0;
    lock.unlock();
    if (wake) room_.notify_one();
    return item;
  }

  void close() {
    {
      const std::lock_guard lock(mutex_);
      closed_ = true;
    }
    arrival_.notify_all();
  }

  bool has_room() const {
    const std::lock_guard lock(mutex_);
    return !ring_.full();
  }

  size_t size() const {
    const std::lock_guard lock(mutex_);
    return ring_.size();
  }

 private:
  mutable std::mutex mutex_;
  std::condition_variable arrival_, room_;
  Ring<Item> ring_;
  // Who waits: nobody is woken for nothing.
  int readers_ = 0, writers_ = 0;
  bool closed_ = false;
};

}  // namespace soc
