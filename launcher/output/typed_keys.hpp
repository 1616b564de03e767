// Reads single keys that the user presses while a subcommand redraws the screen. The user need not press Enter, and the keys
// are not echoed. The terminal's settings are restored at the end, even if a signal terminates or stops this process. No keys
// are read without a terminal or in the background.
#pragma once

#include <termios.h>
#include <unistd.h>

#include <array>
#include <csignal>

namespace ddprun {

class TypedKeys {
 public:
  TypedKeys() {
    if (::isatty(STDIN_FILENO) != 1 || ::tcgetpgrp(STDIN_FILENO) != ::getpgrp()) return;
    if (::tcgetattr(STDIN_FILENO, &before()) != 0) return;
    open_ = true;
    handle(kEnding, restore_and_raise);
    handle(std::array{SIGTSTP}, restore_and_raise);
    handle(std::array{SIGCONT}, retake_terminal);
    take_terminal();
  }
  ~TypedKeys() {
    if (!open_) return;
    handle(std::array{SIGTSTP, SIGCONT}, SIG_DFL);
    handle(kEnding, SIG_DFL);
    ::tcsetattr(STDIN_FILENO, TCSANOW, &before());
  }
  TypedKeys(const TypedKeys&) = delete;
  TypedKeys& operator=(const TypedKeys&) = delete;

  // Returns a descriptor for poll(); -1 if this object reads no keys.
  int fd() const { return open_ ? STDIN_FILENO : -1; }
  // Reads all pending key presses and returns true if `key` is one of them.
  bool has(char key) {
    std::array<char, 256> typed{};
    const ssize_t count = ::read(STDIN_FILENO, typed.data(), typed.size());
    if (count <= 0) open_ = false;  // the terminal was closed
    for (ssize_t i = 0; i < count; ++i)
      if (typed[static_cast<std::size_t>(i)] == key) return true;
    return false;
  }

 private:
  static constexpr std::array kEnding{SIGINT, SIGTERM, SIGHUP, SIGQUIT};

  // Returns the saved terminal settings. They are static because signal handlers use them.
  static termios& before() {
    static termios settings{};
    return settings;
  }
  template <std::size_t kCount>
  static void handle(const std::array<int, kCount>& signals, void (*handler)(int)) {
    for (const int signal : signals) {
      struct sigaction action {
      }, old{};
      ::sigaction(signal, nullptr, &old);
      if (old.sa_handler == SIG_IGN) continue;  // an ignored signal must stay ignored
      action.sa_handler = handler;
      ::sigaction(signal, &action, nullptr);
    }
  }
  static void take_terminal() {
    termios settings = before();
    settings.c_lflag &= ~static_cast<tcflag_t>(ICANON | ECHO);
    settings.c_cc[VMIN] = 0;
    settings.c_cc[VTIME] = 0;
    ::tcsetattr(STDIN_FILENO, TCSANOW, &settings);
  }
  // This is the signal handler. It restores the terminal and raises the signal again with its default action, which takes
  // effect when the handler returns.
  static void restore_and_raise(int signal) {
    ::tcsetattr(STDIN_FILENO, TCSANOW, &before());
    ::signal(signal, SIG_DFL);
    ::raise(signal);
  }
  static void retake_terminal(int) {
    handle(std::array{SIGTSTP}, restore_and_raise);
    if (::tcgetpgrp(STDIN_FILENO) == ::getpgrp()) take_terminal();
  }

  bool open_ = false;
};

}  // namespace ddprun
