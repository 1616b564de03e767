// Reads single key presses while a page is shown, without Enter and without echo. The terminal settings are restored at the
// end, even if a signal ends or stops this process. Without a terminal in the foreground no keys are read.
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
    handle(kEnding, give_back_and_obey);
    handle(std::array{SIGTSTP}, give_back_and_obey);
    handle(std::array{SIGCONT}, take_again);
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

  // Descriptor for poll(); -1 if no keys are read.
  int fd() const { return open_ ? STDIN_FILENO : -1; }
  // Consumes the typed keys and returns whether `key` is among them.
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

  // Saved terminal settings. Static, since signal handlers use them.
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
      if (old.sa_handler == SIG_IGN) continue;  // an ignored signal stays ignored
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
  // Restores the terminal. The signal then has its default effect when this handler returns.
  static void give_back_and_obey(int signal) {
    ::tcsetattr(STDIN_FILENO, TCSANOW, &before());
    ::signal(signal, SIG_DFL);
    ::raise(signal);
  }
  static void take_again(int) {
    handle(std::array{SIGTSTP}, give_back_and_obey);
    if (::tcgetpgrp(STDIN_FILENO) == ::getpgrp()) take_terminal();
  }

  bool open_ = false;
};

}  // namespace ddprun
